//! Who is there: gateways and nodes that have said so in the last few seconds.

use std::collections::BTreeMap;

use aod_domain::admission::Lack;
use aod_domain::id::{GatewayId, IncarnationId, NodeId};
use aod_domain::placement::{Equipment, Name};
use aod_domain::subject::{Class, Label};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::BoxError;

/// How long an announcement is believed, in seconds.
pub const PRESENCE_SECONDS: u64 = 5;

/// What a program says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and most are the larger one"
)]
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
    /// What it has; nothing is known of a node of an earlier version.
    #[serde(default)]
    pub place: Place,
    /// Why it takes no work although it has room: the engine hangs, the disk is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why it takes no new trees although it is ready: its disk is nearly full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_roots: Option<String>,
}

impl NodeMember {
    /// Whether it takes work of this class, as long as it has slots.
    pub fn takes(&self, class: Class) -> bool {
        let is_kept_out = class == Class::Root && self.no_roots.is_some();
        !self.draining && self.not_ready.is_none() && !is_kept_out
    }
}

/// What a run may look for in a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    #[serde(default, flatten)]
    pub equipment: Equipment,
    /// The devices that no run has now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices_free: BTreeMap<Name, usize>,
    /// Why no root starts there although it has a free slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots_lack: Option<Lack>,
    /// The images that were used last, by [`image_key`], at most [`IMAGES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// Images that one node tells of: a host works with few capsules at a time, and everybody reads this.
pub const IMAGES_MAX: usize = 64;

/// Characters of an image's digest that tell it apart among all images of a cluster.
const IMAGE_KEY_LENGTH: usize = 12;

/// What stands for an image in [`Place::images`].
pub fn image_key(config_digest: &str) -> &str {
    let digits = config_digest.rsplit(':').next().unwrap_or_default();
    digits.get(..IMAGE_KEY_LENGTH).unwrap_or(digits)
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
