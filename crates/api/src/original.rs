//! Requests and answers of the original implementation, whose clients work unchanged: always 200
//! with `success`, and `error` a text; only a malformed body is 422.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::runs::ErrorView;

/// The body of `POST /execute`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execute {
    pub capsule: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub input: Map<String, Value>,
    /// Name to `aod:file/<digest>`. Paths of the host, as the original took them, are refused.
    #[serde(default)]
    pub files: Option<BTreeMap<String, String>>,
}

/// The body of `POST /handoff`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Handoff {
    /// Accepted and ignored: the caller is known by its channel.
    #[serde(default)]
    pub session_id: Option<String>,
    pub target: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub args: Map<String, Value>,
}

/// The answer of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Answer {
    pub success: bool,
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Names; their bytes are at `/v1/runs/{session_id}/files/{name}`.
    pub files: Vec<String>,
    /// What went wrong, for people.
    pub error: Option<String>,
    /// The run's id, once there is one.
    pub session_id: Option<String>,
    /// The same error with its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<ErrorView>,
}

/// The answer of `GET /capsules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capsules {
    pub capsules: BTreeMap<String, CapsulePlace>,
}

/// Where a capsule comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsulePlace {
    /// `aod:file/<digest>` of the packed directory.
    pub path: String,
    /// The image id.
    pub image: String,
}

/// The answer of `GET /visualizer/state`: the latest runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerState {
    pub nodes: Vec<VisualizerNode>,
    pub edges: Vec<VisualizerEdge>,
    pub timestamp: String,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerNode {
    pub id: String,
    pub capsule_name: String,
    /// `running`, `completed` or `failed`.
    pub status: String,
    pub start_time: String,
    pub container_id: Option<String>,
    pub parent_session_id: Option<String>,
}

/// A call from one run to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VisualizerEdge {
    pub from: String,
    pub to: String,
    pub caller_capsule: String,
    pub target_capsule: String,
    pub timestamp: String,
    pub success: Option<bool>,
}
