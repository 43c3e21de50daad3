//! Artifacts: those that events name are there, whole, and no others.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::{Finding, FindingKind, Named};
use crate::digest::Digest;

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    /// With the place of an event that names it, and the size that is said there.
    named: BTreeMap<Digest, (String, Option<u64>)>,
    held: BTreeMap<Digest, u64>,
    missing: BTreeSet<Digest>,
}

fn place(digest: Digest) -> String {
    format!("artifacts/{digest}")
}

impl Artifacts {
    pub(super) fn name(&mut self, place: &str, named: &[Named]) {
        for artifact in named {
            let known = self.named.entry(artifact.digest);
            let known = known.or_insert_with(|| (place.to_owned(), None));
            known.1 = known.1.or(artifact.size_bytes);
        }
    }

    pub(super) fn hold(
        &mut self,
        digest: Digest,
        size_bytes: u64,
        found: Digest,
    ) -> Option<Finding> {
        self.held.insert(digest, size_bytes);
        (found != digest).then(|| Finding {
            kind: FindingKind::Artifact,
            place: place(digest),
            found: format!("{size_bytes} bytes with the SHA-256 {found}"),
            expected: format!("bytes with the SHA-256 {digest}"),
        })
    }

    pub(super) fn miss(&mut self, digest: Digest) {
        self.missing.insert(digest);
    }

    pub(super) fn count(&self) -> u64 {
        self.held.len() as u64
    }

    pub(super) fn finish(&self) -> Vec<Finding> {
        let named = self.named.iter();
        let findings =
            named.filter_map(|(digest, (place, size))| self.held_as(*digest, place, *size));
        let held = self.held.keys().chain(&self.missing);
        let unknown = held.filter(|digest| !self.named.contains_key(digest));
        let unknown = unknown.map(|digest| Finding {
            kind: FindingKind::UnknownArtifact,
            place: place(*digest),
            found: "an artifact that no event names".into(),
            expected: "artifacts of the tree's events only".into(),
        });
        findings.chain(unknown).collect()
    }

    fn held_as(&self, digest: Digest, named_at: &str, size: Option<u64>) -> Option<Finding> {
        let Some(held) = self.held.get(&digest) else {
            let found = if self.missing.contains(&digest) {
                "nothing: the store had it no more when the bundle was made"
            } else {
                "nothing"
            };
            return Some(Finding {
                kind: FindingKind::MissingArtifact,
                place: place(digest),
                found: found.into(),
                expected: format!("the artifact that {named_at} names"),
            });
        };
        let said = size.filter(|size| size != held)?;
        Some(Finding {
            kind: FindingKind::Artifact,
            place: place(digest),
            found: format!("{held} bytes"),
            expected: format!("{said} bytes, as {named_at} says"),
        })
    }
}
