//! Deadlocks: callees that wait for buckets whose runs cannot end, because the callees of those runs wait in the same
//! way.
//!
//! A run is assumed to end only after all its callees. A capsule may abandon a callee by itself, but nobody knows that
//! in advance.

use std::collections::{BTreeSet, HashMap};

use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;

use super::{Flow, Lane, RuleKey};
use crate::id::RunId;

/// Callees that wait for one another; the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadlock(Vec<Callee>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Callee {
    /// The sequence of the request.
    sequence: u64,
    run: RunId,
    caller: Option<RunId>,
}

impl Deadlock {
    pub fn runs(&self) -> impl Iterator<Item = RunId> {
        self.0.iter().map(|callee| callee.run)
    }

    /// The callees whose end lets their caller continue, and with it the rest: the youngest of those in `lasting`, and
    /// all others of the same caller.
    pub fn youngest(&self, lasting: &BTreeSet<RunId>) -> Vec<RunId> {
        let lasts = |callee: &&Callee| lasting.contains(&callee.run);
        let Some(youngest) = self.0.iter().rfind(lasts) else {
            return Vec::new();
        };
        let together = self.0.iter().filter(lasts);
        let together = together.filter(|callee| callee.caller == youngest.caller);
        together.map(|callee| callee.run).collect()
    }
}

/// Callees below the same runs that wait for the same buckets, which no run can leave.
struct Stuck<'a> {
    lane: &'a Lane,
    above: &'a BTreeSet<RunId>,
    callees: Vec<Callee>,
    /// The runs in those buckets.
    holders: BTreeSet<RunId>,
}

impl Flow {
    /// The deadlocks, one for all callees that wait for one another; none if not all admissions are applied.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        if self.behind.is_some() {
            return Vec::new();
        }
        let stuck = self.stuck();
        let cycle_of = cycles(&stuck);
        let mut deadlocks: HashMap<usize, Vec<Callee>> = HashMap::new();
        for one in &stuck {
            let cycle = |run: &RunId| cycle_of.get(run).copied();
            let holders: BTreeSet<_> = one.holders.iter().filter_map(cycle).collect();
            // A run above it holds one of the buckets that it waits for.
            let mut own = one.above.iter().filter_map(cycle);
            if let Some(cycle) = own.find(|cycle| holders.contains(cycle)) {
                deadlocks.entry(cycle).or_default().extend(&one.callees);
            }
        }
        let by_age = deadlocks.into_values().map(|mut callees| {
            callees.sort_unstable();
            Deadlock(callees)
        });
        let mut deadlocks: Vec<Deadlock> = by_age.collect();
        deadlocks.sort_unstable();
        deadlocks
    }

    /// All callees that can never be admitted unless a run is ended. Found by repeatedly removing callees that need
    /// no bucket in which every run has a remaining callee below it.
    fn stuck(&self) -> Vec<Stuck<'_>> {
        let mut stuck = self.callees();
        loop {
            let above = stuck.iter().flat_map(|one| one.above);
            let waiting_for_callees: BTreeSet<RunId> = above.copied().collect();
            let before = stuck.len();
            stuck.retain_mut(|one| {
                one.holders = self.holders_for_ever(one.lane, &waiting_for_callees);
                !one.holders.is_empty()
            });
            if stuck.len() == before {
                return stuck;
            }
        }
    }

    /// All waiting callees below runs in buckets.
    fn callees(&self) -> Vec<Stuck<'_>> {
        let mut alike: HashMap<_, Vec<Callee>> = HashMap::new();
        for (&run, waiting) in &self.waiting {
            if !waiting.above.is_empty() {
                let callee = Callee {
                    sequence: waiting.sequence,
                    run,
                    caller: waiting.caller,
                };
                let key = (&waiting.lane, &waiting.above);
                alike.entry(key).or_default().push(callee);
            }
        }
        let stuck = alike.into_iter().map(|((lane, above), callees)| Stuck {
            lane,
            above,
            callees,
            holders: BTreeSet::new(),
        });
        stuck.collect()
    }

    /// The runs in those buckets needed by `lane` in which every run is in `waiting_for_callees`.
    fn holders_for_ever(
        &self,
        lane: &Lane,
        waiting_for_callees: &BTreeSet<RunId>,
    ) -> BTreeSet<RunId> {
        let going = |bucket: &RuleKey| Some(&self.buckets.get(bucket)?.going);
        let buckets = lane.buckets.iter().filter_map(|bucket| {
            let going = going(bucket)?;
            self.limit_reached(bucket, lane, going.len())?;
            going.is_subset(waiting_for_callees).then_some(going)
        });
        buckets.flatten().copied().collect()
    }
}

/// The runs in buckets that wait for the ends of other such runs, with a number that is the same for runs that wait for
/// one another.
fn cycles(stuck: &[Stuck<'_>]) -> HashMap<RunId, usize> {
    let mut waits_for: DiGraphMap<RunId, ()> = DiGraphMap::new();
    for one in stuck {
        for &above in one.above {
            for &holder in &one.holders {
                waits_for.add_edge(above, holder, ());
            }
        }
    }
    let components = kosaraju_scc(&waits_for).into_iter().enumerate();
    let numbered =
        components.flat_map(|(number, runs)| runs.into_iter().map(move |run| (run, number)));
    numbered.collect()
}
