//! Reads the whole log, event by event, against all artifacts of a store.
//!
//! A tree is judged when it ends. Until then, the survey keeps the artifacts that the tree names in memory, so its
//! memory grows with live trees and with the store, not with the history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;

use super::policy::{Facts, is_kept};
use super::{Class, Retention};
use crate::artifacts::{
    Named, named_by, named_by_registration, named_by_spending, of_bases, of_image,
};
use crate::capsule::base::Base;
use crate::capsule::{self, Image};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::flow::{self, Granted};
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::{Event, Note, Outcome, Payload};
use crate::subject::Subject;
use crate::tenant::Tenant;
use crate::{access, archive, dead_letter, file, node, placement, retention, spending};

/// Ended trees whose verdicts are remembered for late events: calls of models in progress, minutes at most. Events that
/// come later still keep the artifacts that they name.
const ENDED_REMEMBERED: usize = 10_000;

/// Why an artifact stays; of several reasons, the last one here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It was put or renewed less than [`super::UNNAMED_FOR`] ago.
    Young,
    /// An ended tree names it, and no policy matches the tree.
    NoPolicy,
    /// An ended tree names it, and is too young for all matching policies.
    Policy,
    /// An event that this program does not understand names it.
    Unknown,
    /// A live tree or an open dead letter names it.
    Live,
    /// A registered capsule needs it.
    Registered,
    /// A tree with a hold names it.
    Held,
    /// It contains events that the broker may no longer have.
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

/// Number and total size.
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

/// An artifact that may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collectable {
    pub digest: Digest,
    pub size_bytes: u64,
    /// Its class to the event that named it; none if no event did.
    pub class: Option<Class>,
}

/// What a registered capsule occupies in the store. An artifact that it names several times counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pub tenant: Tenant,
    pub capsule: CapsuleName,
    /// The artifacts that its registration names.
    pub named: Tally,
    /// Those that no other capsule, tree or policy keeps: without the capsule, they may be deleted.
    pub own: Tally,
}

/// The result of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of their digests.
    pub collect: Vec<Collectable>,
    pub kept: BTreeMap<Kept, Tally>,
    /// In the order of tenants and names.
    pub capsules: Vec<Storage>,
}

/// An artifact of the store.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    size_bytes: u64,
    class: Option<Class>,
    kept: Option<Kept>,
}

/// The state of a tree that is not judged yet.
#[derive(Debug, Default)]
struct Tree {
    /// The root; none if the beginning of the tree is not in the log.
    root: Option<Root>,
    /// Live runs, and open dead letters.
    live: BTreeSet<RunId>,
    ended: Option<Outcome>,
    /// The latest time of its state events, so that a node whose clock is slow does not make the tree old.
    latest: Option<Timestamp>,
    /// The candidates that the tree names.
    named: BTreeSet<(Digest, Class)>,
}

#[derive(Debug)]
struct Root {
    tenant: Tenant,
    capsule: CapsuleName,
    labels: BTreeMap<String, String>,
}

/// For each class, why artifacts of the tree stay; none if they may be deleted.
type Verdict = [Option<Kept>; Class::ALL.len()];

/// A survey in progress.
#[derive(Debug)]
pub struct Survey<'a> {
    retention: &'a Retention,
    now: Timestamp,
    /// Artifacts put or renewed at this time or later stay.
    before: Timestamp,
    candidates: BTreeMap<Digest, Candidate>,
    trees: BTreeMap<RunId, Tree>,
    ended: BTreeMap<RunId, Verdict>,
    ended_in_order: VecDeque<RunId>,
    registered: BTreeMap<(Tenant, CapsuleName), Vec<Named>>,
}

