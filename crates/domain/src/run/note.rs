//! Notes on an attempt: numbered and chained, but neither guarded nor awaited; no decision depends on them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::RunId;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// The progress of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Note {
    /// The node fetches image and files.
    #[serde(rename = "dev.aod.run.preparation_started.v1")]
    PreparationStarted(NoteKind),
    /// The image's own command has started.
    #[serde(rename = "dev.aod.run.capsule_started.v1")]
    CapsuleStarted(NoteKind),
    /// The run waits for a callee and holds no slot.
    #[serde(rename = "dev.aod.run.wait_started.v1")]
    WaitStarted(NoteKind),
    /// No call is open any more.
    #[serde(rename = "dev.aod.run.wait_ended.v1")]
    WaitEnded(NoteKind),
    /// The capsule has ended; the node collects its outputs.
    #[serde(rename = "dev.aod.run.collection_started.v1")]
    CollectionStarted(NoteKind),
    /// The capsule made a call that it is not permitted to make, and continues.
    #[serde(rename = "dev.aod.run.call_refused.v1")]
    CallRefused(CallRefused),
    /// A connection to an external host has ended.
    #[serde(rename = "dev.aod.run.egress_closed.v1")]
    EgressClosed(Egress),
    /// The capsule requested a connection that it is not permitted to make, and continues.
    #[serde(rename = "dev.aod.run.egress_refused.v1")]
    EgressRefused(EgressRefused),
}

/// The fields of all notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteKind {
    pub attempt: u32,
    /// Counts the notes of an attempt from 1.
    pub number: u32,
    /// The callee, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee: Option<RunId>,
    /// For people: the image, the number of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The hash of the attempt's previous note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
}

/// A call that was refused for lack of permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRefused {
    #[serde(flatten)]
    pub kind: NoteKind,
    /// As the capsule wrote it, cut to [`REFUSED_TARGET_LENGTH_MAX`].
    pub target: String,
    /// The error code that the capsule received.
    pub code: String,
}

/// A connection to an external host, after its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    #[serde(flatten)]
    pub kind: NoteKind,
    /// As the capsule named it.
    pub host: String,
    pub port: u16,
    /// The address that was checked and connected to.
    pub address: IpAddr,
    /// From the capsule.
    pub bytes_sent: u64,
    /// To the capsule.
    pub bytes_received: u64,
    pub duration_ms: u64,
}

/// A refused connection: by the capsule's list, by the operator, or for its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRefused {
    #[serde(flatten)]
    pub kind: NoteKind,
    /// As the capsule wrote it, cut to [`REFUSED_TARGET_LENGTH_MAX`].
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The error code that the capsule received.
    pub code: String,
}

/// Maximum characters of a stored target.
pub const REFUSED_TARGET_LENGTH_MAX: usize = 128;

impl Note {
    /// The fields of all notes.
    pub const fn kind(&self) -> &NoteKind {
        match self {
            Self::PreparationStarted(kind)
            | Self::CapsuleStarted(kind)
            | Self::WaitStarted(kind)
            | Self::WaitEnded(kind)
            | Self::CollectionStarted(kind) => kind,
            Self::CallRefused(refused) => &refused.kind,
            Self::EgressClosed(egress) => &egress.kind,
            Self::EgressRefused(refused) => &refused.kind,
        }
    }

    /// The last token of the note's subject.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::PreparationStarted(_) => "preparation_started",
            Self::CapsuleStarted(_) => "capsule_started",
            Self::WaitStarted(_) => "wait_started",
            Self::WaitEnded(_) => "wait_ended",
            Self::CollectionStarted(_) => "collection_started",
            Self::CallRefused(_) => "call_refused",
            Self::EgressClosed(_) => "egress_closed",
            Self::EgressRefused(_) => "egress_refused",
        }
    }

    /// The subject of the note on `run` of `tenant`.
    pub fn subject(&self, tenant: &Tenant, run: RunId) -> Subject {
        subject::run_note(tenant, run, self.token())
    }
}
