//! One program's connection to the queue of launches.

use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::run::WorkPosition;
use aod_domain::subject::{Class, Pool, Subject};
use aod_ports::event_log::StoredEvent;
use aod_ports::work_queue::{Delivery, Offer, QueueError, Waiting, WorkQueue};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Broker, State, Work, place_of};
use crate::link::{Link, Unreachable};

#[derive(Debug)]
pub(crate) struct SimulatedQueue {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
}

fn unreachable(error: Unreachable) -> QueueError {
    QueueError(error.into())
}

/// The subject of an acknowledgement: it names the queue, the launch and the delivery.
fn ack_subject(created_ms: i64, sequence: u64, delivery: u64) -> String {
    format!("ack.{created_ms}.{sequence}.{delivery}")
}

impl SimulatedQueue {
    /// Takes what is due, and returns the time of the next delivery.
    fn take(&self, pool: &Pool, class: Class, max: usize) -> (Vec<Delivery>, Option<Instant>) {
        let (now, lease) = (Instant::now(), self.broker.lease);
        let mut state = self.broker.state();
        let created_ms = state.work_created_ms;
        let (mut taken, mut next) = (Vec::new(), None::<Instant>);
        let fitting = state.work.iter_mut().filter(|(_, work)| {
            place_of(&work.subject).is_some_and(|place| place == (pool.clone(), class))
        });
        for (&sequence, work) in fitting {
            if work.due > now || taken.len() == max {
                next = Some(next.map_or(work.due, |next| next.min(work.due)));
                continue;
            }
            work.deliveries += 1;
            work.due = now + lease;
            if work.deliveries > 1 {
                self.broker.world.count("redelivery");
            }
            taken.extend(delivery(created_ms, sequence, work, class));
        }
        (taken, next)
    }

    fn change(&self, ack_subject: &str, change: impl FnOnce(&mut State, u64)) {
        let mut tokens = ack_subject.split('.').skip(1).map(str::parse::<u64>);
        let (Some(Ok(created_ms)), Some(Ok(sequence))) = (tokens.next(), tokens.next()) else {
            return;
        };
        let mut state = self.broker.state();
        // Acknowledgements for a lost queue are ignored.
        if state.work_created_ms.cast_unsigned() == created_ms {
            change(&mut state, sequence);
        }
        drop(state);
        self.broker.queue_changes.send_modify(|count| *count += 1);
    }
}

impl State {
    fn waiting(&self, place: (Pool, Class)) -> Waiting {
        let fitting = self
            .work
            .values()
            .filter(|work| place_of(&work.subject).as_ref() == Some(&place));
        let (delivered, pending): (Vec<&Work>, Vec<&Work>) =
            fitting.partition(|work| work.deliveries > 0);
        Waiting {
            pool: place.0,
            class: place.1,
            pending: pending.len() as u64,
            delivered: delivered.len() as u64,
        }
    }
}

/// The offer as the other node has it: the hand-over may be late on its way, or lost.
fn late_to_take(offer: Offer, link: Link) -> Offer {
    let (take, taken) = oneshot::channel::<oneshot::Sender<Duration>>();
    tokio::spawn(async move {
        let Ok(to_node) = taken.await else {
            return;
        };
        let (handed_over, held) = oneshot::channel();
        if offer.take.send(handed_over).is_err() {
            return;
        }
        let Ok(held) = held.await else { return };
        if link.stalling_hop("late hand-over").await.is_ok() {
            let _ = to_node.send(held);
        }
    });
    Offer {
        delivery: offer.delivery,
        take,
    }
}

fn delivery(created_ms: i64, sequence: u64, work: &Work, class: Class) -> Option<Delivery> {
    Some(Delivery {
        run: Subject::run_of(&work.subject)?,
        class,
        position: WorkPosition {
            queue_created_ms: created_ms,
            sequence,
            delivery: work.deliveries,
        },
        ack_subject: ack_subject(created_ms, sequence, work.deliveries),
        launch: StoredEvent {
            sequence: work.event,
            subject: work.subject.clone(),
            bytes: work.bytes.clone(),
        },
    })
}

