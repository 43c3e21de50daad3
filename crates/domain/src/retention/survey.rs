//! The whole log, event by event, against all that a store has.
//!
//! A tree is judged when it has ended: until then only what it names of the store's artifacts is kept in memory,
//! so that what is held grows with what goes on, and with the store, but not with the history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;

use super::policy::{Facts, is_kept};
use super::{Class, Retention};
use crate::artifacts::{Named, Role, named_by, named_by_registration, named_by_spending};
use crate::capsule::{self, Image};
use crate::digest::Digest;
use crate::event::{CloudEvent, Recorded};
use crate::flow::{self, Granted};
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::{Event, Note, Outcome, Payload};
use crate::subject::Subject;
use crate::tenant::Tenant;
use crate::{access, archive, dead_letter, file, node, placement, retention, spending};

/// Ended trees of which is remembered what became of them, for events that come late: calls of models that were
/// under way, minutes at the most. What comes later still keeps what it names.
const ENDED_REMEMBERED: usize = 10_000;

/// Why an artifact stays; of several reasons the last here is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It was put or named anew less than [`super::UNNAMED_FOR`] ago.
    Young,
    /// An ended tree names it, and no policy is for it.
    NoPolicy,
    /// An ended tree names it, and is not old enough for any policy.
    Policy,
    /// An event names it that this program does not understand.
    Unknown,
    /// A tree names it that has not ended, or a dead letter that nobody has dealt with.
    Live,
    /// A registered capsule needs it.
    Registered,
    /// A tree names it that is held.
    Held,
    /// Events are in it, which the broker may have no more.
    Archive,
}

impl Kept {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Young => "young",
            Self::NoPolicy => "no_policy",
            Self::Policy => "policy",
            Self::Unknown => "unknown",
            Self::Live => "live",
            Self::Registered => "registered",
            Self::Held => "held",
            Self::Archive => "archive",
        }
    }
}

/// How many, and how large together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub artifacts: u64,
    pub size_bytes: u64,
}

impl Tally {
    pub fn add(&mut self, size_bytes: u64) {
        self.artifacts += 1;
        self.size_bytes += size_bytes;
    }
}

/// An artifact that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collectable {
    pub digest: Digest,
    pub size_bytes: u64,
    /// What it was to whoever named it; none if nobody did.
    pub class: Option<Class>,
}

/// What came of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of their digests.
    pub collect: Vec<Collectable>,
    pub kept: BTreeMap<Kept, Tally>,
}

/// An artifact of the store that is old enough to go.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    size_bytes: u64,
    class: Option<Class>,
    kept: Option<Kept>,
}

/// What is known of a tree that has not ended, or whose end is not judged yet.
#[derive(Debug, Default)]
struct Tree {
    /// Of its root; none if its beginning is not in the log.
    root: Option<Root>,
    /// Runs that have begun and not ended, and dead letters that are open.
    live: BTreeSet<RunId>,
    ended: Option<Outcome>,
    /// The latest time of its state events: a node whose clock is behind must not make it old.
    latest: Option<Timestamp>,
    /// Of the candidates.
    named: BTreeSet<(Digest, Class)>,
}

#[derive(Debug)]
struct Root {
    tenant: Tenant,
    capsule: CapsuleName,
    labels: BTreeMap<String, String>,
}

/// Why each class of what a tree names stays; none for what may go.
type Verdict = [Option<Kept>; Class::ALL.len()];

/// A survey of the log that is under way.
#[derive(Debug)]
pub struct Survey<'a> {
    retention: &'a Retention,
    now: Timestamp,
    /// What was put or renewed at this time or later stays.
    before: Timestamp,
    candidates: BTreeMap<Digest, Candidate>,
    trees: BTreeMap<RunId, Tree>,
    ended: BTreeMap<RunId, Verdict>,
    ended_in_order: VecDeque<RunId>,
    registered: BTreeMap<(Tenant, CapsuleName), Vec<Named>>,
    kept: BTreeMap<Kept, Tally>,
}

