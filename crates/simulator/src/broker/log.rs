//! One program's connection to the log.

use std::time::Duration;

use aod_domain::subject::{Subject, is_under};
use aod_ports::BoxError;
use aod_ports::event_log::{
    Append, AppendError, EventLog, Fill, Followed, From, ReadError, StoredEvent, Tried,
};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::Instant;

use super::{Answer, Broker};
use crate::link::Link;

/// One append in this number is stored although its answer is lost.
const ANSWER_LOST_ONE_IN: u64 = 60;

/// One append in this number never arrives.
const REQUEST_LOST_ONE_IN: u64 = 100;

/// The answer to one read in this number is late, and outdated on arrival.
const ANSWER_LATE_ONE_IN: u64 = 20;

/// Maximum delay, in milliseconds.
const LATE_MILLISECONDS_MAX: u64 = 2_000;

/// Capacity of the log in bytes; no simulation reaches it.
const BYTES_MAX: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct SimulatedLog {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
}

impl SimulatedLog {
    /// Whether the program dies of what follows this append.
    fn is_deadly(&self, append: &Append) -> bool {
        let subject = append.subject.as_str();
        let run = Subject::run_of(subject).filter(|_| subject.ends_with(".s.delivered"));
        run.is_some_and(|run| self.link.world.is_deadly(run))
    }

    async fn reading<T>(&self, filter: &str, read: impl FnOnce() -> T) -> Result<T, ReadError> {
        let failed = |source: crate::link::Unreachable| ReadError {
            what: filter.to_owned(),
            source: source.into(),
        };
        self.link.patiently().await.map_err(failed)?;
        let found = read();
        self.link.world.step(&self.link.who, "read");
        if self.link.world.strikes("answer late", ANSWER_LATE_ONE_IN) {
            let milliseconds = self.link.world.below(LATE_MILLISECONDS_MAX);
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        self.link.patiently().await.map_err(failed)?;
        Ok(found)
    }
}

#[async_trait]
impl EventLog for SimulatedLog {
    fn concluded(&self, append: &Append, answer: &Result<u64, AppendError>) {
        let is_conflict = matches!(answer, Err(AppendError::Conflict { .. }));
        if is_conflict && self.broker.holds(&append.id) {
            let text = format!("{} is in conflict with itself", append.subject);
            self.link.world.violation(text);
        }
    }

    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried {
        let world = &self.link.world;
        let trying = async {
            self.link.up().await;
            if self.link.hop().await.is_err() || world.strikes("request lost", REQUEST_LOST_ONE_IN)
            {
                return Tried::Unknown("the connection was lost".into());
            }
            let answer = self.broker.store(append);
            world.count("append");
            world.step(&self.link.who, &format!("append {}", append.subject));
            if self.is_deadly(append) {
                world.kill(&self.link.who);
                std::future::pending::<()>().await;
            }
            let is_lost = world.strikes("answer lost", ANSWER_LOST_ONE_IN);
            if self.link.hop().await.is_err() || is_lost {
                return Tried::Unknown("the connection was lost".into());
            }
            match answer {
                Answer::Stored(sequence) => Tried::Stored(sequence),
                Answer::Conflict => {
                    world.count("conflict");
                    Tried::Conflict
                }
            }
        };
        tokio::time::timeout_at(deadline, trying)
            .await
            .unwrap_or_else(|elapsed| Tried::Unknown(elapsed.into()))
    }

    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError> {
        let read = || {
            let state = self.broker.state();
            let found = state.under(filter, sequence).next();
            found.map(|sequence| (sequence, state.logged(sequence).id.clone()))
        };
        Ok(self.reading(filter, read).await?)
    }

    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let read = || {
            let state = self.broker.state();
            let found = state.under(filter, after).take(limit);
            found.map(|sequence| state.event(sequence)).collect()
        };
        self.reading(filter, read).await
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        let read = || {
            let state = self.broker.state();
            match state.last_of(filter) {
                0 => None,
                sequence => Some(state.event(sequence)),
            }
        };
        self.reading(filter, read).await
    }

    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError> {
        let after = self
            .reading(filter, || match from {
                From::Now => self.broker.state().events.len() as u64,
                From::After(sequence) => sequence,
            })
            .await?;
        let follower = Follower {
            broker: self.broker.clone(),
            link: self.link.clone(),
            filter: filter.to_owned(),
            seen: after,
        };
        let followed = stream::unfold(follower, |mut follower| async {
            let followed = follower.next().await;
            Some((followed, follower))
        });
        Ok(followed.boxed())
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        self.reading("the fill level", || {
            let state = self.broker.state();
            Fill {
                bytes: state.bytes,
                bytes_max: BYTES_MAX,
                last_sequence: state.events.len() as u64,
            }
        })
        .await
    }

    async fn release_before(&self, sequence: u64) -> Result<(), ReadError> {
        let release = || self.broker.release_before(sequence);
        self.reading("released events", release).await
    }
}

/// A subscription.
struct Follower {
    broker: Broker,
    link: Link,
    filter: String,
    seen: u64,
}

impl Follower {
    async fn next(&mut self) -> Followed {
        let mut last = self.broker.last.subscribe();
        loop {
            if !self.link.is_up() {
                self.link.up().await;
                return Followed::Reconnected;
            }
            if let Some(event) = self.find() {
                if self.link.hop().await.is_ok() {
                    self.seen = event.sequence;
                    return Followed::Event(event);
                }
                continue;
            }
            let seen = self.seen;
            tokio::select! {
                biased;
                _ = last.wait_for(|&last| last > seen) => (),
                () = self.link.down() => (),
            }
        }
    }

    /// The next event that matches the filter.
    fn find(&mut self) -> Option<StoredEvent> {
        let state = self.broker.state();
        self.seen = self.seen.max(state.first - 1);
        while self.seen < state.events.len() as u64 {
            let next = self.seen + 1;
            if is_under(&state.logged(next).subject, &self.filter) {
                return Some(state.event(next));
            }
            self.seen = next;
        }
        None
    }
}
