//! Events of the log: CloudEvents in JSON, chained within a run by the hash of their bytes.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::digest::Digest;
use crate::id::EventId;
use crate::writer::is_kept_under;

/// Largest event, in bytes: larger content becomes an artifact, and the event contains its digest.
pub const EVENT_SIZE_BYTES_MAX: usize = 32 * 1024;

/// The version of CloudEvents that the envelope follows.
const SPEC_VERSION: &str = "1.0";

/// The metadata of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub id: EventId,
    /// The program that wrote it: `/node/node_…`, `/gateway/gateway_…`.
    pub source: String,
    /// Time of the decision, by the writer's clock.
    pub time: Timestamp,
}

/// An event in its envelope: the JSON form of CloudEvents 1.0 with the extension `previoushash`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloudEvent<E> {
    specversion: String,
    pub id: EventId,
    pub source: String,
    /// The object of the event: `run_…`, `capsule/…`, `node_…`.
    pub subject: String,
    pub time: Timestamp,
    datacontenttype: String,
    /// The hash of the stored bytes of the previous event in the chain; the first event has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previoushash: Option<Digest>,
    /// Tagged by CloudEvents' `type`, with its fields in `data`.
    #[serde(flatten)]
    pub event: E,
}

/// Bytes that are not an event of the expected type.
#[derive(Debug, Error)]
#[error("an event cannot be read")]
pub struct MalformedEvent(#[source] serde_json::Error);

/// An event exceeds [`EVENT_SIZE_BYTES_MAX`]: a bug of the writer, which should have stored parts of it as artifacts.
#[derive(Debug, Error)]
#[error("an event of {size_bytes} bytes is larger than {EVENT_SIZE_BYTES_MAX}")]
pub struct EventTooLarge {
    size_bytes: usize,
}

impl<E: Serialize> CloudEvent<E> {
    pub fn new(header: Header, subject: String, previous: Option<Digest>, event: E) -> Self {
        Self {
            specversion: SPEC_VERSION.into(),
            id: header.id,
            source: header.source,
            subject,
            time: header.time,
            datacontenttype: "application/json".into(),
            previoushash: previous,
            event,
        }
    }

    /// The bytes to store and to hash.
    pub fn encode(&self) -> Result<Vec<u8>, EventTooLarge> {
        let bytes = serde_json::to_vec(self).expect("events are plain data with text keys");
        if bytes.len() > EVENT_SIZE_BYTES_MAX {
            return Err(EventTooLarge {
                size_bytes: bytes.len(),
            });
        }
        Ok(bytes)
    }
}

/// The envelope with its event unparsed: parsing both together, as [`CloudEvent`] would, copies every field first.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    specversion: Cow<'a, str>,
    id: EventId,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    subject: Cow<'a, str>,
    time: Timestamp,
    #[serde(borrow)]
    datacontenttype: Cow<'a, str>,
    #[serde(default)]
    previoushash: Option<Digest>,
    #[serde(rename = "type", borrow)]
    kind: &'a RawValue,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, MalformedEvent> {
        serde_json::from_slice(bytes).map_err(MalformedEvent)
    }

    fn event<E: DeserializeOwned>(&self) -> Result<E, MalformedEvent> {
        let fields = [("type", self.kind), ("data", self.data)];
        E::deserialize(MapDeserializer::new(fields.into_iter())).map_err(MalformedEvent)
    }
}

/// The metadata of the stored `bytes` of any event.
pub fn header_of(bytes: &[u8]) -> Result<Header, MalformedEvent> {
    let envelope = Envelope::read(bytes)?;
    Ok(Header {
        id: envelope.id,
        source: envelope.source.into_owned(),
        time: envelope.time,
    })
}

impl<E: DeserializeOwned> CloudEvent<E> {
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedEvent> {
        let envelope = Envelope::read(bytes)?;
        Ok(Self {
            event: envelope.event()?,
            specversion: envelope.specversion.into_owned(),
            id: envelope.id,
            source: envelope.source.into_owned(),
            subject: envelope.subject.into_owned(),
            time: envelope.time,
            datacontenttype: envelope.datacontenttype.into_owned(),
            previoushash: envelope.previoushash,
        })
    }
}

/// An event with its position in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded<E> {
    /// Its position in the log, from 1.
    pub sequence: u64,
    /// The hash of its stored bytes, which the next event of its chain contains.
    pub hash: Digest,
    pub id: EventId,
    pub time: Timestamp,
    pub previous: Option<Digest>,
    pub event: E,
}

impl<E: DeserializeOwned> Recorded<E> {
    /// Parses the `bytes` stored under `subject` at `sequence`, of a type that belongs there, because rights to write
    /// depend on subjects.
    pub fn decode_under(
        subject: &str,
        sequence: u64,
        bytes: &[u8],
    ) -> Result<Self, MalformedEvent> {
        let envelope = Envelope::read(bytes)?;
        let kind = envelope.kind.get().trim_matches('"');
        if !is_kept_under(kind, subject) {
            let message = format!("an event of the type {kind} does not belong under {subject}");
            return Err(MalformedEvent(serde::de::Error::custom(message)));
        }
        Self::of(sequence, bytes, &envelope)
    }

    /// Parses the stored `bytes` of the event at `sequence`, under any subject.
    pub fn decode(sequence: u64, bytes: &[u8]) -> Result<Self, MalformedEvent> {
        Self::of(sequence, bytes, &Envelope::read(bytes)?)
    }

    fn of(sequence: u64, bytes: &[u8], envelope: &Envelope<'_>) -> Result<Self, MalformedEvent> {
        Ok(Self {
            sequence,
            hash: Digest::of(bytes),
            event: envelope.event()?,
            id: envelope.id,
            time: envelope.time,
            previous: envelope.previoushash,
        })
    }
}

impl<E> Recorded<E> {
    /// The same record with a converted event.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> Recorded<F> {
        Recorded {
            sequence: self.sequence,
            hash: self.hash,
            id: self.id,
            time: self.time,
            previous: self.previous,
            event: change(self.event),
        }
    }
}

impl<E> Recorded<Option<E>> {
    pub fn transpose(self) -> Option<Recorded<E>> {
        let Recorded {
            sequence,
            hash,
            id,
            time,
            previous,
            event,
        } = self;
        event.map(|event| Recorded {
            sequence,
            hash,
            id,
            time,
            previous,
            event,
        })
    }
}
