//! The live tail of container output: bounded and unsynced; complete logs are artifacts.

use aod_domain::id::RunId;
use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::BoxError;

/// The output that a capsule wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    Stdout,
    Stderr,
}

/// A line of a capsule's output, or a part of an overlong line, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub attempt: u32,
    /// Number of the line in its attempt, from 1.
    pub number: u64,
    pub at: Timestamp,
    /// The step of a task that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub output: Output,
    pub text: String,
}

/// The broker did not accept or return the lines; runs continue without them.
#[derive(Debug, Error)]
#[error("the stream of live logs does not respond")]
pub struct LogStreamError(#[source] pub BoxError);

/// The stream of logs.
#[async_trait]
pub trait LogStream: Send + Sync + std::fmt::Debug {
    /// Sends lines without waiting for the disk.
    async fn publish(&self, run: RunId, lines: &[LogLine]) -> Result<(), LogStreamError>;

    /// The stored lines of `run` from the oldest, then live ones, while the caller reads. Each has its position in the
    /// stream, to resume after it.
    async fn follow(
        &self,
        run: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError>;
}
