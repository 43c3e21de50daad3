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

/// A launch offered by another node. A dropped offer is refused.
#[derive(Debug)]
pub struct Offer {
    pub delivery: Delivery,
    /// Takes the launch: the other node then hands it over, and says how long it has had the delivery. If it no longer
    /// waits, its part is dropped, and the launch is not this node's.
    ///
    /// The lease is shorter by that time, counted back from the time at which this node took the launch: an offer may
    /// be late on its way.
    pub take: oneshot::Sender<oneshot::Sender<Duration>>,
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

    /// Takes up to `max` launches; waits up to `wait` for the first (zero: no wait), also for a connection.
    ///
    /// The leases count from the time of the *request*: an answer may be late on its way.
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

    /// Offers a launch to the node `to`. Returns whether this node has handed it over; `held` says at that time how
    /// long it has had the delivery.
    ///
    /// If the other node does not take it within `patience`, the launch stays here: that node cannot take it later. If
    /// the hand-over is lost on its way, the queue delivers the launch again after the lease time.
    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: &(dyn Fn() -> Duration + Send + Sync),
        patience: Duration,
    ) -> Result<bool, QueueError>;

    /// The launches offered to `node` from now on; survives lost connections.
    async fn offers(&self, node: NodeId) -> Result<BoxStream<'static, Offer>, QueueError>;

    /// The number of waiting launches for each consumer.
    async fn waiting(&self) -> Result<Vec<Waiting>, QueueError>;
}
