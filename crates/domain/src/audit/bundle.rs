//! The entries of a bundle, and the contents of AOD's own entries.
//!
//! ```text
//! bundle.json             the format, and the root of the tree
//! events/000001.jsonl     events before the seal (in an open tree, all), in the order of the log
//! seal.json               the seal, as stored; an open tree has none
//! late/000001.jsonl       events after the seal
//! artifacts/<sha256>      files, payloads, outputs, logs and schemas, in the order of their digests
//! manifest.json           what the bundle contains, and what is missing
//! ```

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::digest::Digest;
use crate::id::RunId;

/// The format that this module reads and writes.
pub const FORMAT: &str = "aod.bundle.v1";

/// Events in each entry, except the last one: a reader holds at most 16 MiB at a time.
pub const CHUNK_EVENTS: usize = 500;

/// Directories of numbered entries.
const EVENTS: &str = "events";
const LATE: &str = "late";
const ARTIFACTS: &str = "artifacts";

/// The entries of a bundle, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryName {
    Opening,
    /// Counted from 1.
    Events(u32),
    Seal,
    /// Counted from 1.
    Late(u32),
    Artifact(Digest),
    Manifest,
}

impl fmt::Display for EntryName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => formatter.write_str("bundle.json"),
            Self::Events(number) => write!(formatter, "{EVENTS}/{number:06}.jsonl"),
            Self::Seal => formatter.write_str("seal.json"),
            Self::Late(number) => write!(formatter, "{LATE}/{number:06}.jsonl"),
            Self::Artifact(digest) => write!(formatter, "{ARTIFACTS}/{digest}"),
            Self::Manifest => formatter.write_str("manifest.json"),
        }
    }
}

impl EntryName {
    /// Parses exactly the output of [`fmt::Display`].
    pub fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.strip_suffix(".jsonl")?.parse().ok();
        let name = match text.split_once('/') {
            None if text == "bundle.json" => Self::Opening,
            None if text == "seal.json" => Self::Seal,
            None if text == "manifest.json" => Self::Manifest,
            Some((EVENTS, rest)) => Self::Events(number(rest)?),
            Some((LATE, rest)) => Self::Late(number(rest)?),
            Some((ARTIFACTS, rest)) => Self::Artifact(rest.parse().ok()?),
            _ => return None,
        };
        (name.to_string() == text).then_some(name)
    }
}

/// The first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    pub format: String,
    pub root: RunId,
}

impl Opening {
    pub fn new(root: RunId) -> Self {
        Self {
            format: FORMAT.to_owned(),
            root,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        line_of(self)
    }
}

/// Stored bytes that are not one line of JSON, so no AOD program wrote them as an event.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the event {0} is not JSON on one line")]
pub struct NotAnEvent(pub u64);

/// An event with its position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub sequence: u64,
    pub subject: String,
    /// As stored.
    pub bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineText<'a> {
    sequence: u64,
    subject: Cow<'a, str>,
    #[serde(borrow)]
    event: &'a RawValue,
}

impl Line {
    /// A line with its end.
    ///
    /// # Errors
    /// [`NotAnEvent`]; the log contains no such bytes.
    pub fn encode(&self) -> Result<Vec<u8>, NotAnEvent> {
        let not_an_event = || NotAnEvent(self.sequence);
        let event: &RawValue = serde_json::from_slice(&self.bytes).map_err(|_| not_an_event())?;
        if event.get().as_bytes() != self.bytes || self.bytes.contains(&b'\n') {
            return Err(not_an_event());
        }
        Ok(line_of(&LineText {
            sequence: self.sequence,
            subject: Cow::Borrowed(&self.subject),
            event,
        }))
    }

    /// Parses a line without its end; none for anything but the output of [`Line::encode`].
    pub fn read(text: &[u8]) -> Option<Self> {
        let read: LineText<'_> = serde_json::from_slice(text).ok()?;
        let line = Self {
            sequence: read.sequence,
            subject: read.subject.into_owned(),
            bytes: read.event.get().as_bytes().to_vec(),
        };
        let written = line.encode().ok()?;
        (written.strip_suffix(b"\n") == Some(text)).then_some(line)
    }
}

/// An artifact of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEntry {
    pub digest: Digest,
    /// None if the store no longer has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When the missing artifact was deleted, according to the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// The last entry: it depends on all entries before it, and lists what is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Events before the seal.
    pub events: u64,
    pub is_sealed: bool,
    /// Events after the seal.
    pub late: u64,
    /// In the order of their digests.
    pub artifacts: Vec<ArtifactEntry>,
    /// The hash of all bytes of the archive before this entry.
    pub before: Digest,
}

impl Manifest {
    pub fn encode(&self) -> Vec<u8> {
        line_of(self)
    }
}

fn line_of(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("plain data with text keys");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_sort_in_order() {
        let names = [
            EntryName::Opening,
            EntryName::Events(1),
            EntryName::Events(20),
            EntryName::Seal,
            EntryName::Late(1),
            EntryName::Artifact(Digest::of("a file")),
            EntryName::Manifest,
        ];
        assert!(names.is_sorted());
        for name in names {
            assert_eq!(EntryName::read(&name.to_string()), Some(name));
        }
        for text in ["", "events/1.jsonl", "events/0000001.jsonl", "late/", "a/b"] {
            assert_eq!(EntryName::read(text), None, "{text}");
        }
    }

    #[test]
    fn line_keeps_the_exact_bytes_of_its_event() {
        let line = Line {
            sequence: 7,
            subject: "ev.a".into(),
            bytes: br#"{"b":1, "a":"\u00fc"}"#.to_vec(),
        };
        let text = line.encode().expect("an event");
        let text = text.strip_suffix(b"\n").expect("the end of the line");
        assert_eq!(Line::read(text), Some(line));
        for other in [
            &br#"{"sequence":7, "subject":"ev.a","event":{}}"#[..],
            br#"{"subject":"ev.a","sequence":7,"event":{}}"#,
            br#"{"sequence":7,"subject":"ev.\u0061","event":{}}"#,
            br#"{"sequence":7,"subject":"ev.a","event":{},"more":1}"#,
            br#"{"sequence":7,"subject":"ev.a","event":{}} "#,
        ] {
            assert_eq!(Line::read(other), None);
        }
    }

    #[test]
    fn bytes_that_are_not_an_event_are_not_written() {
        for bytes in [&b"no json"[..], b" {}", b"{}\n", b"{\n}", b"\xff"] {
            let line = Line {
                sequence: 1,
                subject: String::new(),
                bytes: bytes.to_vec(),
            };
            assert_eq!(line.encode(), Err(NotAnEvent(1)));
        }
    }
}
