//! Findings of a check, and the verdict on a bundle.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::PublicKey;
use crate::id::RunId;

/// The kind of a finding, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The archive has wrong bytes.
    Archive,
    /// The archive is too short, or continues after its end.
    Length,
    /// Entries or events are out of order, or occur twice.
    Order,
    /// An event cannot be parsed as its type, or has a wrong subject.
    Event,
    /// An event does not follow from the events before it, or later events name another hash: it is altered.
    Chain,
    /// A run, or an event that another event names, is missing.
    MissingEvent,
    /// The seal is invalid, or does not match the tree.
    Seal,
    /// The seal was made with an unexpected key.
    Signer,
    /// An event was stored after the seal, which does not cover it.
    LateEvent,
    /// The bytes of an artifact do not match its name.
    Artifact,
    /// An event names a missing artifact.
    MissingArtifact,
    /// An event names an artifact that was deleted, according to the cluster; nothing in the bundle proves the
    /// deletion.
    DeletedArtifact,
    /// No event names the artifact.
    UnknownArtifact,
    /// The manifest does not describe the bundle.
    Manifest,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// An entry, an event or an artifact.
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

/// The verdict on a whole bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The bundle is unchanged since it was signed.
    Sealed,
    /// The bundle is consistent but not signed: its author could have made another one.
    Open,
    /// The check has findings.
    Findings,
}

/// The key of a seal, and its time by the clock of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealReport {
    pub public_key: PublicKey,
    /// Whether the key was compared with an expected key.
    pub is_key_compared: bool,
    pub sealed_by: String,
    pub sealed_at: Timestamp,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub verdict: Verdict,
    /// None if the bundle has no readable root.
    pub root: Option<RunId>,
    /// None without a valid seal.
    pub seal: Option<SealReport>,
    pub runs: u64,
    pub events: u64,
    pub artifacts: u64,
    pub findings: Vec<Finding>,
}

impl Report {
    /// For bytes that are not a bundle.
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
