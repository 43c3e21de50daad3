//! Checks all rules that the entries of a bundle must follow, one entry after the other.

mod artifacts;
mod chains;
mod histories;
mod notes;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::artifacts::Artifacts;
use self::chains::{Chain, Chains, Claim, Link};
use self::histories::Histories;
use self::notes::Notes;
use super::{
    Finding, FindingKind, Line, PublicKey, Report, SealReport, TreeHasher, Verdict, check_seal,
};
use crate::digest::Digest;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, RunId};
use crate::run::{Event, Launched, Note, SealedTree};
use crate::spending;
use crate::subject::Subject;
use crate::tenant::Tenant;

/// Maximum events that a finding lists.
const UNNAMED_MAX: usize = 3;

/// A parsed part of a bundle.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Before the seal.
    Event(Line),
    /// A line that is not an event. The caller reports it.
    NoEvent,
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
    /// The store no longer had the artifact, according to the manifest, and its time of deletion if known.
    Missing {
        digest: Digest,
        deleted_at: Option<Timestamp>,
    },
}

/// Checks the entries of a bundle in their order.
#[derive(Debug)]
pub struct Checker {
    root: RunId,
    /// The tenant of the tree, from its first launch.
    tenant: Option<Tenant>,
    expected_key: Option<PublicKey>,
    findings: Vec<Finding>,
    tree: TreeHasher,
    /// The tree of the seal, if it is another one.
    other_tree: Option<SealedTree>,
    late: u64,
    last_sequence: u64,
    ids: BTreeSet<EventId>,
    chains: Chains,
    histories: Histories,
    notes: Notes,
    artifacts: Artifacts,
    is_sealed: bool,
    seal: Option<SealReport>,
}

impl Checker {
    /// For the bundle of `root`; accepts a seal by any key unless one is expected.
    pub fn new(root: RunId, expected_key: Option<PublicKey>) -> Self {
        Self {
            root,
            tenant: None,
            expected_key,
            findings: Vec::new(),
            tree: TreeHasher::default(),
            other_tree: None,
            late: 0,
            last_sequence: 0,
            ids: BTreeSet::new(),
            chains: Chains::default(),
            histories: Histories::default(),
            notes: Notes::default(),
            artifacts: Artifacts::default(),
            is_sealed: false,
            seal: None,
        }
    }

