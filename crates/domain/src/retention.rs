//! How long artifacts are kept once the trees that name them have ended, and what may go now.
//!
//! ```text
//! policy   what operators lay down, and the trees that are not to be touched
//! survey   the whole log against all that a store has: what may go, and why the rest stays
//! ```
//!
//! Nothing here removes anything: a collector lists the store, then reads the log from its first event to its
//! end, and only then asks for the plan. What is listed first and named later is seen; what is put again later
//! is young again, and its store leaves it.

mod policy;
mod survey;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

pub use self::policy::{
    CAPSULES_MAX, Class, Event, HOLDS_MAX, Hold, KEEP_SECONDS_MAX, Keep, LABELS_MAX, MalformedKeep,
    POLICIES_MAX, Policy, REASON_LENGTH_MAX, Retention, TENANTS_MAX,
};
pub use self::survey::{Collectable, Kept, Plan, Survey, Tally};
use crate::digest::Digest;
pub use crate::flow::RuleName as PolicyName;
use crate::subject::{self, Subject};

/// Younger artifacts stay whatever names them: an artifact is durable before the event that names it, so one
/// that nothing names may be about to be named. Uploads to a broker may take twelve hours, and nothing else
/// takes as long.
pub const UNNAMED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Artifacts that one event says were collected: it stays below what an event may hold.
pub const COLLECTED_PER_EVENT: usize = 400;

/// What becomes of artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum ArtifactEvent {
    /// They are about to be removed; what is put again afterwards is there again.
    #[serde(rename = "dev.aod.artifact.collected.v1")]
    Collected {
        artifacts: Vec<Digest>,
        size_bytes: u64,
        requested_by: String,
    },
}

impl ArtifactEvent {
    /// Where it is stored; all that one event names has the same first digit, so that one artifact is found
    /// without reading about all.
    pub fn subject(&self) -> Subject {
        let Self::Collected { artifacts, .. } = self;
        subject::artifact_event(artifacts.first(), "collected")
    }
}

/// What goes, in the pieces that one event each tells of.
pub fn batches(collectable: &[Collectable]) -> impl Iterator<Item = &[Collectable]> {
    let of_one_digit = |one: &Collectable, other: &Collectable| {
        subject::first_digit(&one.digest) == subject::first_digit(&other.digest)
    };
    collectable
        .chunk_by(of_one_digit)
        .flat_map(|shard| shard.chunks(COLLECTED_PER_EVENT))
}
