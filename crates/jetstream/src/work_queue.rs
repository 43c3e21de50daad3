//! The queue on the stream `WORK`, one consumer for each label and class.
//!
//! A delivered launch belongs to its receiver for the lease time, which a sign of life begins
//! anew; after silence it is delivered again. That, and an acknowledgement, is all the queue
//! knows: an acknowledgement that comes late is taken too, so only the log fences.
//!
//! **Lost receivers.** Whoever drops a pull, or loses the connection during one, may have been
//! sent launches that nobody will see: at most as many as were asked for. Those already here are
//! given back at once, the others come again after the lease time.
//!
//! The queue is derived from the log. If the stream is gone, [`JetStreamWorkQueue::ensure_work`]
//! makes it anew, and [`WorkQueue::ensure`] its consumers, as pulls do for whoever may; until then pulls fail.

mod consumer;
mod offer;
mod pull;

pub(crate) use self::offer::OFFERS;

use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::subject::{Class, Label};
use aod_ports::BoxError;
use aod_ports::work_queue::{Delivery, Offer, QueueError, Waiting, WorkQueue};
use async_nats::Request;
use async_nats::client::RequestErrorKind;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use tokio::time::Instant;

use crate::config::{Config, StreamLimits};
use crate::link::{Failure, Link};
use crate::streams;
use crate::streams::ensure::{Limits, StreamError, ensure, find};

/// Acknowledges. Source of these texts: nats-server `server/consumer.go`.
pub(crate) const DONE: &str = "+ACK";

/// Asks for another lease time.
const IN_PROGRESS: &str = "+WPI";

/// Holders give a sign of life this often in a lease time.
const SIGNS_OF_LIFE_A_LEASE: u32 = 4;

/// Gives back.
const NOT_NOW: &str = "-NAK";

/// Gives back, to be delivered again after `delay`.
pub(crate) fn not_now(delay: Duration) -> String {
    format!("{NOT_NOW} {{\"delay\":{}}}", delay.as_nanos())
}

/// The queue of launches, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamWorkQueue {
    link: Link,
    lease: Duration,
    /// Whether it makes consumers that are missing.
    makes_consumers: bool,
    limits: StreamLimits,
}

impl JetStreamWorkQueue {
    pub(crate) fn new(link: Link, config: &Config, limits: StreamLimits) -> Self {
        Self {
            link,
            lease: Duration::from_secs(config.lease_seconds.into()),
            makes_consumers: config.makes_streams,
            limits,
        }
    }

    /// Makes the consumer, or sees that it is there as it must be.
    async fn open(&self, label: &Label, class: Class) -> Result<(), BoxError> {
        if self.makes_consumers {
            consumer::ensure(&self.link, label, class, self.lease).await
        } else {
            consumer::bind(&self.link, label, class, self.lease).await
        }
    }

    /// Whether the queue's stream is there.
    pub async fn has_work(&self) -> Result<bool, StreamError> {
        Ok(find(&self.link, streams::WORK).await?.is_some())
    }

    /// Makes the queue's stream if it is missing, from the launches of the log at and after
    /// `start_sequence`, none for all; if it is there, notes that it begins no earlier.
    ///
    /// `start_sequence` is the first launch of a run that has not ended. To be called now and
    /// then: a server that is killed may have forgotten what it had taken from the log (the queue
    /// is not synced, and an empty one leaves nothing behind), and takes it again from there.
    pub async fn ensure_work(&self, start_sequence: Option<u64>) -> Result<(), StreamError> {
        let wanted = streams::work(&self.limits, start_sequence);
        ensure(&self.link, wanted, Limits::Keep).await?;
        Ok(())
    }

    /// Says `what` about a delivery and waits until the server has it.
    ///
    /// Nobody listens to the subject when the consumer is gone, and while a server restarts: the
    /// latter passes, so this is tried for a while.
    async fn say(&self, ack_subject: &str, what: Bytes) -> Result<(), BoxError> {
        self.link
            .patiently(|| async {
                let request = Request::new().payload(what.clone());
                match self
                    .link
                    .client
                    .send_request(ack_subject.to_owned(), request)
                    .await
                {
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == RequestErrorKind::InvalidSubject => {
                        Err(Failure::last(error))
                    }
                    Err(error) => Err(Failure::transient(error)),
                }
            })
            .await
    }
}

#[async_trait]
impl WorkQueue for JetStreamWorkQueue {
    async fn ensure(&self, label: &Label) -> Result<(), QueueError> {
        for class in [Class::Child, Class::Root] {
            self.open(label, class).await.map_err(QueueError)?;
        }
        Ok(())
    }

    async fn begin_at(&self, sequence: u64) -> Result<(), QueueError> {
        self.ensure_work(Some(sequence))
            .await
            .map_err(|error| QueueError(Box::new(error)))
    }

    async fn pull(
        &self,
        label: &Label,
        class: Class,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        pull::pull(self, label, class, max, wait)
            .await
            .map_err(QueueError)
    }

    async fn progress(&self, ack_subject: &str) -> Result<(), QueueError> {
        // Once only, and not for longer than until the next sign of life is due: the caller counts
        // from when it asked.
        let deadline = Instant::now() + self.lease / SIGNS_OF_LIFE_A_LEASE;
        let request = Request::new().payload(IN_PROGRESS.into());
        let sent = async {
            let sent = self
                .link
                .client
                .send_request(ack_subject.to_owned(), request);
            sent.await.map_err(Failure::transient)
        };
        let confirmed = self.link.within_connection(deadline, sent).await;
        confirmed.map_err(|failure| QueueError(failure.source))?;
        Ok(())
    }

    async fn acknowledge(&self, ack_subject: &str) -> Result<(), QueueError> {
        self.say(ack_subject, DONE.into()).await.map_err(QueueError)
    }

    async fn give_back(&self, ack_subject: &str, delay: Duration) -> Result<(), QueueError> {
        self.say(ack_subject, not_now(delay).into())
            .await
            .map_err(QueueError)
    }

    async fn forget(&self, label: &Label) -> Result<(), QueueError> {
        for class in [Class::Child, Class::Root] {
            consumer::remove(&self.link, label, class)
                .await
                .map_err(QueueError)?;
        }
        Ok(())
    }

    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: Duration,
        patience: Duration,
    ) -> Result<bool, QueueError> {
        offer::offer(&self.link, to, delivery, held, patience)
            .await
            .map_err(QueueError)
    }

    async fn offers(&self, node: NodeId) -> Result<BoxStream<'static, Offer>, QueueError> {
        offer::offers(&self.link, node).await.map_err(QueueError)
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, QueueError> {
        consumer::waiting(&self.link).await.map_err(QueueError)
    }
}
