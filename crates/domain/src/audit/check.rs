//! All that must hold of a bundle's entries, looked at one after the other.

mod artifacts;
mod histories;
mod notes;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::artifacts::Artifacts;
use self::histories::Histories;
use self::notes::Notes;
use super::{
    Finding, FindingKind, Line, PublicKey, Report, SealReport, TreeHasher, Verdict, bundled_by,
    check_seal,
};
use crate::digest::Digest;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, RunId};
use crate::run::{Event, Launched, Note, SealedTree};
use crate::spending;
use crate::subject::Subject;
use crate::tenant::Tenant;

/// A part of a bundle, as it was read.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Before the seal.
    Event(Line),
    /// The seal's stored bytes.
    Seal(Vec<u8>),
    /// After the seal.
    Late(Line),
    Artifact {
        /// Its name.
        digest: Digest,
        size_bytes: u64,
        /// The hash of its bytes.
        found: Digest,
    },
    /// The manifest says that the store had it no more, and if it was collected, when.
    Missing {
        digest: Digest,
        collected_at: Option<Timestamp>,
    },
}

/// Takes the entries of a bundle in, in their order.
#[derive(Debug)]
pub struct Checker {
    root: RunId,
    /// Whose the tree is, as its first launch says.
    tenant: Option<Tenant>,
    expected_key: Option<PublicKey>,
    findings: Vec<Finding>,
    tree: TreeHasher,
    late: u64,
    last_sequence: u64,
    ids: BTreeSet<EventId>,
    histories: Histories,
    notes: Notes,
    /// The hash of the last event about money.
    spending: Option<Digest>,
    artifacts: Artifacts,
    is_sealed: bool,
    seal: Option<SealReport>,
}

impl Checker {
    /// Of the bundle of `root`; a seal by any key will do unless one is expected.
    pub fn new(root: RunId, expected_key: Option<PublicKey>) -> Self {
        Self {
            root,
            tenant: None,
            expected_key,
            findings: Vec::new(),
            tree: TreeHasher::default(),
            late: 0,
            last_sequence: 0,
            ids: BTreeSet::new(),
            histories: Histories::default(),
            notes: Notes::default(),
            spending: None,
            artifacts: Artifacts::default(),
            is_sealed: false,
            seal: None,
        }
    }

