//! Checks a bundle in one pass: the domain rules check its content, and its bytes are compared with the only valid way
//! of writing it.

use std::collections::BTreeMap;
use std::io::{self, Read};

use aod_domain::audit::archive::Header;
use aod_domain::audit::{
    CHUNK_EVENTS, Checker, Entry, EntryName, FORMAT, Finding, FindingKind, Line, Manifest, Opening,
    PublicKey, Report,
};
use aod_domain::digest::Digest;
use aod_domain::event::EVENT_SIZE_BYTES_MAX;

use crate::archive::{Archive, Next};

/// Maximum overhead of an event on its line: its sequence, its subject, names of fields.
const LINE_BYTES_MAX: usize = 1024;

/// Maximum size of entries that are held in memory, in bytes.
const OPENING_BYTES_MAX: u64 = 1024;
const CHUNK_BYTES_MAX: u64 = (CHUNK_EVENTS * (EVENT_SIZE_BYTES_MAX + LINE_BYTES_MAX)) as u64;

/// A manifest has a line of 110 bytes for each artifact: enough for half a million of them.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Reads the bundle from `reader` and checks all of it. Accepts a seal by any key unless `expected_key` is set.
///
/// # Errors
/// Those of `reader`; the report contains what is wrong with the bundle.
pub fn verify(reader: impl Read, expected_key: Option<PublicKey>) -> io::Result<Report> {
    let mut archive = Archive::new(reader);
    let Some(opening) = open(&mut archive)? else {
        return Ok(Report::unreadable(archive.findings));
    };
    let mut bundle = Bundle {
        archive,
        checker: Checker::new(opening.root, expected_key),
        previous: EntryName::Opening,
        lines_before: CHUNK_EVENTS,
        events: 0,
        late: 0,
        artifacts: BTreeMap::new(),
    };
    bundle.read()?;
    let Bundle {
        archive,
        mut checker,
        ..
    } = bundle;
    for finding in archive.findings {
        checker.find(finding);
    }
    Ok(checker.finish())
}

/// Reads the first entry; if it is unusable, returns none and adds a finding.
fn open<R: Read>(archive: &mut Archive<R>) -> io::Result<Option<Opening>> {
    let next = archive.next()?;
    let place = EntryName::Opening.to_string();
    let wrong = |found: String| Finding {
        kind: FindingKind::Archive,
        place: place.clone(),
        found,
        expected: format!("the root of a bundle of the format {FORMAT}"),
    };
    let Next::Entry { header, .. } = next else {
        archive.findings.push(wrong("nothing".into()));
        return Ok(None);
    };
    if header.name != place || header.size_bytes > OPENING_BYTES_MAX {
        let found = format!("{} of {} bytes", header.name, header.size_bytes);
        archive.findings.push(wrong(found));
        return Ok(None);
    }
    let Some(bytes) = archive.content(&header)? else {
        return Ok(None);
    };
    let opening = serde_json::from_slice::<Opening>(&bytes).ok();
    let opening = opening.filter(|opening| opening.format == FORMAT);
    let is_canonical = opening
        .as_ref()
        .is_some_and(|opening| opening.root.is_root() && opening.encode() == bytes);
    if !is_canonical {
        let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
        archive.findings.push(wrong(format!("{text:?}")));
    }
    Ok(opening)
}

/// A bundle after its first entry.
struct Bundle<R> {
    archive: Archive<R>,
    checker: Checker,
    previous: EntryName,
    /// Events in the last entry of events.
    lines_before: usize,
    events: u64,
    late: u64,
    /// With their sizes.
    artifacts: BTreeMap<Digest, u64>,
}

