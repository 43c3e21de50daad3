//! The queue of launches, which the server derives from the log. An acknowledgement fences nothing.

use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_domain::run::WorkPosition;
use aod_domain::subject::{Class, Pool};
use async_trait::async_trait;
use futures::stream::BoxStream;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::BoxError;
use crate::event_log::StoredEvent;

/// A launch, delivered to this node until the node acknowledges it or is silent for the lease time.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub run: RunId,
    pub class: Class,
    pub position: WorkPosition,
    /// The subject for acknowledgements; a later incarnation of the node may use it too.
    pub ack_subject: String,
    /// The launch, with its sequence in the log.
    pub launch: StoredEvent,
}

/// A launch offered by another node.
#[derive(Debug)]
pub struct Offer {
    pub delivery: Delivery,
    /// Minimum time since the other node received it from the queue; the lease is shorter by this time.
    pub held: Duration,
    /// Whether this node takes it; no answer means no.
    pub answer: oneshot::Sender<bool>,
}

/// The broker did not answer in time; a retry is harmless.
#[derive(Debug, Error)]
#[error("the work queue does not respond")]
pub struct QueueError(#[source] pub BoxError);

/// Launches waiting for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub pool: Pool,
    pub class: Class,
    /// Not delivered yet.
    pub pending: u64,
    /// Delivered, not acknowledged.
    pub delivered: u64,
}

/// The queue of launches: one consumer for each pool and class.
#[async_trait]
pub trait WorkQueue: Send + Sync + std::fmt::Debug {
    /// Creates missing consumers of `pool`.
    async fn ensure(&self, pool: &Pool) -> Result<(), QueueError>;

    /// Declares launches before `sequence` as no longer needed, and recreates a lost queue from `sequence` on. Called
    /// periodically.
    async fn begin_at(&self, sequence: u64) -> Result<(), QueueError>;

    /// Takes up to `max` launches; waits up to `wait` for the first (zero: no wait).
    async fn pull(
        &self,
        pool: &Pool,
        class: Class,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError>;

    /// Requests another lease time. Returns when the server has confirmed; the caller counts from the time of the
    /// *request*.
    async fn progress(&self, ack_subject: &str) -> Result<(), QueueError>;

    /// Removes the launch from the queue, confirmed.
    async fn acknowledge(&self, ack_subject: &str) -> Result<(), QueueError>;

    /// Returns the launch to the queue; it is redelivered after `delay`.
    async fn give_back(&self, ack_subject: &str, delay: Duration) -> Result<(), QueueError>;

    /// Removes the empty consumers of `pool`; the next user recreates them.
    async fn forget(&self, pool: &Pool) -> Result<(), QueueError>;

    /// Offers a launch, delivered here `held` ago, to the node `to`. Returns whether that node has taken it and is now
    /// alone responsible.
    ///
    /// After an error, for example if no answer comes within `patience`, that node may have taken it: this node must
    /// neither start nor return it. If no node has it, the queue delivers it again after the lease time.
    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: Duration,
        patience: Duration,
    ) -> Result<bool, QueueError>;

    /// The launches offered to `node` from now on; survives lost connections.
    async fn offers(&self, node: NodeId) -> Result<BoxStream<'static, Offer>, QueueError>;

    /// The number of waiting launches for each consumer.
    async fn waiting(&self) -> Result<Vec<Waiting>, QueueError>;
}
