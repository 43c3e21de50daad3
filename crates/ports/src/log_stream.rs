//! The live tail of containers' output: bounded, unsynced; complete logs are artifacts.

use aod_domain::id::RunId;
use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::BoxError;

/// Which of its outputs a capsule wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    Stdout,
    Stderr,
}

/// A line of a capsule's output (or a part of a line that is too long), control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub attempt: u32,
    /// Counts the lines of an attempt from 1.
    pub number: u64,
    pub at: Timestamp,
    pub output: Output,
    pub text: String,
}

/// The broker did not take or give the lines; what runs goes on without.
#[derive(Debug, Error)]
#[error("the stream of logs does not answer")]
pub struct LogStreamError(#[source] pub BoxError);

/// The stream of logs.
#[async_trait]
pub trait LogStream: Send + Sync + std::fmt::Debug {
    /// Hands lines over without waiting for the disk.
    async fn publish(&self, run: RunId, lines: &[LogLine]) -> Result<(), LogStreamError>;

    /// The lines of `run` from the first that is still kept, then live, for as long as it is read.
    /// Each comes with its place in the stream, to resume after.
    async fn follow(
        &self,
        run: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError>;
}
