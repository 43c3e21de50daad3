//! Artifacts: those that events name are there, whole, and no others.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::artifacts::Named;
use crate::audit::{Finding, FindingKind};
use crate::digest::Digest;

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    /// With the place of an event that names it, and the size that is said there.
    named: BTreeMap<Digest, (String, Option<u64>)>,
    held: BTreeMap<Digest, u64>,
    missing: BTreeMap<Digest, Option<Timestamp>>,
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

    /// The bundle says that it is not there, and perhaps when it was collected.
    pub(super) fn miss(&mut self, digest: Digest, collected_at: Option<Timestamp>) {
        self.missing.insert(digest, collected_at);
    }

    pub(super) fn count(&self) -> u64 {
        self.held.len() as u64
    }

    pub(super) fn finish(&self) -> Vec<Finding> {
        let named = self.named.iter();
        let findings =
            named.filter_map(|(digest, (place, size))| self.held_as(*digest, place, *size));
        let held = self.held.keys().chain(self.missing.keys());
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
            let missing = FindingKind::MissingArtifact;
            let (kind, found) = match self.missing.get(&digest) {
                None => (missing, "nothing".to_owned()),
                Some(None) => {
                    let text = "nothing: the store had it no more when the bundle was made";
                    (missing, text.to_owned())
                }
                Some(Some(at)) => {
                    let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
                    let text = format!("nothing: the cluster says that it was collected at {at}");
                    (FindingKind::CollectedArtifact, text)
                }
            };
            return Some(Finding {
                kind,
                place: place(digest),
                found,
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
