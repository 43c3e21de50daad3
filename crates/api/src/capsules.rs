//! Capsules as people see them.

use aod_domain::capsule::Resources;
use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A registered capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsuleView {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// SHA-256 of the packed directory: its version.
    #[schema(value_type = String)]
    pub content: Digest,
    /// The image id, `sha256:…`.
    pub image: String,
    /// Where its runs go unless a request says.
    pub label: String,
    pub resources: ResourcesView,
    /// Whom it may call; none when it may call everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoffs: Option<Vec<String>>,
    /// Names of the secrets that it gets, those that it can do without among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Where it may connect to, if the operator permits it too: `host:port`, `*.host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub registered_at: Timestamp,
    pub registered_by: String,
    /// `{"input": …, "output": …}`; in lists left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
}

/// Upper limits of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourcesView {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    pub memory_bytes: u64,
    pub pids: u32,
    pub disk_bytes: u64,
    pub timeout_seconds: u32,
}

impl From<&Resources> for ResourcesView {
    fn from(resources: &Resources) -> Self {
        Self {
            cpu_millis: resources.cpu_millis,
            memory_bytes: resources.memory_bytes,
            pids: resources.pids,
            disk_bytes: resources.disk_bytes,
            timeout_seconds: resources.timeout_seconds,
        }
    }
}

/// All registered capsules, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsuleList {
    pub items: Vec<CapsuleView>,
}

/// The answer of `POST /v1/capsules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredCapsule {
    #[serde(flatten)]
    pub capsule: CapsuleView,
    /// The run that built the image, whose logs are the build's; none if nothing had to be built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<RunId>,
    /// Whether the same content was registered before, so that nothing was done.
    pub is_unchanged: bool,
}
