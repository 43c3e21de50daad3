//! Requests from nodes to gateways, below `/internal/v1/runs/{run_id}`; not part of the public API. A node acts for
//! one run with the token that it generated for its lease (`Authorization: Bearer <64 hex digits>`). Errors are
//! [`Problem`](crate::problem::Problem)s.

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Ended, FileEntry, Limits, Retries};
use aod_domain::subject::Pool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Seconds between the empty lines of a waiting answer: proxies close silent connections.
pub const WHITE_SPACE_SECONDS: u64 = 15;

/// The media type of the answer to a [`CallRequest`]: one [`CallLine`] a line.
pub const CALL_MEDIA_TYPE: &str = "application/x-ndjson";

/// The body of `POST /internal/v1/runs/{run_id}/calls`: call of a capsule by a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// The calling attempt; it must hold the lease.
    pub attempt: u32,
    /// Title, alias or name, as the caller wrote it.
    pub target: String,
    /// As the caller wrote them; they refer to files by the names in `files`.
    pub arguments: Map<String, Value>,
    /// Files, already stored as artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileEntry>,
    /// A call with the same key joins the same callee.
    pub call_key: Digest,
    /// Maximum running time of the callee; default: that of its capsule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Maximum retries of the callee after failures.
    #[serde(default, skip_serializing_if = "Retries::is_none")]
    pub retries: Retries,
    /// Limits for the phases of the callee.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// Pool of nodes for the callee; default: the pool of its capsule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
}

/// A line of the answer to a [`CallRequest`]; empty lines may separate these lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CallLine {
    /// First line: the callee's launch is stored.
    Accepted { run_id: RunId },
    /// Last line: the result of the callee and the hash of its event.
    Ended { ended: Box<Ended>, hash: Digest },
}

/// The answer of `GET /internal/v1/runs/{run_id}/targets?attempt=N`: capsules that the run may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    pub targets: Vec<Target>,
}

/// A capsule that the run may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub name: CapsuleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content of its `schema.json`.
    pub schema: Value,
    /// The digest of the packed directory.
    pub content: Digest,
    /// The image id, `sha256:…`.
    pub image: String,
}

/// The body of `POST /internal/v1/runs/{run_id}/calls/{child}/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelCall {
    /// The attempt that called; it must hold the lease.
    pub attempt: u32,
    /// Reason, shown to people.
    pub reason: String,
}
