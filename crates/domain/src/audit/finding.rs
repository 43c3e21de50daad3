//! What does not hold of a bundle, and what is to be thought of it as a whole.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::PublicKey;
use crate::id::RunId;

/// What is wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Bytes of the archive are not what a bundle has there.
    Archive,
    /// The archive ends too early, or goes on after its end.
    Length,
    /// Entries or events do not stand in their order, or come twice.
    Order,
    /// An event cannot be read as the type that it says it is, or stands under a wrong subject.
    Event,
    /// An event does not follow from those before it.
    Chain,
    /// A run, or an event that another names, is not there.
    MissingEvent,
    /// The seal does not prove what it should.
    Seal,
    /// The seal was made with another key than was expected.
    Signer,
    /// An event was stored after the seal, which says nothing of it.
    LateEvent,
    /// An artifact has other bytes than its name says.
    Artifact,
    /// An event names an artifact that is not there.
    MissingArtifact,
    /// An event names an artifact that the cluster says was collected; nothing in the bundle proves that.
    CollectedArtifact,
    /// No event names the artifact.
    UnknownArtifact,
    /// The manifest does not describe the bundle.
    Manifest,
}

/// One thing that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// Where: an entry, an event, an artifact.
    pub place: String,
    pub found: String,
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            found,
            expected,
            ..
        } = self;
        write!(formatter, "{place}: found {found}, expected {expected}")
    }
}

/// What is to be thought of a bundle as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All of it is as it was when it was signed.
    Sealed,
    /// Nobody has signed it: it fits together, and whoever made it could have made another.
    Open,
    /// There are findings.
    Findings,
}

/// Who sealed a tree, and when by the clock of that gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealReport {
    pub public_key: PublicKey,
    /// Whether the key was compared with one that was known before.
    pub is_key_compared: bool,
    pub sealed_by: String,
    pub sealed_at: Timestamp,
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub verdict: Verdict,
    /// None where the bundle does not say.
    pub root: Option<RunId>,
    /// None without a seal whose signature holds.
    pub seal: Option<SealReport>,
    pub runs: u64,
    pub events: u64,
    pub artifacts: u64,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Of bytes that are no bundle at all.
    pub fn unreadable(findings: Vec<Finding>) -> Self {
        Self {
            verdict: Verdict::Findings,
            root: None,
            seal: None,
            runs: 0,
            events: 0,
            artifacts: 0,
            findings,
        }
    }
}
