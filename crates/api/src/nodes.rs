//! Types of `/v1/nodes`.

use std::collections::BTreeMap;

use aod_domain::id::NodeId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node that has announced itself in the last five seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    #[schema(value_type = String)]
    pub id: NodeId,
    pub host: String,
    pub version: String,
    pub pools: Vec<String>,
    pub slots: usize,
    /// Running capsules.
    pub running: usize,
    /// Runs that wait for callees.
    pub waiting: usize,
    pub containers: usize,
    pub draining: bool,
    /// Attributes that runs can require.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DevicesView>,
    /// Processors of the machine, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Reason why the node takes no work although it has free capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Reason why the node starts no new trees although it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_roots: Option<String>,
}

/// The devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DevicesView {
    pub count: usize,
    /// Devices that no run holds.
    pub free: usize,
}

/// All live nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    pub items: Vec<NodeView>,
}
