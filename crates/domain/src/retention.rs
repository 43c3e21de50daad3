//! How long artifacts are kept after the trees that name them have ended, and which may be deleted now.
//!
//! ```text
//! policy   policies of operators, and holds
//! survey   the whole log against all artifacts of a store: what may be deleted, and why the rest stays
//! ```
//!
//! This module deletes nothing. A garbage collector lists the store, then reads the log from its first event to its
//! end, and then computes the plan. The survey sees artifacts that are listed first and named later; an artifact that
//! is put again later is young, so its store rejects the deletion.

mod policy;
mod survey;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

pub use self::policy::{
    CAPSULES_MAX, Class, Event, HOLDS_MAX, Hold, KEEP_SECONDS_MAX, Keep, LABELS_MAX, MalformedKeep,
    POLICIES_MAX, Policy, Rejection, Retention, TENANTS_MAX, check,
};
pub use self::survey::{Collectable, Kept, Plan, Storage, Survey, Tally};
use crate::digest::Digest;
pub use crate::flow::RuleName as PolicyName;
use crate::subject::{self, Subject};

/// Younger artifacts always stay: an artifact is durable before the event that names it, so an unnamed artifact may be
/// about to be named. Uploads to a broker may take twelve hours; nothing else takes as long.
pub const UNNAMED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Maximum artifacts that one event records as deleted, so that the event stays below the maximum size.
pub const DELETED_PER_EVENT: usize = 400;

/// A change of artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum ArtifactEvent {
    /// The artifacts are about to be deleted; an artifact that is put again afterwards exists again.
    #[serde(rename = "dev.aod.artifact.deleted.v1")]
    Deleted {
        artifacts: Vec<Digest>,
        size_bytes: u64,
        requested_by: String,
    },
}

impl ArtifactEvent {
    /// The subject of the event. All artifacts of one event have the same first digit, so a reader finds one artifact
    /// without reading the events of all.
    pub fn subject(&self) -> Subject {
        let Self::Deleted { artifacts, .. } = self;
        subject::artifact_event(artifacts.first(), "deleted")
    }
}

/// The deletions, in batches for one event each.
pub fn batches(collectable: &[Collectable]) -> impl Iterator<Item = &[Collectable]> {
    let of_one_digit = |one: &Collectable, other: &Collectable| {
        subject::first_digit(&one.digest) == subject::first_digit(&other.digest)
    };
    collectable
        .chunk_by(of_one_digit)
        .flat_map(|shard| shard.chunks(DELETED_PER_EVENT))
}
