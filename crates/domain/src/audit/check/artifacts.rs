//! Checks that the artifacts named by events are present and unchanged, and that there are no further ones.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::audit::{Finding, FindingKind, bundled_by};
use crate::digest::Digest;
use crate::id::RunId;
use crate::run::{Event, FileEntry, Payload};

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    named: BTreeMap<Digest, Naming>,
    held: BTreeMap<Digest, u64>,
    missing: BTreeMap<Digest, Option<Timestamp>>,
}

/// The first event that names an artifact.
#[derive(Debug)]
struct Naming {
    place: String,
    title: String,
    size_bytes: Option<u64>,
}

/// What the artifact `digest` is to the `event` of `run` that names it.
fn title(run: RunId, event: &Event, digest: Digest) -> String {
    let file = |direction: &str, files: &[FileEntry]| {
        let file = files.iter().find(|file| file.digest == digest)?;
        Some(format!("{direction} file {} of {run}", file.name))
    };
    match event {
        Event::Launched(launched) | Event::Requested(launched) | Event::Reused(launched) => {
            let other = if launched.payload.digest() == Some(digest) {
                format!("arguments of {run}")
            } else {
                format!("schema of the capsule {}", launched.work.name())
            };
            file("input", &launched.files).unwrap_or(other)
        }
        Event::Ended(ended) => {
            let output = ended.output.as_ref().and_then(Payload::digest);
            let other = if output == Some(digest) {
                format!("output of {run}")
            } else {
                format!("logs of {run}")
            };
            file("output", &ended.files).unwrap_or(other)
        }
        _ => format!("logs of {run}"),
    }
}

impl Artifacts {
    pub(super) fn name(&mut self, place: &str, run: RunId, event: &Event) {
        for artifact in bundled_by(event) {
            let known = self.named.entry(artifact.digest);
            let known = known.or_insert_with(|| Naming {
                place: place.to_owned(),
                title: title(run, event, artifact.digest),
                size_bytes: None,
            });
            known.size_bytes = known.size_bytes.or(artifact.size_bytes);
        }
    }

    fn place(&self, digest: Digest) -> String {
        let naming = self.named.get(&digest);
        let title = naming.map(|naming| format!(" ({})", naming.title));
        format!("artifacts/{digest}{}", title.unwrap_or_default())
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
            place: self.place(digest),
            found: format!("{size_bytes} bytes with the SHA-256 {found}"),
            expected: format!("bytes with the SHA-256 {digest}"),
        })
    }

    /// An artifact is missing, according to the bundle, and was perhaps deleted at `deleted_at`.
    pub(super) fn miss(&mut self, digest: Digest, deleted_at: Option<Timestamp>) {
        self.missing.insert(digest, deleted_at);
    }

    pub(super) fn count(&self) -> u64 {
        self.held.len() as u64
    }

    pub(super) fn finish(&self) -> Vec<Finding> {
        let named = self.named.iter();
        let findings = named.filter_map(|(digest, naming)| self.held_as(*digest, naming));
        let held = self.held.keys().chain(self.missing.keys());
        let unknown = held.filter(|digest| !self.named.contains_key(digest));
        let unknown = unknown.map(|digest| Finding {
            kind: FindingKind::UnknownArtifact,
            place: self.place(*digest),
            found: "an artifact that no event names".into(),
            expected: "artifacts of the tree's events only".into(),
        });
        findings.chain(unknown).collect()
    }

    fn held_as(&self, digest: Digest, naming: &Naming) -> Option<Finding> {
        let named_at = &naming.place;
        let Some(held) = self.held.get(&digest) else {
            let missing = FindingKind::MissingArtifact;
            let (kind, found) = match self.missing.get(&digest) {
                None => (missing, "nothing".to_owned()),
                Some(None) => {
                    let text =
                        "nothing: the store no longer had the artifact when the bundle was made";
                    (missing, text.to_owned())
                }
                Some(Some(at)) => {
                    let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
                    let text = format!("nothing: the cluster reports that it was deleted at {at}");
                    (FindingKind::DeletedArtifact, text)
                }
            };
            return Some(Finding {
                kind,
                place: self.place(digest),
                found,
                expected: format!("the artifact that {named_at} names"),
            });
        };
        let said = naming.size_bytes.filter(|size| size != held)?;
        Some(Finding {
            kind: FindingKind::Artifact,
            place: self.place(digest),
            found: format!("{held} bytes"),
            expected: format!("{said} bytes, as {named_at} records"),
        })
    }
}
