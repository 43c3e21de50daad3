//! Presence: gateways and nodes that have announced themselves in the last few seconds.

use std::collections::BTreeMap;

use aod_domain::admission::Lack;
use aod_domain::id::{GatewayId, IncarnationId, NodeId};
use aod_domain::placement::{Equipment, Name};
use aod_domain::subject::{Class, Pool};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::BoxError;

/// How long an announcement is valid, in seconds.
pub const PRESENCE_SECONDS: u64 = 5;

/// A program's announcement.
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
    /// Its URL for nodes.
    pub url: String,
    pub version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMember {
    pub node: NodeId,
    pub incarnation: IncarnationId,
    pub host: String,
    pub version: String,
    pub pools: Vec<Pool>,
    pub slots: usize,
    /// Runs that compute.
    pub running: usize,
    /// Runs that wait for a callee.
    pub waiting: usize,
    pub containers: usize,
    pub draining: bool,
    /// What it offers to runs; unknown for nodes of an earlier version.
    #[serde(default)]
    pub place: Place,
    /// Why it takes no work although it has free capacity: the engine hangs, the disk is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why it takes no new trees although it is ready: its disk is nearly full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_roots: Option<String>,
}

impl NodeMember {
    /// Whether it takes work of this class while it has slots.
    pub fn takes(&self, class: Class) -> bool {
        let is_kept_out = class == Class::Root && self.no_roots.is_some();
        !self.draining && self.not_ready.is_none() && !is_kept_out
    }
}

/// Properties of a node that place runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    #[serde(default, flatten)]
    pub equipment: Equipment,
    /// The free devices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices_free: BTreeMap<Name, usize>,
    /// Why no root starts there although a slot is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots_lack: Option<Lack>,
    /// The most recently used images, by [`image_key`], at most [`IMAGES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// Images that one node announces: a host works with few capsules at a time, and every program reads this.
pub const IMAGES_MAX: usize = 64;

/// Characters of an image's digest that identify it within a cluster.
const IMAGE_KEY_LENGTH: usize = 12;

/// The short form of an image in [`Place::images`].
pub fn image_key(config_digest: &str) -> &str {
    let digits = config_digest.rsplit(':').next().unwrap_or_default();
    digits.get(..IMAGE_KEY_LENGTH).unwrap_or(digits)
}

/// The broker does not answer; the last known presence stays in effect.
#[derive(Debug, Error)]
#[error("cannot announce or read presence")]
pub struct PresenceError(#[source] pub BoxError);

/// Presence, held in the broker's memory for [`PRESENCE_SECONDS`].
#[async_trait]
pub trait Presence: Send + Sync + std::fmt::Debug {
    /// To be repeated well within [`PRESENCE_SECONDS`].
    async fn announce(&self, member: &Member) -> Result<(), PresenceError>;

    /// At an orderly end.
    async fn leave(&self, member: &Member) -> Result<(), PresenceError>;

    /// All members announced before this call that have not left.
    async fn members(&self) -> Result<Vec<Member>, PresenceError>;
}
