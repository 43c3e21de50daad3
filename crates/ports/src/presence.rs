//! Who is there: gateways and nodes that have said so in the last few seconds.

use aod_domain::id::{GatewayId, IncarnationId, NodeId};
use aod_domain::subject::Label;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::BoxError;

/// How long an announcement is believed, in seconds.
pub const PRESENCE_SECONDS: u64 = 5;

/// What a program says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Member {
    Gateway(GatewayMember),
    Node(NodeMember),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayMember {
    pub gateway: GatewayId,
    /// Where nodes reach it.
    pub url: String,
    pub version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMember {
    pub node: NodeId,
    pub incarnation: IncarnationId,
    pub host: String,
    pub version: String,
    pub labels: Vec<Label>,
    pub slots: usize,
    /// Runs that compute.
    pub running: usize,
    /// Runs that wait for a callee.
    pub waiting: usize,
    pub containers: usize,
    pub draining: bool,
    /// Why it takes no work although it has room: the engine hangs, the disk is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why it takes no new trees although it is ready: its disk is nearly full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_roots: Option<String>,
}

/// The broker does not answer; what was known stays so until it does.
#[derive(Debug, Error)]
#[error("presence cannot be told or asked")]
pub struct PresenceError(#[source] pub BoxError);

/// Presence, held in the broker's memory for [`PRESENCE_SECONDS`].
#[async_trait]
pub trait Presence: Send + Sync + std::fmt::Debug {
    /// To be repeated well within [`PRESENCE_SECONDS`].
    async fn announce(&self, member: &Member) -> Result<(), PresenceError>;

    /// At an orderly end.
    async fn leave(&self, member: &Member) -> Result<(), PresenceError>;

    /// All that were announced, and have not left, before this was asked.
    async fn members(&self) -> Result<Vec<Member>, PresenceError>;
}