impl<R: Read> Bundle<R> {
    fn read(&mut self) -> io::Result<()> {
        loop {
            match self.archive.next()? {
                Next::End { is_proper } => {
                    if is_proper && self.previous != EntryName::Manifest {
                        let place = EntryName::Manifest.to_string();
                        self.find(FindingKind::Manifest, place, "nothing", "a manifest");
                    }
                    return Ok(());
                }
                Next::Entry { header, before } => {
                    if !self.entry(&header, before)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads an entry; returns whether another can follow.
    fn entry(&mut self, header: &Header, before: Digest) -> io::Result<bool> {
        let Some(name) = EntryName::read(&header.name) else {
            let expected = "an entry of a bundle";
            self.find(
                FindingKind::Archive,
                header.name.clone(),
                "an entry of this name",
                expected,
            );
            return Ok(self.archive.hash(header)?.is_some());
        };
        self.order(name);
        self.previous = self.previous.max(name);
        let bytes_max = match name {
            EntryName::Opening => OPENING_BYTES_MAX,
            EntryName::Events(_) | EntryName::Late(_) => CHUNK_BYTES_MAX,
            EntryName::Seal => EVENT_SIZE_BYTES_MAX as u64,
            EntryName::Manifest => MANIFEST_BYTES_MAX,
            EntryName::Artifact(digest) => return self.artifact(header, digest),
        };
        if header.size_bytes > bytes_max {
            let found = format!("{} bytes", header.size_bytes);
            let expected = format!("at most {bytes_max}");
            self.find(FindingKind::Length, name.to_string(), &found, &expected);
            return Ok(self.archive.hash(header)?.is_some());
        }
        let Some(content) = self.archive.content(header)? else {
            return Ok(false);
        };
        match name {
            EntryName::Events(_) | EntryName::Late(_) => self.lines(name, &content),
            EntryName::Seal => self.checker.take(Entry::Seal(content)),
            EntryName::Manifest => self.manifest(&content, before),
            EntryName::Opening | EntryName::Artifact(_) => (),
        }
        Ok(true)
    }

    /// Entries have a fixed order, and numbered ones have no gap.
    fn order(&mut self, name: EntryName) {
        let previous = self.previous;
        let is_next = match (previous, name) {
            (EntryName::Events(before), EntryName::Events(number))
            | (EntryName::Late(before), EntryName::Late(number)) => {
                before.checked_add(1) == Some(number)
            }
            (EntryName::Seal, EntryName::Late(number))
            | (EntryName::Opening, EntryName::Events(number)) => number == 1,
            (_, EntryName::Late(_)) => false,
            (previous, name) => name > previous,
        };
        if !is_next {
            let found = format!("this entry after {previous}");
            let expected = "the entries of a bundle in their order, without repetition";
            self.find(FindingKind::Order, name.to_string(), &found, expected);
        }
        let continues = matches!(
            (previous, name),
            (EntryName::Events(_), EntryName::Events(_)) | (EntryName::Late(_), EntryName::Late(_))
        );
        if continues && self.lines_before != CHUNK_EVENTS {
            let found = format!("{} events", self.lines_before);
            let expected = format!("{CHUNK_EVENTS}, because more events follow");
            self.find(FindingKind::Order, previous.to_string(), &found, &expected);
        }
    }

    fn artifact(&mut self, header: &Header, digest: Digest) -> io::Result<bool> {
        let Some(found) = self.archive.hash(header)? else {
            return Ok(false);
        };
        let size_bytes = header.size_bytes;
        self.artifacts.insert(digest, size_bytes);
        self.checker.take(Entry::Artifact {
            digest,
            size_bytes,
            found,
        });
        Ok(true)
    }

    fn lines(&mut self, name: EntryName, content: &[u8]) {
        let is_late = matches!(name, EntryName::Late(_));
        let (content, is_ended) = match content.strip_suffix(b"\n") {
            Some(content) => (content, true),
            None => (content, false),
        };
        let lines = content.split(|byte| *byte == b'\n');
        let mut count = 0;
        for text in lines {
            count += 1;
            // Too many lines are reported below; their content is not checked.
            if count > CHUNK_EVENTS {
                break;
            }
            let Some(line) = Line::read(text) else {
                let place = format!("{name}, line {count}");
                let expected = "an event with its sequence and its subject, in canonical form";
                self.find(FindingKind::Event, place, "something else", expected);
                self.checker.take(Entry::NoEvent);
                continue;
            };
            if is_late {
                self.late += 1;
                self.checker.take(Entry::Late(line));
            } else {
                self.events += 1;
                self.checker.take(Entry::Event(line));
            }
        }
        self.lines_before = count;
        if !is_ended || count > CHUNK_EVENTS {
            let found = format!(
                "{} lines, the last {}",
                if count > CHUNK_EVENTS {
                    "more".to_owned()
                } else {
                    count.to_string()
                },
                if is_ended { "whole" } else { "cut off" }
            );
            let expected = format!("at most {CHUNK_EVENTS} whole lines");
            self.find(FindingKind::Archive, name.to_string(), &found, &expected);
        }
    }

    /// The content before a manifest determines all of its fields, except the missing artifacts.
    fn manifest(&mut self, content: &[u8], before: Digest) {
        let place = EntryName::Manifest.to_string();
        let read = serde_json::from_slice::<Manifest>(content).ok();
        let Some(manifest) = read.filter(|manifest| manifest.encode() == content) else {
            let expected = "a manifest in canonical form";
            return self.find(FindingKind::Manifest, place, "something else", expected);
        };
        self.agree("events", &manifest.events, &self.events.clone());
        self.agree("late", &manifest.late, &self.late.clone());
        self.agree("is_sealed", &manifest.is_sealed, &self.checker.has_seal());
        self.agree("before", &manifest.before, &before);
        let digests = manifest.artifacts.iter().map(|entry| entry.digest);
        if !digests.is_sorted_by(|one, next| one < next) {
            self.agree(
                "artifacts",
                &"in another order",
                &"in the order of their digests",
            );
        }
        let mut unlisted = self.artifacts.clone();
        for entry in &manifest.artifacts {
            let held = unlisted.remove(&entry.digest);
            let what = format!("artifact {}", entry.digest);
            self.agree(&what, &size(entry.size_bytes), &size(held));
            if entry.size_bytes.is_none() {
                self.checker.take(Entry::Missing {
                    digest: entry.digest,
                    deleted_at: entry.deleted_at,
                });
            }
        }
        for (digest, held) in unlisted {
            let what = format!("artifact {digest}");
            self.agree(&what, &size(None), &size(Some(held)));
        }
    }

    /// Compares a field of the manifest with the content before it.
    fn agree<T: ToString>(&mut self, what: &str, found: &T, expected: &T) {
        let (found, expected) = (found.to_string(), expected.to_string());
        if found != expected {
            let place = format!("{}, {what}", EntryName::Manifest);
            self.find(FindingKind::Manifest, place, &found, &expected);
        }
    }

    fn find(&mut self, kind: FindingKind, place: String, found: &str, expected: &str) {
        self.checker.find(Finding {
            kind,
            place,
            found: found.to_owned(),
            expected: expected.to_owned(),
        });
    }
}

/// An optional size as text.
fn size(size_bytes: Option<u64>) -> String {
    size_bytes.map_or_else(|| "nothing".to_owned(), |size| format!("{size} bytes"))
}

#[cfg(test)]
mod tests {
    use aod_domain::audit::Verdict;

    use super::*;

    #[test]
    fn file_that_is_no_bundle_is_reported_as_none() {
        let opening = Header {
            name: "bundle.json".into(),
            size_bytes: 7,
        };
        let cut = &opening.to_block()[..];
        let other = [cut, &b"{\"a\":1}"[..], &[0; 505]].concat();
        for bytes in [
            &[][..],
            b"no archive",
            &[0; 1024],
            &[0xff; 4096],
            cut,
            &other,
        ] {
            let report = verify(bytes, None).expect("memory can be read");
            assert_eq!(report.verdict, Verdict::Findings);
            assert_eq!(report.root, None);
            assert!(!report.findings.is_empty());
        }
    }

    /// An entry as stored in a bundle.
    fn entry(name: EntryName, content: &[u8]) -> Vec<u8> {
        let header = Header {
            name: name.to_string(),
            size_bytes: content.len() as u64,
        };
        let rest = content.len().next_multiple_of(header.to_block().len());
        let mut bytes = [&header.to_block()[..], content].concat();
        bytes.resize(header.to_block().len() + rest, 0);
        bytes
    }

    #[test]
    fn hostile_bundle_costs_no_more_memory_than_a_valid_one() {
        let root = "run_06H0FFHKRHR1Q7JC7VPS1X7SAG".parse().expect("an id");
        let opening = serde_json::to_vec(&Opening::new(root)).expect("plain data");
        let opening = entry(EntryName::Opening, &opening);
        let lines = entry(EntryName::Events(1), &vec![b'\n'; 1 << 20]);
        let last = entry(EntryName::Events(u32::MAX), b"\n");
        let bytes = [opening, lines, last.clone(), last].concat();
        let report = verify(&bytes[..], None).expect("memory can be read");
        assert_eq!(report.verdict, Verdict::Findings);
        assert!(report.findings.len() < 2 * CHUNK_EVENTS);
    }
}
