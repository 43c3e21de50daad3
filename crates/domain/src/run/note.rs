//! Notes on an attempt: numbered and chained, not guarded, not awaited; nothing depends on them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::RunId;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// What an attempt has come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Note {
    /// Image and files are being brought to the node.
    #[serde(rename = "dev.aod.run.preparing.v1")]
    Preparing(NoteKind),
    /// The image's own command has started.
    #[serde(rename = "dev.aod.run.running.v1")]
    Running(NoteKind),
    /// It waits for a callee and holds no slot.
    #[serde(rename = "dev.aod.run.waiting.v1")]
    Waiting(NoteKind),
    /// No call is open any more.
    #[serde(rename = "dev.aod.run.resumed.v1")]
    Resumed(NoteKind),
    /// The capsule has ended; its outputs are being collected.
    #[serde(rename = "dev.aod.run.collecting.v1")]
    Collecting(NoteKind),
    /// It asked for a call that it may not make. It goes on.
    #[serde(rename = "dev.aod.run.call_refused.v1")]
    CallRefused(CallRefused),
    /// A connection to a host outside has ended.
    #[serde(rename = "dev.aod.run.egress.v1")]
    Egress(Egress),
    /// It asked for a connection that it may not have. It goes on.
    #[serde(rename = "dev.aod.run.egress_refused.v1")]
    EgressRefused(EgressRefused),
}

/// What all notes hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteKind {
    pub attempt: u32,
    /// Counts the notes of an attempt from 1.
    pub number: u32,
    /// The callee, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee: Option<RunId>,
    /// For people: which image, how many files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The hash of the attempt's note before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
}

/// A call that was refused for want of a permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRefused {
    #[serde(flatten)]
    pub kind: NoteKind,
    /// As the capsule wrote it, cut to [`REFUSED_TARGET_LENGTH_MAX`].
    pub target: String,
    /// The code of the error that it got.
    pub code: String,
}

/// A connection to a host outside, once it has ended.
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
    /// For the capsule.
    pub bytes_received: u64,
    pub duration_ms: u64,
}

/// A connection that was refused: by the capsule's list, by the operator, or for its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRefused {
    #[serde(flatten)]
    pub kind: NoteKind,
    /// As the capsule wrote it, cut to [`REFUSED_TARGET_LENGTH_MAX`].
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The code of the error that it got.
    pub code: String,
}

/// Characters of a target that are kept.
pub const REFUSED_TARGET_LENGTH_MAX: usize = 128;

impl Note {
    /// What all notes hold.
    pub const fn kind(&self) -> &NoteKind {
        match self {
            Self::Preparing(kind)
            | Self::Running(kind)
            | Self::Waiting(kind)
            | Self::Resumed(kind)
            | Self::Collecting(kind) => kind,
            Self::CallRefused(refused) => &refused.kind,
            Self::Egress(egress) => &egress.kind,
            Self::EgressRefused(refused) => &refused.kind,
        }
    }

    /// The last token of the note's subject.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Preparing(_) => "preparing",
            Self::Running(_) => "running",
            Self::Waiting(_) => "waiting",
            Self::Resumed(_) => "resumed",
            Self::Collecting(_) => "collecting",
            Self::CallRefused(_) => "call_refused",
            Self::Egress(_) => "egress",
            Self::EgressRefused(_) => "egress_refused",
        }
    }

    /// Where the note on `run`, which is `tenant`'s, is stored.
    pub fn subject(&self, tenant: &Tenant, run: RunId) -> Subject {
        subject::run_note(tenant, run, self.token())
    }
}
