//! The record of an object: its size, and its bytes or their chunks.

use std::ops::Range;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Size of the object in bytes, decimal. In a header, so that a list needs no bodies.
const SIZE_HEADER: &str = "Aod-Size";

/// `inline` if the body of the message is the object, `chunks` if it is a [`Layout`] as JSON.
const FORM_HEADER: &str = "Aod-Form";

/// The content of a record.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Identifies the write of this record and its chunks, a UUIDv7 with the time when the upload
    /// began.
    pub(super) upload: Uuid,
    pub(super) size_bytes: u64,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Inline(Bytes),
    Chunks(Layout),
}

/// The boundaries of an object's chunks. Each part begins a new chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// Size of each chunk except the last of a part, in bytes.
    pub(super) chunk_bytes: u64,
    /// Sizes of the parts in bytes, in order, each with the number of neighbours of that size.
    pub(super) parts: Vec<(u64, usize)>,
}

/// A stored record with the stream's metadata.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) sequence: u64,
    pub(super) meta: ObjectMeta,
}

/// A part of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) part: usize,
    pub(super) number: u64,
    /// Size of the whole chunk, in bytes.
    pub(super) chunk_bytes: usize,
    /// The requested bytes of the chunk.
    pub(super) wanted: Range<usize>,
}

impl Record {
    pub(super) fn inline(bytes: Bytes) -> Self {
        Self {
            upload: Uuid::now_v7(),
            size_bytes: bytes.len() as u64,
            body: Body::Inline(bytes),
        }
    }

    pub(super) fn chunked(upload: Uuid, layout: Layout) -> Self {
        Self {
            upload,
            size_bytes: layout.size_bytes(),
            body: Body::Chunks(layout),
        }
    }

    /// Headers and body of the message. The message id makes a repeated write harmless.
    pub(super) fn message(&self) -> (HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.upload.simple().to_string());
        headers.insert(SIZE_HEADER, self.size_bytes.to_string());
        match &self.body {
            Body::Inline(bytes) => {
                headers.insert(FORM_HEADER, "inline");
                (headers, bytes.clone())
            }
            Body::Chunks(layout) => {
                headers.insert(FORM_HEADER, "chunks");
                let json = serde_json::to_vec(layout).expect("numbers are always JSON");
                (headers, json.into())
            }
        }
    }

    /// Parses a message; `location` is the path of its subject.
    pub(super) fn read(
        location: &Path,
        message: StreamMessage,
    ) -> object_store::Result<StoredRecord> {
        let (upload, meta) = read_headers(
            location,
            &message.headers,
            message.sequence,
            message.time.unix_timestamp_nanos(),
        )?;
        let form = message
            .headers
            .get(FORM_HEADER)
            .map(async_nats::HeaderValue::as_str);
        let body = match form {
            Some("inline") => Body::Inline(message.payload),
            Some("chunks") => Body::Chunks(
                serde_json::from_slice(&message.payload)
                    .map_err(|error| super::damaged(format!("record of {location}: {error}")))?,
            ),
            _ => {
                return Err(super::damaged(format!(
                    "record of {location} has an unknown form"
                )));
            }
        };
        let record = Self {
            upload,
            size_bytes: meta.size,
            body,
        };
        if record.size_of_body() != record.size_bytes {
            return Err(super::damaged(format!(
                "the size of the record of {location} differs from its bytes"
            )));
        }
        Ok(StoredRecord {
            record,
            sequence: message.sequence,
            meta,
        })
    }

    fn size_of_body(&self) -> u64 {
        match &self.body {
            Body::Inline(bytes) => bytes.len() as u64,
            Body::Chunks(layout) => layout.size_bytes(),
        }
    }
}

/// Parses the headers of a record: its upload, and the metadata for lists.
pub(super) fn read_headers(
    location: &Path,
    headers: &HeaderMap,
    sequence: u64,
    unix_nanoseconds: i128,
) -> object_store::Result<(Uuid, ObjectMeta)> {
    let upload = headers
        .get(NATS_MESSAGE_ID)
        .and_then(|id| Uuid::parse_str(id.as_str()).ok());
    let size = headers
        .get(SIZE_HEADER)
        .and_then(|size| size.as_str().parse().ok());
    let (Some(upload), Some(size)) = (upload, size) else {
        return Err(super::damaged(format!(
            "record of {location} has no valid headers"
        )));
    };
    let nanoseconds = i64::try_from(unix_nanoseconds).unwrap_or(i64::MAX);
    let meta = ObjectMeta {
        location: location.clone(),
        last_modified: chrono::DateTime::from_timestamp_nanos(nanoseconds),
        size,
        e_tag: Some(sequence.to_string()),
        version: None,
    };
    Ok((upload, meta))
}

impl Layout {
    /// The layout of parts of these sizes, in bytes; empty parts count, but have no chunk.
    pub(super) fn of(sizes_bytes: impl IntoIterator<Item = u64>, chunk_bytes: u64) -> Self {
        let mut parts: Vec<(u64, usize)> = Vec::new();
        for size in sizes_bytes {
            match parts.last_mut() {
                Some((last, count)) if *last == size => *count += 1,
                _ => parts.push((size, 1)),
            }
        }
        Self { chunk_bytes, parts }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, &(size, count)| {
            size.saturating_mul(count as u64).saturating_add(sum)
        })
    }

    /// The pieces of the bytes `range`, in order.
    pub(super) fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Piece> + Send {
        let chunk_bytes = self.chunk_bytes.max(1);
        let sizes = self
            .parts
            .into_iter()
            .flat_map(|(size, count)| std::iter::repeat_n(size, count));
        let parts = sizes.enumerate().scan(0_u64, |begin, (part, size)| {
            let part_begin = *begin;
            *begin += size;
            Some((part, part_begin, size))
        });
        let end = range.end;
        parts
            .skip_while(move |&(_, begin, size)| begin + size <= range.start)
            .take_while(move |&(_, begin, _)| begin < end)
            .flat_map(move |(part, begin, size)| {
                let from = range.start.max(begin) - begin;
                let to = range.end.min(begin + size) - begin;
                pieces_of_part(part, size, chunk_bytes, from..to)
            })
    }
}

/// The pieces of a non-empty range within one part.
fn pieces_of_part(
    part: usize,
    size: u64,
    chunk_bytes: u64,
    range: Range<u64>,
) -> impl Iterator<Item = Piece> + Send {
    let in_memory = |bytes: u64| usize::try_from(bytes).expect("a chunk fits into memory");
    let numbers = range.start / chunk_bytes..range.end.div_ceil(chunk_bytes);
    numbers.map(move |number| {
        let begin = number * chunk_bytes;
        Piece {
            part,
            number,
            chunk_bytes: in_memory(chunk_bytes.min(size - begin)),
            wanted: in_memory(range.start.max(begin) - begin)
                ..in_memory(range.end.min(begin + chunk_bytes) - begin),
        }
    })
}

#[cfg(test)]
mod tests;
