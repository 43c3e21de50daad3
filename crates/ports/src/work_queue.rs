//! The queue of launches, made by the server from the log. Acknowledging fences nothing.

use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_domain::run::WorkPosition;
use aod_domain::subject::{Class, Label};
use async_trait::async_trait;
use futures::stream::BoxStream;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::BoxError;
use crate::event_log::StoredEvent;

/// A launch, handed to this node until it is acknowledged or the lease time passes in silence.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub run: RunId,
    pub class: Class,
    pub position: WorkPosition,
    /// Where to acknowledge; a later incarnation of the node may do so too.
    pub ack_subject: String,
    /// The launch, with its sequence in the log.
    pub launch: StoredEvent,
}

/// A launch that another node hands over.
#[derive(Debug)]
pub struct Offer {
    pub delivery: Delivery,
    /// How long ago the other had it from the queue, at the least: so much of the lease is gone.
    pub held: Duration,
    /// Whether this node takes it; no answer is a no.
    pub answer: oneshot::Sender<bool>,
}

/// The broker did not answer in time; safe to try again.
#[derive(Debug, Error)]
#[error("the work queue does not answer")]
pub struct QueueError(#[source] pub BoxError);

/// Launches waiting for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub label: Label,
    pub class: Class,
    /// Not delivered yet.
    pub pending: u64,
    /// Delivered, not acknowledged.
    pub delivered: u64,
}

/// The queue of launches: one consumer for each label and class.
#[async_trait]
pub trait WorkQueue: Send + Sync + std::fmt::Debug {
    /// Makes the consumers of `label` if they are not there.
    async fn ensure(&self, label: &Label) -> Result<(), QueueError>;

    /// Says that no launch before `sequence` of the log is needed any more, and makes the queue if
    /// it is lost: what is derived from the log begins again from there. To be said now and then.
    async fn begin_at(&self, sequence: u64) -> Result<(), QueueError>;

    /// Takes up to `max` launches; waits up to `wait` for the first (zero: only what is there).
    async fn pull(
        &self,
        label: &Label,
        class: Class,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError>;

    /// Asks for another lease time. Returns once the server has it: the caller counts from when
    /// it *asked*.
    async fn progress(&self, ack_subject: &str) -> Result<(), QueueError>;

    /// Takes the launch out of the queue, confirmed.
    async fn acknowledge(&self, ack_subject: &str) -> Result<(), QueueError>;

    /// Gives the launch back; it is delivered again after `delay`.
    async fn give_back(&self, ack_subject: &str, delay: Duration) -> Result<(), QueueError>;

    /// Removes the consumers of `label`, of which nothing is left; they are made again by whoever needs them.
    async fn forget(&self, label: &Label) -> Result<(), QueueError>;

    /// Offers a launch, which was delivered here `held` ago, to the node `to`. Whether that has taken it: from then on
    /// it is its business alone. False if nobody answers within `patience`; then both may act, and the log decides.
    async fn offer(
        &self,
        to: NodeId,
        delivery: &Delivery,
        held: Duration,
        patience: Duration,
    ) -> Result<bool, QueueError>;

    /// The launches that are offered to `node` from now on; goes on after lost connections.
    async fn offers(&self, node: NodeId) -> Result<BoxStream<'static, Offer>, QueueError>;

    /// How many launches wait where.
    async fn waiting(&self) -> Result<Vec<Waiting>, QueueError>;
}
