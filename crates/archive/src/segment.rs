//! A segment as bytes: separately compressed blocks of events, and an index.
//!
//! ```text
//! events   blocks (zstd), in sequence; in each, for every event, a line of JSON with its sequence,
//!          subject and size, its bytes as they were stored, and a line end
//! index    JSON (zstd): the blocks, for each part of the log the blocks that have events of it, and the
//!          segments before
//! ```
//!
//! A part is the start of a subject after its tenant: `run.<root>`, `capsule.<name>`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write};

use aod_domain::archive::Segment;
use aod_domain::event::{EVENT_SIZE_BYTES_MAX, header_of};
use aod_ports::event_log::StoredEvent;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The format that this module reads and writes.
const FORMAT: &str = "aod.segment.v1";

/// A block is closed at this size: large enough to compress well, small enough for one tree.
const BLOCK_BYTES: usize = 256 * 1024;

/// Maximum size of a block: one more event, with its line.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + 2 * EVENT_SIZE_BYTES_MAX;

/// Maximum size of an unpacked index: a block and a part for each event, and a hundred thousand segments.
const INDEX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The level of zstd: its own default.
const LEVEL: i32 = 3;

/// Bytes that are not a segment, or not the expected one.
#[derive(Debug, Error)]
#[error("damaged segment of the archive: {0}")]
pub(crate) struct Damaged(pub(crate) String);

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    /// The sequence of its first event.
    pub(crate) first: u64,
    /// Its position in the segment.
    pub(crate) offset: u64,
    pub(crate) size_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct IndexText {
    format: String,
    blocks: Vec<Block>,
    parts: BTreeMap<String, Vec<u32>>,
    before: Vec<Segment>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    sequence: u64,
    subject: String,
    size_bytes: usize,
}

/// Writes the events of a segment in their order.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    out: W,
    offset: u64,
    block: Vec<u8>,
    blocks: Vec<Block>,
    parts: BTreeMap<String, Vec<u32>>,
    latest: Timestamp,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            offset: 0,
            block: Vec::new(),
            blocks: Vec::new(),
            parts: BTreeMap::new(),
            latest: Timestamp::MIN,
        }
    }

    pub(crate) fn add(&mut self, stored: &StoredEvent) -> io::Result<()> {
        if self.block.is_empty() {
            self.blocks.push(Block {
                first: stored.sequence,
                offset: self.offset,
                size_bytes: 0,
            });
        }
        let number = u32::try_from(self.blocks.len() - 1).expect("a segment has few blocks");
        let blocks = self.parts.entry(part_of(&stored.subject)).or_default();
        if blocks.last() != Some(&number) {
            blocks.push(number);
        }
        // A malformed event is stored too, but has no time.
        if let Ok(header) = header_of(&stored.bytes) {
            self.latest = self.latest.max(header.time);
        }
        let line = Line {
            sequence: stored.sequence,
            subject: stored.subject.clone(),
            size_bytes: stored.bytes.len(),
        };
        serde_json::to_writer(&mut self.block, &line)?;
        self.block.push(b'\n');
        self.block.extend_from_slice(&stored.bytes);
        self.block.push(b'\n');
        if self.block.len() >= BLOCK_BYTES {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        let packed = zstd::bulk::compress(&self.block, LEVEL)?;
        self.out.write_all(&packed)?;
        if let Some(block) = self.blocks.last_mut() {
            block.size_bytes = packed.len() as u64;
        }
        self.offset += packed.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// The index of the written events, and their latest time.
    pub(crate) fn finish(mut self, before: &[Segment]) -> io::Result<(Vec<u8>, Timestamp)> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        self.out.flush()?;
        let text = IndexText {
            format: FORMAT.to_owned(),
            blocks: self.blocks,
            parts: self.parts,
            before: before.to_vec(),
        };
        let index = zstd::bulk::compress(&serde_json::to_vec(&text)?, LEVEL)?;
        Ok((index, self.latest))
    }
}

/// The index of a segment.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) blocks: Vec<Block>,
    /// Hashes of parts, and of their kinds, with a block each, in order.
    parts: Box<[(u64, u32)]>,
    pub(crate) before: Vec<Segment>,
}

impl Index {
    pub(crate) fn read(packed: &[u8]) -> Result<Self, Damaged> {
        let damaged = |error: &dyn std::fmt::Display| Damaged(format!("index: {error}"));
        let text = unpacked(packed, INDEX_BYTES_MAX).map_err(|error| damaged(&error))?;
        let text: IndexText = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
        if text.format != FORMAT {
            return Err(damaged(&format!("unknown format {:?}", text.format)));
        }
        let mut parts = Vec::new();
        for (part, blocks) in text.parts {
            let kind = part.split('.').next().unwrap_or_default();
            for &block in &blocks {
                parts.push((hash_of(&part), block));
                // No reader selects all runs by kind, and a segment has too many of them.
                if kind != "run" {
                    parts.push((hash_of(kind), block));
                }
            }
        }
        parts.sort_unstable();
        parts.dedup();
        Ok(Self {
            blocks: text.blocks,
            parts: parts.into(),
            before: text.before,
        })
    }

    /// The blocks that can have events under `filter`, in order.
    pub(crate) fn blocks_of(&self, filter: &str) -> Vec<usize> {
        let Some(wanted) = wanted(filter) else {
            return (0..self.blocks.len()).collect();
        };
        let from = self.parts.partition_point(|(hash, _)| *hash < wanted);
        let found = self.parts[from..].iter();
        let found = found.take_while(|(hash, _)| *hash == wanted);
        found.map(|(_, block)| *block as usize).collect()
    }
}