#[async_trait]
impl WorkQueue for SimulatedQueue {
    async fn ensure(&self, pool: &Pool) -> Result<(), QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        self.broker.state().pools.insert(pool.clone());
        Ok(())
    }

    async fn begin_at(&self, sequence: u64) -> Result<(), QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        let mut state = self.broker.state();
        state.work_begins_at = state.work_begins_at.max(sequence);
        Ok(())
    }

    async fn pull(
        &self,
        pool: &Pool,
        class: Class,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let deadline = Instant::now() + wait;
        let connected = tokio::time::timeout_at(deadline, self.link.up()).await;
        connected.map_err(|error| QueueError(error.into()))?;
        self.link.hop().await.map_err(unreachable)?;
        loop {
            let mut changes = self.broker.queue_changes.subscribe();
            let (taken, next) = self.take(pool, class, max);
            if !taken.is_empty() {
                self.link.world.count("delivery");
                for delivery in &taken {
                    let what = format!("pulled {} {}", delivery.run, delivery.ack_subject);
                    self.link.world.step(&self.link.who, &what);
                }
                // A lost delivery is redelivered after the lease time.
                let arrived = self.link.stalling_hop("late delivery").await;
                return arrived.map(|()| taken).map_err(unreachable);
            }
            let more = self.link.wait_for_more(&mut changes, next, deadline);
            if !more.await.map_err(unreachable)? {
                return Ok(Vec::new());
            }
        }
    }

    async fn progress(&self, ack_subject: &str) -> Result<(), QueueError> {
        self.link.hop().await.map_err(unreachable)?;
        let lease = self.broker.lease;
        // The progress of a stale holder is confirmed too, and extends the next holder's delivery (measured).
        self.change(ack_subject, |state, sequence| {
            if let Some(work) = state.work.get_mut(&sequence) {
                work.due = Instant::now() + lease;
            }
        });
        self.link.world.count("progress");
        self.link
            .world
            .step(&self.link.who, &format!("progress {ack_subject}"));
        self.link.hop().await.map_err(unreachable)
    }

    async fn acknowledge(&self, ack_subject: &str) -> Result<(), QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        self.change(ack_subject, |state, sequence| {
            state.work.remove(&sequence);
        });
        self.link.world.count("acknowledgement");
        self.link
            .world
            .step(&self.link.who, &format!("done {ack_subject}"));
        self.link.hop().await.map_err(unreachable)
    }

    async fn give_back(&self, ack_subject: &str, delay: Duration) -> Result<(), QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        self.change(ack_subject, |state, sequence| {
            if let Some(work) = state.work.get_mut(&sequence) {
                work.due = Instant::now() + delay;
            }
        });
        self.link.world.count("returned to the queue");
        self.link
            .world
            .step(&self.link.who, &format!("return {ack_subject} {delay:?}"));
        self.link.hop().await.map_err(unreachable)
    }

    async fn forget(&self, pool: &Pool) -> Result<(), QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        self.broker.state().pools.remove(pool);
        Ok(())
    }

    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: &(dyn Fn() -> Duration + Send + Sync),
        patience: Duration,
    ) -> Result<bool, QueueError> {
        self.link.hop().await.map_err(unreachable)?;
        self.link.world.count("offer");
        let (listener, launch) = {
            let state = self.broker.state();
            let launch = state.event(delivery.launch.sequence);
            (state.offers.get(&to).cloned(), launch)
        };
        let (take, taken) = oneshot::channel();
        let offer = Offer {
            delivery: Delivery {
                launch,
                ..delivery.clone()
            },
            take,
        };
        let is_told = listener.is_some_and(|listener| listener.send(offer).is_ok());
        if !is_told {
            return Ok(false);
        }
        let answered = async {
            let taken = taken.await;
            self.link.hop().await.map(|()| taken)
        };
        let answered = tokio::time::timeout(patience, answered).await;
        let answered = answered.map_err(|error| QueueError(error.into()))?;
        let Ok(handed_over) = answered.map_err(unreachable)? else {
            return Ok(false);
        };
        let held = held();
        self.link.world.count("handed over");
        if self.link.hop().await.is_ok() {
            let _ = handed_over.send(held);
        }
        Ok(true)
    }

    async fn offers(&self, node: NodeId) -> Result<BoxStream<'static, Offer>, QueueError> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.broker.state().offers.insert(node, sender);
        let link = self.link.clone();
        let offers = stream::poll_fn(move |context| receiver.poll_recv(context));
        let broker = self.broker.clone();
        let offers = offers.filter_map(move |offer| {
            let (link, broker) = (link.clone(), broker.clone());
            async move {
                if link.stalling_hop("late offer").await.is_ok() {
                    return Some(late_to_take(offer, link));
                }
                broker.state().lost_offers.push(offer);
                None
            }
        });
        Ok(offers.boxed())
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, QueueError> {
        self.link.patiently().await.map_err(unreachable)?;
        let state = self.broker.state();
        let consumers = state
            .pools
            .iter()
            .flat_map(|pool| [Class::Child, Class::Root].map(|class| (pool.clone(), class)));
        Ok(consumers.map(|place| state.waiting(place)).collect())
    }
}