impl<'a> Survey<'a> {
    /// Artifacts younger than `unnamed_for` stay: [`super::UNNAMED_FOR`], except in tests.
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
        }
    }

    /// Artifacts last put or renewed before this time may be deleted, unless the log keeps them.
    pub const fn before(&self) -> Timestamp {
        self.before
    }

    /// Adds an artifact of the store. All artifacts come before the first event.
    pub fn found(&mut self, digest: Digest, size_bytes: u64, modified: Timestamp) {
        // The empty artifact is used to check stores.
        let is_young = modified >= self.before || size_bytes == 0;
        let candidate = Candidate {
            size_bytes,
            class: None,
            kept: is_young.then_some(Kept::Young),
        };
        self.candidates.insert(digest, candidate);
    }

    /// Applies an event, in the order of the log.
    pub fn take(&mut self, subject: &str, bytes: &[u8]) {
        let is_understood = match (Subject::run_of(subject), subject.split('.').nth(2)) {
            (Some(run), _) if Subject::is_state(subject) => self.take_state(run, subject, bytes),
            (Some(run), _) if Subject::is_spending(subject) => {
                self.take_spending(run, subject, bytes)
            }
            (Some(_), _) => is::<Note>(subject, bytes),
            (None, Some("capsule")) => self.take_registration(subject, bytes),
            (None, Some("deadletter")) => self.take_dead_letter(subject, bytes),
            (None, Some("node")) => is::<node::Event>(subject, bytes),
            (None, Some("rule")) => is::<flow::Event>(subject, bytes),
            (None, Some("admission")) => is::<Granted>(subject, bytes),
            (None, Some("placement")) => is::<placement::Event>(subject, bytes),
            (None, Some("archive")) => self.take_archive(subject, bytes),
            // A token names no artifact, and an upload keeps none: an uploaded artifact is young while it may be used.
            (None, Some("token")) => is::<access::Event>(subject, bytes),
            (None, Some("file")) => is::<file::Event>(subject, bytes),
            (None, Some("retention")) => is::<retention::Event>(subject, bytes),
            (None, Some("artifact")) => is::<retention::ArtifactEvent>(subject, bytes),
            _ => false,
        };
        if !is_understood {
            // Another version of this program may name artifacts in such an event.
            for digest in digests_in(bytes) {
                self.keep(digest, None, Kept::Unknown);
            }
        }
    }

    /// The artifacts to delete, and why the rest stays.
    pub fn finish(mut self) -> Plan {
        for (root, tree) in std::mem::take(&mut self.trees) {
            let verdict = [Some(self.while_live(root)); Class::ALL.len()];
            self.judge(&tree.named, verdict);
        }
        let mut plan = Plan {
            capsules: self.storage(),
            ..Plan::default()
        };
        for named in std::mem::take(&mut self.registered).into_values().flatten() {
            self.keep(named.digest, Some(named.role.into()), Kept::Registered);
        }
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

    /// What each registered capsule occupies; before registrations keep anything.
    fn storage(&self) -> Vec<Storage> {
        let capsules = self.registered.iter().map(|(capsule, named)| {
            let digests: BTreeSet<Digest> = named.iter().map(|named| named.digest).collect();
            (capsule, digests)
        });
        let capsules: Vec<_> = capsules.collect();
        let mut naming: BTreeMap<Digest, usize> = BTreeMap::new();
        for digest in capsules.iter().flat_map(|(_, digests)| digests) {
            *naming.entry(*digest).or_default() += 1;
        }
        let capsules = capsules.into_iter().map(|((tenant, capsule), digests)| {
            let (mut named, mut own) = (Tally::default(), Tally::default());
            for digest in digests {
                let Some(candidate) = self.candidates.get(&digest) else {
                    continue;
                };
                named.add(candidate.size_bytes);
                let is_kept = candidate.kept.is_some_and(|kept| kept != Kept::Young);
                if naming[&digest] == 1 && !is_kept {
                    own.add(candidate.size_bytes);
                }
            }
            Storage {
                tenant: tenant.clone(),
                capsule: capsule.clone(),
                named,
                own,
            }
        });
        capsules.collect()
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

    fn take_spending(&mut self, run: RunId, subject: &str, bytes: &[u8]) -> bool {
        let Some(event) = read::<spending::Event>(subject, bytes) else {
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

    /// An operator has resolved a dead letter.
    fn take_dead_letter(&mut self, subject: &str, bytes: &[u8]) -> bool {
        let Some(event) = read::<dead_letter::Event>(subject, bytes) else {
            return false;
        };
        let run = event.run();
        if let Some(tree) = self.trees.get_mut(&run.root()) {
            tree.live.remove(&run);
            self.close(run.root());
        }
        true
    }

    /// The archive, which may have events that the broker lacks, always stays.
    fn take_archive(&mut self, subject: &str, bytes: &[u8]) -> bool {
        let Some(event) = read::<archive::Event>(subject, bytes) else {
            return false;
        };
        let segment = event.archive().segment;
        for artifact in [segment.events, segment.index] {
            self.keep(artifact.digest, None, Kept::Archive);
        }
        true
    }

    /// Judges the former version of the capsule, or the removed capsule: it stays as long as policies say, and long enough for gateways that do
    /// not know the new version yet.
    fn take_registration(&mut self, subject: &str, bytes: &[u8]) -> bool {
        let decoded = Recorded::<capsule::Event>::decode_under(subject, 0, bytes);
        let (Ok(recorded), Some(tenant)) = (decoded, Subject::tenant_of(subject)) else {
            return false;
        };
        let name = recorded.event.name().clone();
        let capsule = (tenant.clone(), name.clone());
        let former = match &recorded.event {
            capsule::Event::Registered(registration) => {
                let named = named_by_registration(registration);
                self.registered.insert(capsule, named)
            }
            capsule::Event::Removed(_) => self.registered.remove(&capsule),
        };
        let Some(former) = former else {
            return true;
        };
        let facts = Facts {
            tenant: &tenant,
            capsule: &name,
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

    /// Judges the tree if all its runs have ended.
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

/// An event of a type that belongs under its subject, and that this program knows.
fn read<E: DeserializeOwned>(subject: &str, bytes: &[u8]) -> Option<E> {
    let recorded = Recorded::decode_under(subject, 0, bytes).ok()?;
    Some(recorded.event)
}

fn is<E: DeserializeOwned>(subject: &str, bytes: &[u8]) -> bool {
    read::<E>(subject, bytes).is_some()
}

/// A build's output names the image, until the capsule is registered with it.
fn built_by(event: &Event) -> Vec<Named> {
    let Event::Ended(ended) = event else {
        return Vec::new();
    };
    let Some(Payload::Inline(output)) = &ended.output else {
        return Vec::new();
    };
    let image: Option<Image> = serde_json::from_value(output.clone()).ok();
    let Some(image) = image else {
        return Vec::new();
    };
    // Apart from the image, which counts even if the bases are not understood.
    let bases = output.get("bases").cloned().unwrap_or_default();
    let bases: Vec<Base> = serde_json::from_value(bases).unwrap_or_default();
    of_image(&image).chain(of_bases(&bases)).collect()
}

/// All texts in `bytes` that could be the digest of an artifact.
fn digests_in(bytes: &[u8]) -> impl Iterator<Item = Digest> {
    let runs = bytes.split(|byte| !byte.is_ascii_hexdigit());
    let texts = runs.filter_map(|run| std::str::from_utf8(run).ok());
    texts.filter_map(|text| text.parse().ok())
}
