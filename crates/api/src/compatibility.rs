//! Requests and answers that are compatible with clients of agent-on-demand. The status is 200 with `success`, and
//! `error` is a text; only a malformed body gets 422.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::runs::ErrorView;
use crate::strict::{Fields, Result};

/// Maximum number of files in a request: an event cannot contain more.
const FILES_MAX: usize = 1_000;

/// The body of `POST /execute`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execute {
    pub capsule: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub input: Map<String, Value>,
    /// `aod:file/<digest>` by file name. The gateway rejects paths on the host, which agent-on-demand accepted.
    #[serde(default)]
    pub files: Option<BTreeMap<String, String>>,
}

impl Execute {
    /// Reads the body; ignores unknown fields.
    pub fn read(mut fields: Fields) -> Result<Self> {
        let execute = Self {
            capsule: fields.required_text("capsule"),
            input: fields.object("input").unwrap_or_default(),
            files: Some(fields.texts("files", FILES_MAX, usize::MAX)),
        };
        fields.finish_known()?;
        Ok(execute)
    }
}

/// The body of `POST /handoff`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Handoff {
    /// Accepted and ignored: the channel identifies the caller.
    #[serde(default)]
    pub session_id: Option<String>,
    pub target: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub args: Map<String, Value>,
}

impl Handoff {
    /// Reads the body; ignores unknown fields.
    pub fn read(mut fields: Fields) -> Result<Self> {
        let handoff = Self {
            session_id: None,
            target: fields.required_text("target"),
            args: fields.object("args").unwrap_or_default(),
        };
        fields.finish_known()?;
        Ok(handoff)
    }
}

/// The answer of `POST /execute` and `POST /handoff`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Answer {
    pub success: bool,
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// File names; `/v1/runs/{session_id}/files/{name}` serves the content.
    pub files: Vec<String>,
    /// The error message, and the last lines of output of a capsule that failed.
    pub error: Option<String>,
    /// The id of the run, if a run exists.
    pub session_id: Option<String>,
    /// The error with its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<ErrorView>,
}

/// The answer of `GET /capsules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capsules {
    pub capsules: BTreeMap<String, CapsulePlace>,
}

/// Origin of a capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsulePlace {
    /// `aod:file/<digest>` of the packed directory.
    pub path: String,
    /// The image id.
    pub image: String,
}

/// The answer of `GET /visualizer/state`: running runs, and runs that ended recently. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerState {
    pub nodes: Vec<VisualizerNode>,
    pub edges: Vec<VisualizerEdge>,
    pub timestamp: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerNode {
    /// The id of the run.
    pub id: String,
    /// The same as `id`.
    pub session_id: String,
    pub capsule_name: String,
    /// `running`, `completed` or `failed`.
    pub status: String,
    pub start_time: f64,
    /// Always `null`.
    pub container_id: Option<String>,
    pub parent_session_id: Option<String>,
}

/// A call from one run to another that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerEdge {
    pub from: String,
    pub to: String,
    pub caller_capsule: String,
    pub target_capsule: String,
    pub timestamp: f64,
    pub success: bool,
}
