//! The queue on the stream `WORK`, one consumer for each pool and class.
//!
//! A delivered launch belongs to its receiver for the lease time, which each sign of life restarts;
//! after silence the queue delivers the launch again. The queue accepts late acknowledgements too, so
//! only the log fences.
//!
//! **Lost receivers.** A receiver that drops a pull, or loses the connection during a pull, may lose
//! launches that the server has sent: at most the requested number. The adapter immediately returns
//! launches that have arrived to the queue; the queue delivers the rest again after the lease time.
//!
//! The queue is derived from the log. If the stream is missing, [`JetStreamWorkQueue::ensure_work`]
//! rebuilds it, and [`WorkQueue::ensure`] its consumers, as do pulls of programs with that right; until
//! then pulls fail.

mod consumer;
mod offer;
mod pull;

pub(crate) use self::offer::OFFERS;

use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::subject::{Class, Pool};
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

/// Number of a holder's signs of life in one lease time.
const SIGNS_OF_LIFE_A_LEASE: u32 = 4;

/// Returns a launch to the queue.
const NOT_NOW: &str = "-NAK";

/// Returns a launch to the queue, for delivery after `delay`.
pub(crate) fn not_now(delay: Duration) -> String {
    format!("{NOT_NOW} {{\"delay\":{}}}", delay.as_nanos())
}

/// The queue of launches, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamWorkQueue {
    link: Link,
    lease: Duration,
    /// Whether the queue creates missing consumers.
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

    /// Creates the consumer, or checks the existing one.
    async fn open(&self, pool: &Pool, class: Class) -> Result<(), BoxError> {
        if self.makes_consumers {
            consumer::ensure(&self.link, pool, class, self.lease).await
        } else {
            consumer::bind(&self.link, pool, class, self.lease).await
        }
    }

    /// Whether the queue's stream exists.
    pub async fn has_work(&self) -> Result<bool, StreamError> {
        Ok(find(&self.link, streams::WORK).await?.is_some())
    }

    /// Creates a missing queue from the launches of the log at and after `start_sequence`, none for all;
    /// sets the start of an existing queue to this sequence.
    ///
    /// `start_sequence` is the first launch of a run that has not ended. Call this periodically: a killed
    /// server may have lost its position in the log (the queue is not synced, and an empty queue stores
    /// nothing), and then reads the launches again from this start.
    pub async fn ensure_work(&self, start_sequence: Option<u64>) -> Result<(), StreamError> {
        let wanted = streams::work(&self.limits, start_sequence);
        ensure(&self.link, wanted, Limits::Keep).await?;
        Ok(())
    }

    /// Sends `what` about a delivery and waits for the server's confirmation.
    ///
    /// Retries for a while, because nothing listens to the subject during a restart of the server (and
    /// without the consumer).
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
    async fn ensure(&self, pool: &Pool) -> Result<(), QueueError> {
        for class in [Class::Child, Class::Root] {
            self.open(pool, class).await.map_err(QueueError)?;
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
        pool: &Pool,
        class: Class,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        pull::pull(self, pool, class, max, wait)
            .await
            .map_err(QueueError)
    }

    async fn progress(&self, ack_subject: &str) -> Result<(), QueueError> {
        // Once, and at most until the next sign of life is due: the caller counts from its request.
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

    async fn forget(&self, pool: &Pool) -> Result<(), QueueError> {
        for class in [Class::Child, Class::Root] {
            consumer::remove(&self.link, pool, class)
                .await
                .map_err(QueueError)?;
        }
        Ok(())
    }

    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: &(dyn Fn() -> Duration + Send + Sync),
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
