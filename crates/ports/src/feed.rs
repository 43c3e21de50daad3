//! Ends of runs, each given to one of all that ask, until one has dealt with it: for what is told of runs
//! once and elsewhere.

use std::time::Duration;

use aod_domain::id::RunId;
use async_trait::async_trait;
use jiff::Timestamp;
use thiserror::Error;

use crate::BoxError;

/// The end of a run, which its receiver has until [`GIVEN_FOR`] is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub run: RunId,
    /// When its result was stored.
    pub stored_at: Timestamp,
    /// What names this delivery to its [`Feed`].
    pub receipt: String,
}

/// How long an end stays with its receiver; then another gets it.
pub const GIVEN_FOR: Duration = Duration::from_secs(30);

/// The broker does not answer: ask again later.
#[derive(Debug, Error)]
#[error("the ends of runs cannot be followed")]
pub struct FeedError(#[source] pub BoxError);

/// Ends of runs from the first time that anybody asked.
#[async_trait]
pub trait Feed: Send + Sync + std::fmt::Debug {
    /// At most `max` ends; none if there was none within some seconds.
    async fn next(&self, max: usize) -> Result<Vec<Given>, FeedError>;

    /// It is dealt with, and nobody gets it again.
    async fn done(&self, given: &Given) -> Result<(), FeedError>;

    /// Somebody is to get it again after `pause`.
    async fn again(&self, given: &Given, pause: Duration) -> Result<(), FeedError>;
}
