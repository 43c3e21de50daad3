//! Events and log lines as people see them.

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An event of the log. Over SSE its sequence is the `id:` and its type the `event:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Its place in the log.
    pub sequence: u64,
    /// The id of the event.
    pub id: String,
    /// `dev.aod.run.launch.v1` and so on.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// Who wrote it.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// SHA-256 of its stored bytes.
    #[schema(value_type = String)]
    pub hash: Digest,
    /// The hash of the event before it in its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub previous: Option<Digest>,
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The events of a run so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub items: Vec<EventView>,
}

/// Events of the whole log that were asked for, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelectedEvents {
    pub items: Vec<EventView>,
    /// For `after=` of the next page, also if this one has no items: a request looks at so many events and
    /// no more. None where the log, or the time that was asked for, ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The sequence of the log up to which everything that was asked for is on this page or before it.
    pub as_of: u64,
    /// Events that were read for this page.
    pub looked_at: usize,
}

/// Which of its outputs a capsule wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogOutput {
    Stdout,
    Stderr,
}

/// A line of a capsule's output. Over SSE its `id:` is `<attempt>.<number>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLineView {
    pub attempt: u32,
    /// Counts the lines of an attempt from 1.
    pub number: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub output: LogOutput,
    /// Control characters escaped.
    pub text: String,
}

/// The lines of a run so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    pub items: Vec<LogLineView>,
    /// Whether more may come.
    pub is_live: bool,
}
