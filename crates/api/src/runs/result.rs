//! The result of a run.

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorSource;
use aod_domain::id::RunId;
use aod_domain::run::{Exit, LeftOut, RunError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{RunState, SpentView};
use crate::files::FileView;

/// The error of a failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorView {
    /// Error code of the reference; if `source` is `capsule`, it can be a code of the capsule's own.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
    pub retryable: bool,
    /// Where the error must be fixed: `capsule`, `caller` or `platform`.
    #[schema(value_type = String)]
    pub source: ErrorSource,
}

impl From<RunError> for ErrorView {
    fn from(error: RunError) -> Self {
        let RunError {
            code,
            message,
            detail,
            retryable,
            source,
        } = error;
        Self {
            code,
            message,
            detail,
            retryable,
            source,
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    #[schema(value_type = String)]
    pub id: RunId,
    pub state: RunState,
    /// Whether the state is `succeeded`.
    pub success: bool,
    /// Output of the capsule; after a failure, the output that it wrote before, if any.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    pub files: Vec<FileView>,
    /// Output files that the node did not store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOutView>,
    pub error: Option<ErrorView>,
    /// Exit of the container's main process: `code` or `signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub exit: Option<Exit>,
    /// The attempt that ended the run, from 1.
    pub attempt: u32,
    pub timings: TimingsView,
    pub usage: UsageView,
    /// Hash of the `ended` event.
    #[schema(value_type = String)]
    pub hash: Digest,
    /// Sequence of the `ended` event in the log.
    pub sequence: u64,
}

/// Output files that the node did not store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOutView {
    pub count: u64,
    /// Why, for each of the first 20 files: a text that names the file.
    pub reasons: Vec<String>,
}

impl From<LeftOut> for LeftOutView {
    fn from(left_out: LeftOut) -> Self {
        let LeftOut { count, reasons } = left_out;
        Self { count, reasons }
    }
}

/// Times of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimingsView {
    #[schema(value_type = String, format = DateTime)]
    pub requested_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub leased_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub exited_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub ended_at: Timestamp,
    /// Time between start and exit during which at least one call was open.
    pub waiting_milliseconds: u64,
}

/// Resource usage of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    pub input_bytes: u64,
    /// Bytes of files and image that the node of the last attempt fetched from the artifact store.
    #[serde(default)]
    pub fetched_bytes: u64,
    pub output_bytes: u64,
    /// Number of calls.
    pub calls: u32,
    /// Model usage of the last attempt, if it called a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<SpentView>,
    /// Connections to external hosts, if the capsule declares egress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressUsageView>,
}

/// Traffic of a run with external hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressUsageView {
    pub connections: u32,
    /// Rejected connections.
    pub refused: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}
