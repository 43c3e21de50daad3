//! Types of events and log lines.

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An event of the log. Over SSE, `id:` is its sequence and `event:` its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Sequence in the log.
    pub sequence: u64,
    /// The id of the event.
    pub id: String,
    /// CloudEvents type, for example `dev.aod.run.launched.v1`.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// The program that wrote the event: `/node/node_…` or `/gateway/gateway_…`.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// SHA-256 of the stored bytes.
    #[schema(value_type = String)]
    pub hash: Digest,
    /// Hash of the previous event in the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub previous: Option<Digest>,
    #[schema(value_type = Object)]
    pub data: Value,
}

/// A page of the events of a run so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub items: Vec<EventView>,
    /// Value of `after=` for the next page; missing on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Events of the whole log that match a query, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelectedEvents {
    pub items: Vec<EventView>,
    /// Value of `after=` for the next page; missing at the end of the log or of the requested period. A page without
    /// items can have a next page, because a request reads a limited number of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Sequence of the log up to which this page and the pages before it are complete.
    pub as_of: u64,
    /// Number of events that the gateway read for this page.
    pub looked_at: usize,
}

/// Output stream of a capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogOutput {
    Stdout,
    Stderr,
}

/// A line of a capsule's output. Over SSE, `id:` is `<attempt>.<number>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLineView {
    pub attempt: u32,
    /// Number of the line in its attempt, from 1.
    pub number: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Step of a task that wrote the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub output: LogOutput,
    /// Text of the line, with control characters escaped.
    pub text: String,
}

/// A page of the lines of a run so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    pub items: Vec<LogLineView>,
    /// Whether more lines can follow.
    pub is_live: bool,
    /// Value of `after=` for the next page; missing on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