    /// Adds a finding of the caller, for example about the archive.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Whether there is a seal, valid or not.
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
            Entry::NoEvent => self.chains.add_gap(self.last_sequence),
            Entry::Seal(bytes) => self.seal(&bytes),
            Entry::Late(line) => {
                self.late += 1;
                self.find(Finding {
                    kind: FindingKind::LateEvent,
                    place: place(&line),
                    found: "an event that was stored after the seal".into(),
                    expected: "no such event: the seal does not cover it".into(),
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
            Entry::Missing { digest, deleted_at } => self.artifacts.miss(digest, deleted_at),
        }
    }

    /// The result of all checks.
    pub fn finish(mut self) -> Report {
        let broken = std::mem::take(&mut self.chains).check();
        self.findings.extend(broken.findings);
        self.findings
            .extend(self.notes.finish(self.histories.ends()));
        let runs = self.histories.count();
        let histories = std::mem::take(&mut self.histories);
        self.findings
            .extend(histories.finish(self.root, &broken.runs));
        self.compare_trees(&broken.unnamed);
        self.findings.extend(self.artifacts.finish());
        if let (None, Some(key)) = (&self.seal, self.expected_key)
            && !self.is_sealed
        {
            self.find(Finding {
                kind: FindingKind::Signer,
                place: "seal.json".into(),
                found: "no seal".into(),
                expected: format!("a seal by {key}"),
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
            runs,
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
                found: format!("an event that comes after event {}", self.last_sequence),
                expected: "events in the order of the log, each once".into(),
            });
        }
        self.last_sequence = self.last_sequence.max(line.sequence);
        if self.tenant.is_none() {
            self.tenant = Subject::tenant_of(&line.subject);
        }
        if Subject::is_state(&line.subject) {
            self.state(line);
        } else if Subject::is_spending(&line.subject) {
            self.spent(line);
        } else {
            self.note(line);
        }
    }

    fn state(&mut self, line: &Line) {
        let tenant = self.tenant.clone().unwrap_or_default();
        let subject = |run, event: &Event| event.subject(&tenant, run);
        let Some((run, recorded)) = self.read::<Event>(line, subject) else {
            return self.unreadable(line, Chain::State);
        };
        self.artifacts.name(&place(line), run, &recorded.event);
        if let Some(launched) = recorded.event.launched() {
            self.launched(line, launched);
        }
        if let Event::Sealed(_) = recorded.event {
            self.find(Finding {
                kind: FindingKind::Seal,
                place: place(line),
                found: "a seal among the events".into(),
                expected: "a seal only as seal.json".into(),
            });
            return;
        }
        let mut link = link(line, Chain::State(run), histories::claims(&recorded));
        if let Event::Ended(ended) = &recorded.event {
            link.is_result = true;
            link.claims.extend(histories::claims_of_result(run, ended));
        }
        self.histories.take(run, &link.place, recorded);
        self.chains.add(link);
    }

    /// An event that cannot be parsed is still the one that others name.
    fn unreadable(&mut self, line: &Line, chain: impl FnOnce(RunId) -> Chain) {
        let Some(run) = Subject::run_of(&line.subject) else {
            return self.chains.add_gap(self.last_sequence);
        };
        let link = link(line, chain(run), Vec::new());
        self.chains.add(Link {
            is_readable: false,
            ..link
        });
    }

    /// All runs of a tree belong to one tenant.
    fn launched(&mut self, line: &Line, launched: &Launched) {
        let tenant = self.tenant.get_or_insert_with(|| launched.tenant.clone());
        if *tenant == launched.tenant {
            return;
        }
        let expected = format!("a run of the tenant {tenant}, like the rest of its tree");
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
        let claims = match self.read(line, subject) {
            Some((_, recorded)) => vec![Claim::Previous(recorded.previous)],
            None => return self.unreadable(line, |_| Chain::Spending),
        };
        self.chains.add(link(line, Chain::Spending, claims));
    }

    fn note(&mut self, line: &Line) {
        let tenant = self.tenant.clone().unwrap_or_default();
        let subject = |run, note: &Note| note.subject(&tenant, run);
        let Some((run, recorded)) = self.read::<Note>(line, subject) else {
            return self.unreadable(line, Chain::Notes);
        };
        let chain = Chain::Notes(run);
        let previous = recorded.event.kind().previous;
        let claims = previous.map(|previous| Claim::Any(chain, previous));
        let link = link(line, chain, claims.into_iter().collect());
        self.findings
            .extend(self.notes.take(run, &link.place, &recorded));
        self.chains.add(link);
    }

    /// Parses an event as the type that its subject requires.
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
            let expected = "a complete event of a type that belongs under this subject".to_owned();
            self.find(wrong("unreadable bytes".into(), expected));
            return None;
        };
        let Ok(run) = cloud_event.subject.parse::<RunId>() else {
            let found = format!("an event of {:?}", cloud_event.subject);
            self.find(wrong(found, "an event of a run".into()));
            return None;
        };
        let expected = subject(run, &cloud_event.event);
        if expected.as_str() != line.subject {
            let found = "an event of another subject".to_owned();
            self.find(wrong(found, format!("an event of {expected}")));
        }
        if run.root() != self.root {
            let found = format!("an event of {run}");
            self.find(wrong(
                found,
                format!("an event of the tree of {}", self.root),
            ));
        }
        if !self.ids.insert(cloud_event.id) {
            self.find(Finding {
                kind: FindingKind::Order,
                ..wrong(
                    format!("{} twice", cloud_event.id),
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
            return self.find(wrong("unreadable bytes".into(), "a seal".into()));
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
        // The unsigned parts follow from the signed ones, in one exact form.
        let root = self.root.to_string();
        let written = CloudEvent::new(
            header.clone(),
            root,
            cloud_event.previoushash,
            cloud_event.event,
        );
        if written.encode().ok().as_deref() != Some(bytes) {
            let expected = format!("exactly the bytes that a gateway writes for {}", self.root);
            self.find(wrong("a seal with other bytes".into(), expected));
        }
        if cloud_event.previoushash != Some(sealed.result) {
            let found = format!("the previous hash {}", shown(cloud_event.previoushash));
            self.find(wrong(found, format!("the signed hash {}", sealed.result)));
        }
        match check_seal(self.root, &header, &sealed) {
            Ok((key, tree)) => {
                self.chains
                    .add_seal(Claim::Result(self.root, sealed.result));
                self.signed(key, tree, header);
            }
            Err(error) => self.find(wrong(
                format!("an invalid seal: {error}"),
                "a signature over this root's tree".into(),
            )),
        }
    }

    /// The signature is valid: checks the key and the signed tree.
    fn signed(&mut self, key: PublicKey, tree: SealedTree, header: Header) {
        if let Some(expected) = self.expected_key.filter(|expected| *expected != key) {
            self.find(Finding {
                kind: FindingKind::Signer,
                place: "seal.json".into(),
                found: format!("the signature of {key}"),
                expected: format!("the signature of {expected}"),
            });
        }
        self.other_tree = (self.tree.finish() != tree).then_some(tree);
        self.seal = Some(SealReport {
            public_key: key,
            is_key_compared: self.expected_key.is_some(),
            sealed_by: header.source,
            sealed_at: header.time,
        });
    }
}

impl Checker {
    /// Reports that the events are not the sealed ones. If nothing else is wrong, the altered event is one of the
    /// `unnamed` ones.
    fn compare_trees(&mut self, unnamed: &[String]) {
        let Some(sealed) = self.other_tree else {
            return;
        };
        let said = |tree: SealedTree| {
            let SealedTree {
                events,
                last,
                digest,
            } = tree;
            format!("{events} events up to {last} with the digest {digest}")
        };
        let mut found = said(self.tree.finish());
        if self.findings.is_empty() && !unnamed.is_empty() {
            let unnamed = unnamed[..unnamed.len().min(UNNAMED_MAX)].join(", ");
            found = format!("{found}; no event names the hash of {unnamed}");
        }
        self.find(Finding {
            kind: FindingKind::Seal,
            place: "events before seal.json".into(),
            found,
            expected: said(sealed),
        });
    }
}

fn link(line: &Line, chain: Chain, claims: Vec<Claim>) -> Link {
    Link {
        sequence: line.sequence,
        place: place(line),
        hash: Digest::of(&line.bytes),
        chain,
        is_result: Subject::is_result(&line.subject),
        claims,
        is_readable: true,
    }
}

fn place(line: &Line) -> String {
    format!("event {} at {}", line.sequence, line.subject)
}

/// An optional hash as text.
fn shown(hash: Option<Digest>) -> String {
    hash.map_or_else(|| "none".to_owned(), |hash| hash.to_string())
}
