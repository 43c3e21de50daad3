//! The hashes by which events name earlier events. If a later event names an event with another hash, the earlier one is
//! altered.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::{Finding, FindingKind};
use crate::digest::Digest;
use crate::id::RunId;

/// Events that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chain {
    /// The state events of a run: each names the previous one.
    State(RunId),
    /// The notes of a run: an unconfirmed note may have a twin.
    Notes(RunId),
    /// The spending events of the tree: each names the previous one.
    Spending,
}

impl Chain {
    /// The run whose state events these are.
    const fn run(self) -> Option<RunId> {
        match self {
            Self::State(run) => Some(run),
            Self::Notes(_) | Self::Spending => None,
        }
    }
}

/// An earlier event as a later event names it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// The previous event of the claimant's own chain.
    Previous(Option<Digest>),
    /// The result of a run.
    Result(RunId, Digest),
    /// An event of a chain, at any position.
    Any(Chain, Digest),
}

impl Claim {
    const fn hash(&self) -> Option<Digest> {
        match *self {
            Self::Previous(hash) => hash,
            Self::Result(_, hash) | Self::Any(_, hash) => Some(hash),
        }
    }
}

/// An event.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) place: String,
    pub(super) hash: Digest,
    pub(super) chain: Chain,
    pub(super) is_result: bool,
    /// Empty if the event cannot be parsed.
    pub(super) claims: Vec<Claim>,
    pub(super) is_readable: bool,
}

#[derive(Debug, Default)]
pub(super) struct Chains {
    links: Vec<Link>,
    hashes: BTreeSet<Digest>,
    /// The claims of a valid seal.
    sealed: Vec<Claim>,
    /// Last sequences before lines that are not events.
    gaps: BTreeSet<u64>,
}

/// The result of the check.
#[derive(Debug, Default)]
pub(super) struct Broken {
    pub(super) findings: Vec<Finding>,
    /// Runs with altered or unreadable state events: whether their other events follow the rules is unknown.
    pub(super) runs: BTreeSet<RunId>,
    /// Places of events that no other event names and the seal covers only together with all others.
    pub(super) unnamed: Vec<String>,
}

impl Chains {
    /// Adds an event. An event that occurs twice counts once.
    pub(super) fn add(&mut self, link: Link) {
        if self.hashes.insert(link.hash) {
            self.links.push(link);
        }
    }

    /// Adds a line that is not an event, after the event `sequence`.
    pub(super) fn add_gap(&mut self, sequence: u64) {
        self.gaps.insert(sequence);
    }

    pub(super) fn add_seal(&mut self, claim: Claim) {
        self.sealed.push(claim);
    }

    pub(super) fn check(mut self) -> Broken {
        self.links.sort_by_key(|link| link.sequence);
        let mut check = Check::new(&self);
        for claim in &self.sealed {
            check.claim(None, *claim);
        }
        // Events name earlier events only. Whether a claimant is altered is therefore known when its claims are checked.
        for (index, link) in self.links.iter().enumerate().rev() {
            for claim in &link.claims {
                // An altered event may name anything.
                if !check.altered.contains(&index) {
                    check.claim(Some(index), *claim);
                }
            }
        }
        check.finish()
    }
}

struct Check<'a> {
    chains: &'a Chains,
    /// The events of each chain in the order of the log.
    members: BTreeMap<Chain, Vec<usize>>,
    /// The previous event of each event in its chain.
    previous: Vec<Option<usize>>,
    by_hash: BTreeMap<Digest, usize>,
    /// All hashes that an event or the seal names.
    named: BTreeSet<Digest>,
    altered: BTreeSet<usize>,
    /// The hashes by which later events name the altered ones.
    original: BTreeSet<Digest>,
    broken: Broken,
}

impl<'a> Check<'a> {
    /// For links in the order of the log.
    fn new(chains: &'a Chains) -> Self {
        let claims = chains.links.iter().flat_map(|link| &link.claims);
        let named = claims.chain(&chains.sealed).filter_map(Claim::hash);
        let mut check = Self {
            chains,
            members: BTreeMap::new(),
            previous: Vec::with_capacity(chains.links.len()),
            by_hash: BTreeMap::new(),
            named: named.collect(),
            altered: BTreeSet::new(),
            original: BTreeSet::new(),
            broken: Broken::default(),
        };
        for (index, link) in chains.links.iter().enumerate() {
            let members = check.members.entry(link.chain).or_default();
            check.previous.push(members.last().copied());
            members.push(index);
            check.by_hash.insert(link.hash, index);
        }
        check
    }