impl<'a> Survey<'a> {
    /// What is younger than `unnamed_for` stays: [`super::UNNAMED_FOR`] but for tests.
    pub fn new(retention: &'a Retention, now: Timestamp, unnamed_for: SignedDuration) -> Self {
        let before = now.saturating_sub(unnamed_for);
        Self {
            retention,
            now,
            before: before.unwrap_or(Timestamp::MIN),
            candidates: BTreeMap::new(),
            trees: BTreeMap::new(),
            ended: BTreeMap::new(),
            ended_in_order: VecDeque::new(),
            registered: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// What was last put or named anew before this may go, if the log does not say otherwise.
    pub const fn before(&self) -> Timestamp {
        self.before
    }

    /// Takes an artifact of the store in. All of them come before the first event.
    pub fn found(&mut self, digest: Digest, size_bytes: u64, modified: Timestamp) {
        // Stores are checked with the empty one.
        if modified >= self.before || size_bytes == 0 {
            return self.kept.entry(Kept::Young).or_default().add(size_bytes);
        }
        let candidate = Candidate {
            size_bytes,
            class: None,
            kept: None,
        };
        self.candidates.insert(digest, candidate);
    }

    /// Takes an event in; events come in the order of the log.
    pub fn take(&mut self, subject: &str, bytes: &[u8]) {
        let is_understood = match (Subject::run_of(subject), subject.split('.').nth(2)) {
            (Some(run), _) if Subject::is_state(subject) => self.take_state(run, subject, bytes),
            (Some(run), _) if Subject::is_spending(subject) => self.take_spending(run, bytes),
            (Some(_), _) => is::<Note>(bytes),
            (None, Some("capsule")) => self.take_registration(subject, bytes),
            (None, Some("deadletter")) => self.take_dead_letter(bytes),
            (None, Some("node")) => is::<node::Event>(bytes),
            (None, Some("rule")) => is::<flow::Event>(bytes),
            (None, Some("admission")) => is::<Granted>(bytes),
            (None, Some("placement")) => is::<placement::Event>(bytes),
            (None, Some("archive")) => self.take_archive(bytes),
            // A token names nothing, and an upload keeps nothing: it is young for as long as it may be used.
            (None, Some("token")) => is::<access::Event>(bytes),
            (None, Some("file")) => is::<file::Event>(bytes),
            (None, Some("retention")) => is::<retention::Event>(bytes),
            (None, Some("artifact")) => is::<retention::ArtifactEvent>(bytes),
            _ => false,
        };
        if !is_understood {
            // Another version of this program may name artifacts in it.
            for digest in digests_in(bytes) {
                self.keep(digest, None, Kept::Unknown);
            }
        }
    }

    /// What may go, and why the rest stays.
    pub fn finish(mut self) -> Plan {
        for (root, tree) in std::mem::take(&mut self.trees) {
            let verdict = [Some(self.while_live(root)); Class::ALL.len()];
            self.judge(&tree.named, verdict);
        }
        for named in std::mem::take(&mut self.registered).into_values().flatten() {
            self.keep(named.digest, Some(named.role.into()), Kept::Registered);
        }
        let mut plan = Plan {
            collect: Vec::new(),
            kept: self.kept,
        };
        for (digest, candidate) in self.candidates {
            let Candidate {
                size_bytes,
                class,
                kept,
            } = candidate;
            match kept {
                Some(kept) => plan.kept.entry(kept).or_default().add(size_bytes),
                None => plan.collect.push(Collectable {
                    digest,
                    size_bytes,
                    class,
                }),
            }
        }
        plan
    }

    fn take_state(&mut self, run: RunId, subject: &str, bytes: &[u8]) -> bool {
        let decoded = Recorded::<Event>::decode_under(subject, 0, bytes);
        let (Ok(recorded), Some(tenant)) = (decoded, Subject::tenant_of(subject)) else {
            return false;
        };
        let (root, event) = (run.root(), &recorded.event);
        let mut named = named_by(event);
        named.extend(built_by(event));
        if event.launched().is_none() && self.is_judged(root) {
            self.judge_late(root, &named);
            return true;
        }
        let tree = self.trees.entry(root).or_default();
        let known = named
            .iter()
            .filter(|named| self.candidates.contains_key(&named.digest));
        tree.named
            .extend(known.map(|named| (named.digest, Class::from(named.role))));
        tree.latest = tree.latest.max(Some(recorded.time));
        if let Some(launched) = event.launched() {
            tree.live.insert(run);
            if run.is_root() {
                tree.root = Some(Root {
                    tenant,
                    capsule: launched.work.name().clone(),
                    labels: launched.labels.clone(),
                });
            }
        }
        if let Event::Ended(ended) = event {
            if ended.dead_letter().is_none() {
                tree.live.remove(&run);
            }
            if run.is_root() {
                tree.ended = Some(ended.outcome);
            }
        }
        self.close(root);
        true
    }

    fn take_spending(&mut self, run: RunId, bytes: &[u8]) -> bool {
        let Ok(CloudEvent { event, .. }) = CloudEvent::<spending::Event>::decode(bytes) else {
            return false;
        };
        let (root, named) = (run.root(), named_by_spending(&event));
        if named.is_empty() {
            return true;
        }
        if self.is_judged(root) {
            self.judge_late(root, &named);
            return true;
        }
        let tree = self.trees.entry(root).or_default();
        tree.named
            .extend(named.iter().map(|named| (named.digest, Class::Files)));
        true
    }

    /// Somebody has dealt with a run that was given up.
    fn take_dead_letter(&mut self, bytes: &[u8]) -> bool {
        let Ok(CloudEvent { event, .. }) = CloudEvent::<dead_letter::Event>::decode(bytes) else {
            return false;
        };
        let run = event.run();
        if let Some(tree) = self.trees.get_mut(&run.root()) {
            tree.live.remove(&run);
            self.close(run.root());
        }
        true
    }

    /// What the log is in, below where the broker has it, stays for ever.
    fn take_archive(&mut self, bytes: &[u8]) -> bool {
        let Ok(CloudEvent { event, .. }) = CloudEvent::<archive::Event>::decode(bytes) else {
            return false;
        };
        let segment = event.archive().segment;
        for artifact in [segment.events, segment.index] {
            self.keep(artifact.digest, None, Kept::Archive);
        }
        true
    }

    /// The version that the capsule had until now is judged: it stays as long as policies say, and for so long
    /// that whoever has not heard of the new one yet can still use it.
    fn take_registration(&mut self, subject: &str, bytes: &[u8]) -> bool {
        let decoded = Recorded::<capsule::Event>::decode_under(subject, 0, bytes);
        let (Ok(recorded), Some(tenant)) = (decoded, Subject::tenant_of(subject)) else {
            return false;
        };
        let capsule::Event::Registered(registration) = recorded.event;
        let named = named_by_registration(&registration);
        let capsule = (tenant.clone(), registration.name.clone());
        let Some(former) = self.registered.insert(capsule, named) else {
            return true;
        };
        let facts = Facts {
            tenant: &tenant,
            capsule: &registration.name,
            labels: &BTreeMap::new(),
            outcome: None,
            ended_at: recorded.time,
        };
        let kept = self.kept_for(&facts, Class::Capsules);
        let kept = kept.or_else(|| (recorded.time >= self.before).then_some(Kept::Policy));
        for named in former {
            match kept {
                Some(kept) => self.keep(named.digest, Some(Class::Capsules), kept),
                None => self.name(named.digest, Class::Capsules),
            }
        }
        true
    }

    /// Judges the tree if it has ended with all that it called.
    fn close(&mut self, root: RunId) {
        let is_over =
            |tree: &Tree| tree.live.is_empty() && tree.ended.is_some() && tree.root.is_some();
        if !self.trees.get(&root).is_some_and(is_over) {
            return;
        }
        let Some(tree) = self.trees.remove(&root) else {
            return;
        };
        let Tree {
            root: Some(of),
            ended: Some(outcome),
            latest: Some(ended_at),
            named,
            ..
        } = tree
        else {
            return;
        };
        let facts = Facts {
            tenant: &of.tenant,
            capsule: &of.capsule,
            labels: &of.labels,
            outcome: Some(outcome),
            ended_at,
        };
        let verdict = Class::ALL.map(|class| match self.retention.holds.get(&root) {
            Some(_) => Some(Kept::Held),
            None => self.kept_for(&facts, class),
        });
        self.judge(&named, verdict);
        self.remember(root, verdict);
    }

    fn kept_for(&self, facts: &Facts<'_>, class: Class) -> Option<Kept> {
        match self.retention.keep(facts, class) {
            None => Some(Kept::NoPolicy),
            Some(keep) => is_kept(keep, facts.ended_at, self.now).then_some(Kept::Policy),
        }
    }

    fn while_live(&self, root: RunId) -> Kept {
        match self.retention.holds.get(&root) {
            Some(_) => Kept::Held,
            None => Kept::Live,
        }
    }

    fn judge(&mut self, named: &BTreeSet<(Digest, Class)>, verdict: Verdict) {
        for &(digest, class) in named {
            match verdict[class as usize] {
                Some(kept) => self.keep(digest, Some(class), kept),
                None => self.name(digest, class),
            }
        }
    }

    fn is_judged(&self, root: RunId) -> bool {
        !self.trees.contains_key(&root) && self.ended.contains_key(&root)
    }

    fn judge_late(&mut self, root: RunId, named: &[Named]) {
        let named = named
            .iter()
            .map(|named| (named.digest, Class::from(named.role)))
            .collect();
        if let Some(&verdict) = self.ended.get(&root) {
            self.judge(&named, verdict);
        }
    }

    fn remember(&mut self, root: RunId, verdict: Verdict) {
        if self.ended.insert(root, verdict).is_none() {
            self.ended_in_order.push_back(root);
        }
        if self.ended_in_order.len() > ENDED_REMEMBERED
            && let Some(first) = self.ended_in_order.pop_front()
        {
            self.ended.remove(&first);
        }
    }

    fn keep(&mut self, digest: Digest, class: Option<Class>, kept: Kept) {
        if let Some(candidate) = self.candidates.get_mut(&digest) {
            candidate.kept = candidate.kept.max(Some(kept));
            candidate.class = candidate.class.or(class);
        }
    }

    fn name(&mut self, digest: Digest, class: Class) {
        if let Some(candidate) = self.candidates.get_mut(&digest) {
            candidate.class.get_or_insert(class);
        }
    }
}

/// Whether `bytes` are an event of a type that this program knows.
fn is<E: DeserializeOwned>(bytes: &[u8]) -> bool {
    CloudEvent::<E>::decode(bytes).is_ok()
}

/// The image that a build came to stands in its output, until its capsule is registered with it.
fn built_by(event: &Event) -> Option<Named> {
    let Event::Ended(ended) = event else {
        return None;
    };
    let Some(Payload::Inline(output)) = &ended.output else {
        return None;
    };
    let image: Image = serde_json::from_value(output.clone()).ok()?;
    Some(Named {
        digest: image.archive,
        size_bytes: None,
        role: Role::Image,
    })
}

/// Everything in `bytes` that could be the name of an artifact.
fn digests_in(bytes: &[u8]) -> impl Iterator<Item = Digest> {
    let runs = bytes.split(|byte| !byte.is_ascii_hexdigit());
    let texts = runs.filter_map(|run| std::str::from_utf8(run).ok());
    texts.filter_map(|text| text.parse().ok())
}
