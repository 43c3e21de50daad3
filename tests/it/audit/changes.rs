//! Changes to a bundle: random ones, and those of an attacker who knows the format.

use aod_domain::audit::archive::{BLOCK_BYTES, Header, TRAILER_BYTES, padding};
use aod_domain::audit::{ArtifactEntry, EntryName, Line, Manifest, SealKey, TreeHasher};
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header as EventHeader};
use aod_domain::run::Event;
use fastrand::Rng;

/// Number of changes.
pub(super) const CHANGES: u64 = 100;

/// Kinds of changes.
const KINDS: u64 = 10;

/// The entries of a bundle, by name.
#[derive(Clone)]
pub(super) struct Parts(Vec<(EntryName, Vec<u8>)>);

/// A changed bundle.
pub(super) struct Changed {
    pub(super) what: String,
    pub(super) bytes: Vec<u8>,
    /// Text that a finding must contain.
    pub(super) names: String,
}

impl Parts {
    pub(super) fn of(mut bundle: &[u8]) -> Self {
        let mut parts = Vec::new();
        while bundle.len() > TRAILER_BYTES {
            let (block, rest) = bundle.split_at(BLOCK_BYTES);
            let header = Header::read(block.try_into().expect("a block")).expect("a header");
            let size = usize::try_from(header.size_bytes).expect("a small file");
            let name = EntryName::read(&header.name).expect("a name of ours");
            parts.push((name, rest[..size].to_vec()));
            bundle = &rest[size + padding(header.size_bytes)..];
        }
        Self(parts)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, content) in &self.0 {
            bytes.extend(written(*name, content));
        }
        bytes.extend([0; TRAILER_BYTES]);
        bytes
    }

    fn content(&mut self, name: EntryName) -> &mut Vec<u8> {
        let part = self.0.iter_mut().find(|(found, _)| *found == name);
        &mut part.expect("it is there").1
    }

    fn lines(&mut self) -> Vec<Line> {
        let text = self.content(EntryName::Events(1));
        let text = text.strip_suffix(b"\n").expect("whole lines");
        let lines = text.split(|byte| *byte == b'\n');
        lines
            .map(|line| Line::read(line).expect("a line"))
            .collect()
    }

    fn set_lines(&mut self, lines: &[Line]) {
        let text = lines
            .iter()
            .flat_map(|line| line.encode().expect("an event"));
        *self.content(EntryName::Events(1)) = text.collect();
    }

    /// With a manifest that matches the content.
    pub(super) fn refitted(mut self) -> Self {
        let (_, manifest) = self.0.pop().expect("a manifest");
        let manifest: Manifest = serde_json::from_slice(&manifest).expect("a manifest");
        let mut before = self.write();
        before.truncate(before.len() - TRAILER_BYTES);
        let mut artifacts: Vec<ArtifactEntry> = Vec::new();
        for listed in &manifest.artifacts {
            let name = EntryName::Artifact(listed.digest);
            let held = self.0.iter().find(|(found, _)| *found == name);
            artifacts.push(ArtifactEntry {
                digest: listed.digest,
                size_bytes: held.map(|(_, content)| content.len() as u64),
                deleted_at: None,
            });
        }
        let manifest = Manifest {
            events: self.lines().len() as u64,
            is_sealed: self.0.iter().any(|(name, _)| *name == EntryName::Seal),
            late: 0,
            artifacts,
            before: Digest::of(&before),
        };
        self.0.push((EntryName::Manifest, manifest.encode()));
        self
    }

    /// A random artifact.
    fn artifact(&self, random: &mut Rng) -> usize {
        let artifacts = self.0.iter().enumerate();
        let artifacts: Vec<usize> = artifacts
            .filter(|(_, (name, _))| matches!(name, EntryName::Artifact(_)))
            .map(|(index, _)| index)
            .collect();
        artifacts[random.usize(..artifacts.len())]
    }
}

fn written(name: EntryName, content: &[u8]) -> Vec<u8> {
    let size_bytes = content.len() as u64;
    let header = Header {
        name: name.to_string(),
        size_bytes,
    };
    let mut bytes = header.to_block().to_vec();
    bytes.extend(content);
    bytes.extend(vec![0; padding(size_bytes)]);
    bytes
}

/// The change of `seed`.
pub(super) fn change(honest: &Parts, seed: u64) -> Changed {
    let mut random = Rng::with_seed(seed);
    let random = &mut random;
    match seed % KINDS {
        0 | 1 => byte(honest, random),
        2 => cut_or_grown(honest, random),
        kind @ 3..=6 => events(honest, kind, random),
        7 => file_replaced(honest, random),
        8 => file_removed(honest, random),
        _ => signed_by_another(honest),
    }
}

