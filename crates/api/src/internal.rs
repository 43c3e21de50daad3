//! Between nodes and gateways, below `/internal/v1/runs/{run_id}`: a node speaks for one run with
//! the token that it drew when it took the run on (`Authorization: Bearer <64 hex digits>`).
//!
//! Refusals are [`Problem`](crate::problem::Problem)s. No part of the public API.

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Ended, FileEntry, Limits, Retries};
use aod_domain::subject::Label;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How often a waiting answer sends an empty line, in seconds: proxies drop silent connections.
pub const WHITE_SPACE_SECONDS: u64 = 15;

/// The media type of the answer to a [`CallRequest`]: one [`CallLine`] a line.
pub const CALL_MEDIA_TYPE: &str = "application/x-ndjson";

/// The body of `POST /internal/v1/runs/{run_id}/calls`: a run calls a capsule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// The attempt that calls; it must have the lease.
    pub attempt: u32,
    /// Title, alias or name, as the caller wrote it.
    pub target: String,
    /// As the caller wrote them; file references are names of `files`.
    pub arguments: Map<String, Value>,
    /// What is in the store already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileEntry>,
    /// The same key joins the same callee.
    pub call_key: Digest,
    /// Running time of the callee at the most; its own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// How often the callee is tried again when it fails.
    #[serde(default, skip_serializing_if = "Retries::is_none")]
    pub retries: Retries,
    /// How long the parts of the callee may take; its defaults unless given.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// Which nodes may take the callee; its own label unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

/// A line of the answer to a [`CallRequest`]; between them there may be empty lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CallLine {
    /// First: the callee's launch is stored.
    Accepted { run_id: RunId },
    /// Last: the callee has its result, whose event has this hash.
    Ended { ended: Box<Ended>, hash: Digest },
}

/// The answer of `GET /internal/v1/runs/{run_id}/targets?attempt=N`: whom the run may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    pub targets: Vec<Target>,
}

/// A capsule that may be called.
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
    /// The attempt that called; it must have the lease.
    pub attempt: u32,
    /// For people.
    pub reason: String,
}
