//! Ends of runs, each delivered to one receiver at a time until one acknowledges it; for seals and traces.

use std::time::Duration;

use aod_domain::id::RunId;
use async_trait::async_trait;
use jiff::Timestamp;
use thiserror::Error;

use crate::BoxError;

/// The end of a run, assigned to its receiver for [`GIVEN_FOR`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub run: RunId,
    /// When its result was stored.
    pub stored_at: Timestamp,
    /// Identifies this delivery to its [`Feed`].
    pub receipt: String,
}

/// How long an end stays with its receiver before it is redelivered.
pub const GIVEN_FOR: Duration = Duration::from_secs(30);

/// The broker does not answer: retry later.
#[derive(Debug, Error)]
#[error("cannot receive ended runs from the broker")]
pub struct FeedError(#[source] pub BoxError);

/// Ends of runs since the first request.
#[async_trait]
pub trait Feed: Send + Sync + std::fmt::Debug {
    /// At most `max` ends; none if there was none within some seconds.
    async fn next(&self, max: usize) -> Result<Vec<Given>, FeedError>;

    /// Acknowledges an end; it is not redelivered.
    async fn done(&self, given: &Given) -> Result<(), FeedError>;

    /// Requests redelivery after `pause`.
    async fn again(&self, given: &Given, pause: Duration) -> Result<(), FeedError>;
}