/// A random byte, including headers and padding.
fn byte(honest: &Parts, random: &mut Rng) -> Changed {
    // By entry, because large entries would get nearly all changes.
    let parts = &honest.0;
    let index = random.usize(..parts.len());
    let start: usize = parts[..index]
        .iter()
        .map(|(name, content)| written(*name, content).len())
        .sum();
    let length = written(parts[index].0, &parts[index].1).len();
    let at = start + random.usize(..length);
    let mut bytes = honest.write();
    bytes[at] ^= 1 << random.u8(..8);
    let is_content = (BLOCK_BYTES..BLOCK_BYTES + parts[index].1.len()).contains(&(at - start));
    let names = match parts[index].0 {
        EntryName::Events(_) | EntryName::Opening if is_content => "place".to_owned(),
        // A changed header contradicts its own name or size.
        _ if at - start < BLOCK_BYTES => "header".to_owned(),
        _ if !is_content => format!("byte {at} of the file"),
        name => name.to_string(),
    };
    Changed {
        what: format!("byte {at}, in {}", parts[index].0),
        bytes,
        names,
    }
}

/// One byte more or less, or a missing end.
fn cut_or_grown(honest: &Parts, random: &mut Rng) -> Changed {
    let mut bytes = honest.write();
    let at = random.usize(..bytes.len());
    let what = match random.u8(..3) {
        0 => {
            bytes.remove(at);
            "removed"
        }
        1 => {
            bytes.insert(at, random.u8(..));
            "inserted"
        }
        _ => {
            bytes.truncate(at);
            "cut off"
        }
    };
    Changed {
        what: format!("byte {at} {what}"),
        bytes,
        names: "of the file".into(),
    }
}

/// A new bundle of other events, as good as possible without the key.
fn events(honest: &Parts, kind: u64, random: &mut Rng) -> Changed {
    let mut parts = honest.clone();
    let mut lines = parts.lines();
    let at = random.usize(1..lines.len());
    let line = lines[at].clone();
    let what = match kind {
        3 => {
            lines.remove(at);
            "dropped"
        }
        4 => {
            lines.insert(at, line.clone());
            "doubled"
        }
        5 => {
            lines.swap(at - 1, at);
            "swapped"
        }
        _ => {
            // Still valid JSON: a digit of its id.
            let id = br#""id":"event_"#;
            let bytes = &mut lines[at].bytes;
            let place = bytes.windows(id.len()).position(|window| window == id);
            let place = place.expect("an id") + id.len() + random.usize(1..26);
            bytes[place] = if bytes[place] == b'0' { b'1' } else { b'0' };
            "changed"
        }
    };
    parts.set_lines(&lines);
    Changed {
        what: format!("event {} {what}", line.sequence),
        bytes: parts.refitted().write(),
        names: "events before seal.json".into(),
    }
}

fn file_replaced(honest: &Parts, random: &mut Rng) -> Changed {
    let mut parts = honest.clone();
    let index = parts.artifact(random);
    let name = parts.0[index].0;
    let content = &mut parts.0[index].1;
    *content = if random.bool() {
        b"something else".to_vec()
    } else {
        content.iter().rev().copied().chain([b'!']).collect()
    };
    Changed {
        what: format!("{name} replaced"),
        bytes: parts.refitted().write(),
        names: name.to_string(),
    }
}

fn file_removed(honest: &Parts, random: &mut Rng) -> Changed {
    let mut parts = honest.clone();
    let index = parts.artifact(random);
    let (name, _) = parts.0.remove(index);
    Changed {
        what: format!("{name} removed"),
        bytes: parts.refitted().write(),
        names: name.to_string(),
    }
}

/// The whole tree with a new signature.
fn signed_by_another(honest: &Parts) -> Changed {
    let mut parts = honest.clone();
    let mut tree = TreeHasher::default();
    for line in parts.lines() {
        tree.add(line.sequence, &line.subject, Digest::of(&line.bytes));
    }
    let seal = parts.content(EntryName::Seal);
    let signed = CloudEvent::<Event>::decode(seal).expect("a seal");
    let Event::Sealed(sealed) = signed.event else {
        panic!("a seal");
    };
    let header = EventHeader {
        id: signed.id,
        source: signed.source,
        time: signed.time,
    };
    let root = signed.subject.parse().expect("a run");
    let key = SealKey::from_seed(&[9; 32]);
    let forged = key.seal(root, &header, sealed.result, tree.finish());
    let names = key.public_key().to_string();
    let subject = root.to_string();
    let forged = CloudEvent::new(header, subject, signed.previoushash, Event::Sealed(forged));
    *seal = forged.encode().expect("a small event");
    Changed {
        what: "sealed by another key".into(),
        bytes: parts.refitted().write(),
        names,
    }
}