    /// Checks what the event `by`, or the seal, names.
    fn claim(&mut self, by: Option<usize>, claim: Claim) {
        match claim {
            Claim::Previous(hash) => self.previous(by, hash),
            Claim::Result(run, hash) => {
                let links = &self.chains.links;
                let events = self.members(Chain::State(run)).iter();
                let result = events.copied().rfind(|index| links[*index].is_result);
                self.expect(by, result, hash);
            }
            Claim::Any(chain, hash) => self.any(by, chain, hash),
        }
    }

    fn members(&self, chain: Chain) -> &[usize] {
        self.members.get(&chain).map_or(&[], Vec::as_slice)
    }

    /// The event `by` names the previous event of its chain.
    fn previous(&mut self, by: Option<usize>, named: Option<Digest>) {
        let previous = by.and_then(|by| self.previous[by]);
        match (named, previous) {
            (None, None) => (),
            (Some(hash), previous) => self.expect(by, previous, hash),
            (None, Some(previous)) => {
                let expected = self.chains.links[previous].hash;
                let expected = format!("the previous hash {expected}");
                self.find(FindingKind::Chain, by, "no previous hash".into(), expected);
            }
        }
    }

    /// The event `by` names an event of `chain`. If there is none with this hash, the last earlier one that no event names
    /// is the altered one.
    fn any(&mut self, by: Option<usize>, chain: Chain, named: Digest) {
        let links = &self.chains.links;
        let found = self.by_hash.get(&named);
        let is_found = found.is_some_and(|index| links[*index].chain == chain);
        if is_found || self.original.contains(&named) {
            return;
        }
        let members = self.members(chain).iter();
        let unnamed = members.copied().rfind(|index| {
            by.is_none_or(|by| *index < by) && !self.named.contains(&links[*index].hash)
        });
        self.expect(by, unnamed, named);
    }

    /// The event `by` names `event` with the hash `named`.
    fn expect(&mut self, by: Option<usize>, event: Option<usize>, named: Digest) {
        let chains = self.chains;
        let links = &chains.links;
        let place = by.map_or("seal.json", |by| links[by].place.as_str());
        match event {
            Some(event) if links[event].hash == named || self.altered.contains(&event) => (),
            _ if self.has_gap(event, by) => {
                let chain = by.map(|by| links[by].chain);
                self.broken.runs.extend(chain.and_then(Chain::run));
            }
            Some(event) => {
                self.altered.insert(event);
                self.original.insert(named);
                let found = format!(
                    "the SHA-256 {}: this event is altered, or one after it is missing",
                    links[event].hash
                );
                let expected = format!("{named}, which {place} names");
                self.find(FindingKind::Chain, Some(event), found, expected);
            }
            None => self.find(
                FindingKind::MissingEvent,
                by,
                format!("no event with the SHA-256 {named}"),
                "the event that this one names".into(),
            ),
        }
    }

    /// Whether a line that is not an event may be the one that `by` names.
    fn has_gap(&self, event: Option<usize>, by: Option<usize>) -> bool {
        let sequence = |index: usize| self.chains.links[index].sequence;
        let from = event.map_or(0, sequence);
        let until = by.map_or(u64::MAX, sequence);
        from < until && self.chains.gaps.range(from..until).next().is_some()
    }

    fn find(&mut self, kind: FindingKind, at: Option<usize>, found: String, expected: String) {
        let place = at.map_or("seal.json", |at| self.chains.links[at].place.as_str());
        self.broken.findings.push(Finding {
            kind,
            place: place.to_owned(),
            found,
            expected,
        });
    }

    fn finish(mut self) -> Broken {
        for (index, link) in self.chains.links.iter().enumerate() {
            let is_altered = self.altered.contains(&index);
            if is_altered || !link.is_readable {
                self.broken.runs.extend(link.chain.run());
            } else if !self.named.contains(&link.hash) {
                self.broken.unnamed.push(link.place.clone());
            }
        }
        self.broken
    }
}