/// The hash of the only part, or kind of parts, that can have events under `filter`.
fn wanted(filter: &str) -> Option<u64> {
    let mut tokens = filter.split('.').skip(2);
    let is_literal = |token: &&str| !matches!(*token, "*" | ">");
    let kind = tokens.next().filter(is_literal)?;
    match tokens.next().filter(is_literal) {
        Some(name) => Some(hash_of(&format!("{kind}.{name}"))),
        None if kind == "run" => None,
        None => Some(hash_of(kind)),
    }
}

fn part_of(subject: &str) -> String {
    let tokens: Vec<&str> = subject.split('.').skip(2).take(2).collect();
    tokens.join(".")
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn unpacked(packed: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = zstd::stream::Decoder::new(packed)?;
    decoder.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// The events of a block.
pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<StoredEvent>, Damaged> {
    let bytes = unpacked(packed, BLOCK_BYTES_MAX);
    let bytes = Bytes::from(bytes.map_err(|error| Damaged(format!("block: {error}")))?);
    let mut events = Vec::new();
    let mut at = 0_usize;
    while at < bytes.len() {
        let broken = || Damaged(format!("byte {at} of a block"));
        let end = bytes[at..].iter().position(|&byte| byte == b'\n');
        let begins = at + end.ok_or_else(broken)? + 1;
        let line: Line = serde_json::from_slice(&bytes[at..begins - 1]).map_err(|_| broken())?;
        let ends = begins.checked_add(line.size_bytes).ok_or_else(broken)?;
        if bytes.get(ends) != Some(&b'\n') {
            return Err(broken());
        }
        events.push(StoredEvent {
            sequence: line.sequence,
            subject: line.subject,
            bytes: bytes.slice(begins..ends),
        });
        at = ends + 1;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, subject: &str, bytes: &str) -> StoredEvent {
        StoredEvent {
            sequence,
            subject: subject.to_owned(),
            bytes: Bytes::copy_from_slice(bytes.as_bytes()),
        }
    }

    /// Three blocks: the middle one has its own tree, and all have the only capsule.
    fn events() -> Vec<StoredEvent> {
        let long = "x".repeat(BLOCK_BYTES / 3);
        let subject = |number: u64| match number {
            1..=3 => "ev.default.run.A.A.s.launched.any.root",
            4..=6 => "ev.default.run.B.C.n.capsule_started",
            _ => "ev.default.run.A.A.s.ended",
        };
        let mut events: Vec<StoredEvent> = (1..=9)
            .map(|number| event(number, subject(number), &long))
            .collect();
        for at in [0, 4, 8] {
            events[at].subject = "ev.default.capsule.chart.registered".to_owned();
        }
        events
    }

    fn written(events: &[StoredEvent]) -> (Vec<u8>, Index) {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        for stored in events {
            writer.add(stored).expect("memory");
        }
        let (index, _) = writer.finish(&[]).expect("memory");
        (bytes, Index::read(&index).expect("an index"))
    }

    fn block(bytes: &[u8], block: &Block) -> Vec<StoredEvent> {
        let from = usize::try_from(block.offset).expect("a small segment");
        let size = usize::try_from(block.size_bytes).expect("a small segment");
        unpack(&bytes[from..from + size]).expect("a block")
    }

    #[test]
    fn events_with_any_bytes_are_read_as_stored() {
        let mut events = events();
        events.push(event(10, "ev.default.rule.x.set", "\n{}\0 no event\n\n"));
        events.push(event(11, "ev.default.rule.x.set", ""));
        let (bytes, index) = written(&events);
        let read = index.blocks.iter().flat_map(|part| block(&bytes, part));
        assert_eq!(read.collect::<Vec<_>>(), events);
        assert!(
            bytes.len() < events.len() * BLOCK_BYTES / 30,
            "{}",
            bytes.len()
        );
    }

    #[test]
    fn only_blocks_that_can_match_the_filter_are_read() {
        let (_, index) = written(&events());
        let check = |filter: &str, expected: &[usize]| {
            assert_eq!(index.blocks_of(filter), expected, "{filter}");
        };
        check("ev.>", &[0, 1, 2]);
        check("ev.*.run.*.*.s.ended", &[0, 1, 2]);
        check("ev.default.run.A.>", &[0, 2]);
        check("ev.*.run.A.A.s.>", &[0, 2]);
        check("ev.default.run.B.C.>", &[1]);
        check("ev.default.run.D.>", &[]);
        check("ev.*.capsule.>", &[0, 1, 2]);
        check("ev.*.capsule.chart.>", &[0, 1, 2]);
        check("ev.*.rule.>", &[]);
    }

    #[test]
    fn damaged_segment_is_reported_with_memory_of_one_block() {
        let (bytes, index) = written(&events());
        let first = &bytes[..usize::try_from(index.blocks[0].size_bytes).expect("small")];
        for cut in [0, 1, first.len() / 2, first.len() - 1] {
            assert!(
                unpack(&first[..cut]).map_or(true, |events| events.is_empty()),
                "{cut}"
            );
        }
        for text in [
            &b"no line end"[..],
            b"{}\n",
            b"{\"sequence\":1,\"subject\":\"a\",\"size_bytes\":9}\nshort\n",
        ] {
            let packed = zstd::bulk::compress(text, LEVEL).expect("memory");
            assert!(unpack(&packed).is_err(), "{text:?}");
        }
        let bomb = zstd::bulk::compress(&vec![0; BLOCK_BYTES_MAX + 1], LEVEL).expect("memory");
        assert!(unpack(&bomb).is_err());
        assert!(Index::read(&bomb).is_err());
    }
}