    /// Adds what somebody else has found, as of the archive.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Whether a seal was taken in, whatever it proves.
    pub fn has_seal(&self) -> bool {
        self.is_sealed
    }

    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Event(line) => {
                self.tree
                    .add(line.sequence, &line.subject, Digest::of(&line.bytes));
                self.event(&line);
            }
            Entry::Seal(bytes) => self.seal(&bytes),
            Entry::Late(line) => {
                self.late += 1;
                self.find(Finding {
                    kind: FindingKind::LateEvent,
                    place: place(&line),
                    found: "an event that was stored after the seal".into(),
                    expected: "none: the seal says nothing of it".into(),
                });
                self.event(&line);
            }
            Entry::Artifact {
                digest,
                size_bytes,
                found,
            } => self
                .findings
                .extend(self.artifacts.hold(digest, size_bytes, found)),
            Entry::Missing {
                digest,
                collected_at,
            } => self.artifacts.miss(digest, collected_at),
        }
    }

    /// What came of all that was taken in.
    pub fn finish(mut self) -> Report {
        self.findings.extend(self.histories.finish(self.root));
        self.findings
            .extend(self.notes.finish(self.histories.ends()));
        self.findings.extend(self.artifacts.finish());
        if let (None, Some(key)) = (&self.seal, self.expected_key)
            && !self.is_sealed
        {
            self.find(Finding {
                kind: FindingKind::Signer,
                place: "seal.json".into(),
                found: "no seal".into(),
                expected: format!("one by {key}"),
            });
        }
        let verdict = match (self.findings.is_empty(), &self.seal) {
            (false, _) => Verdict::Findings,
            (true, Some(_)) => Verdict::Sealed,
            (true, None) => Verdict::Open,
        };
        Report {
            verdict,
            root: Some(self.root),
            seal: self.seal,
            runs: self.histories.count(),
            events: self.tree.finish().events + self.late + u64::from(self.is_sealed),
            artifacts: self.artifacts.count(),
            findings: self.findings,
        }
    }

    fn event(&mut self, line: &Line) {
        if line.sequence <= self.last_sequence {
            self.find(Finding {
                kind: FindingKind::Order,
                place: place(line),
                found: format!("it behind event {}", self.last_sequence),
                expected: "events in the order of the log, each once".into(),
            });
        }
        self.last_sequence = self.last_sequence.max(line.sequence);
        if Subject::is_state(&line.subject) {
            self.state(line);
        } else if Subject::is_spending(&line.subject) {
            self.spent(line);
        } else {
            self.note(line);
        }
    }

    fn state(&mut self, line: &Line) {
        let known = self.tenant.clone();
        let subject = |run, event: &Event| {
            let launched = event.launched().map(|launched| &launched.tenant);
            let tenant = known.as_ref().or(launched).cloned().unwrap_or_default();
            event.subject(&tenant, run)
        };
        let Some((run, recorded)) = self.read::<Event>(line, subject) else {
            return;
        };
        self.artifacts
            .name(&place(line), &bundled_by(&recorded.event));
        if let Some(launched) = recorded.event.launched() {
            self.launched(line, launched);
        }
        if let Event::Sealed(_) = recorded.event {
            self.find(Finding {
                kind: FindingKind::Seal,
                place: place(line),
                found: "a seal among the events".into(),
                expected: "one, as seal.json".into(),
            });
            return;
        }
        let place = place(line);
        self.findings
            .extend(self.histories.take(run, &place, recorded));
    }

    /// A tree is one tenant's.
    fn launched(&mut self, line: &Line, launched: &Launched) {
        let tenant = self.tenant.get_or_insert_with(|| launched.tenant.clone());
        if *tenant == launched.tenant {
            return;
        }
        let expected = format!("one of the tenant {tenant}, as the others of its tree");
        self.find(Finding {
            kind: FindingKind::Event,
            place: place(line),
            found: format!("a run of the tenant {}", launched.tenant),
            expected,
        });
    }

    fn spent(&mut self, line: &Line) {
        let tenant = self.tenant.clone().unwrap_or_default();
        let subject = |_, event: &spending::Event| event.subject(&tenant);
        let Some((_, recorded)) = self.read(line, subject) else {
            return;
        };
        if recorded.previous != self.spending {
            self.find(Finding {
                kind: FindingKind::Chain,
                place: place(line),
                found: format!("a chain from {}", shown(recorded.previous)),
                expected: format!("{}, the event before it", shown(self.spending)),
            });
        }
        self.spending = Some(recorded.hash);
    }

    fn note(&mut self, line: &Line) {
        let tenant = self.tenant.clone().unwrap_or_default();
        let subject = |run, note: &Note| note.subject(&tenant, run);
        let Some((run, recorded)) = self.read(line, subject) else {
            return;
        };
        let place = place(line);
        self.findings
            .extend(self.notes.take(run, &place, &recorded));
    }

    /// Reads an event as what its subject says it is.
    fn read<E: Serialize + DeserializeOwned>(
        &mut self,
        line: &Line,
        subject: impl Fn(RunId, &E) -> Subject,
    ) -> Option<(RunId, Recorded<E>)> {
        let wrong = |found: String, expected: String| Finding {
            kind: FindingKind::Event,
            place: place(line),
            found,
            expected,
        };
        let Ok(cloud_event) = CloudEvent::<E>::decode(&line.bytes) else {
            let expected = "an event of a type that is known there, with its fields".to_owned();
            self.find(wrong("something else".into(), expected));
            return None;
        };
        let Ok(run) = cloud_event.subject.parse::<RunId>() else {
            let found = format!("an event of {:?}", cloud_event.subject);
            self.find(wrong(found, "one of a run".into()));
            return None;
        };
        let expected = subject(run, &cloud_event.event);
        if expected.as_str() != line.subject {
            let found = "an event that belongs elsewhere".to_owned();
            self.find(wrong(found, format!("one that belongs at {expected}")));
        }
        if run.root() != self.root {
            let found = format!("an event of {run}");
            self.find(wrong(found, format!("one of the tree of {}", self.root)));
        }
        if !self.ids.insert(cloud_event.id) {
            self.find(Finding {
                kind: FindingKind::Order,
                ..wrong(
                    format!("{} a second time", cloud_event.id),
                    "each event once".into(),
                )
            });
        }
        let recorded = Recorded {
            sequence: line.sequence,
            hash: Digest::of(&line.bytes),
            id: cloud_event.id,
            time: cloud_event.time,
            previous: cloud_event.previoushash,
            event: cloud_event.event,
        };
        Some((run, recorded))
    }

    fn seal(&mut self, bytes: &[u8]) {
        self.is_sealed = true;
        let wrong = |found: String, expected: String| Finding {
            kind: FindingKind::Seal,
            place: "seal.json".into(),
            found,
            expected,
        };
        let Ok(cloud_event) = CloudEvent::<Event>::decode(bytes) else {
            return self.find(wrong("something else".into(), "a seal".into()));
        };
        let header = Header {
            id: cloud_event.id,
            source: cloud_event.source,
            time: cloud_event.time,
        };
        let Event::Sealed(sealed) = &cloud_event.event else {
            return self.find(wrong("another event".into(), "a seal".into()));
        };
        let sealed = sealed.clone();
        // What is not signed follows from what is, and is written in one way.
        let root = self.root.to_string();
        let written = CloudEvent::new(
            header.clone(),
            root,
            cloud_event.previoushash,
            cloud_event.event,
        );
        if written.encode().ok().as_deref() != Some(bytes) {
            let expected = format!("the very bytes that a gateway writes for {}", self.root);
            self.find(wrong("a seal in other words".into(), expected));
        }
        let result = self.histories.end_of(self.root);
        for (what, found) in [
            ("its chain", cloud_event.previoushash),
            ("its text", Some(sealed.result)),
        ] {
            if found != result || result.is_none() {
                let found = format!("{what} about {}", shown(found));
                self.find(wrong(found, format!("the root's result {}", shown(result))));
            }
        }
        match check_seal(self.root, &header, &sealed) {
            Ok((key, tree)) => self.signed(key, tree, header),
            Err(error) => self.find(wrong(
                format!("a seal that proves nothing: {error}"),
                "a signature over this root's tree".into(),
            )),
        }
    }

    /// The signature holds: now for whose it is, and of what.
    fn signed(&mut self, key: PublicKey, tree: SealedTree, header: Header) {
        if let Some(expected) = self.expected_key.filter(|expected| *expected != key) {
            self.find(Finding {
                kind: FindingKind::Signer,
                place: "seal.json".into(),
                found: format!("the signature of {key}"),
                expected: format!("that of {expected}"),
            });
        }
        let found = self.tree.finish();
        if found != tree {
            let said = |tree: SealedTree| {
                let SealedTree {
                    events,
                    last,
                    digest,
                } = tree;
                format!("{events} events up to {last} with the digest {digest}")
            };
            self.find(Finding {
                kind: FindingKind::Seal,
                place: "events before seal.json".into(),
                found: said(found),
                expected: said(tree),
            });
        }
        self.seal = Some(SealReport {
            public_key: key,
            is_key_compared: self.expected_key.is_some(),
            sealed_by: header.source,
            sealed_at: header.time,
        });
    }
}

fn place(line: &Line) -> String {
    format!("event {} at {}", line.sequence, line.subject)
}

/// A hash that there may be none of.
fn shown(hash: Option<Digest>) -> String {
    hash.map_or_else(|| "nothing".to_owned(), |hash| hash.to_string())
}
