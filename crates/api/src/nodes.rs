//! Nodes as people see them.

use std::collections::BTreeMap;

use aod_domain::id::NodeId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node that has said in the last few seconds that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    #[schema(value_type = String)]
    pub id: NodeId,
    pub host: String,
    pub version: String,
    pub labels: Vec<String>,
    pub slots: usize,
    /// Runs that compute.
    pub running: usize,
    /// Runs that wait for a callee.
    pub waiting: usize,
    pub containers: usize,
    pub draining: bool,
    /// What runs may require of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DevicesView>,
    /// Its processors, in thousandths, and its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Why it takes no work although it has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why it takes no new trees although it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_roots: Option<String>,
}

/// The devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DevicesView {
    pub count: usize,
    /// Those that no run has now.
    pub free: usize,
}

/// All nodes that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    pub items: Vec<NodeView>,
}
