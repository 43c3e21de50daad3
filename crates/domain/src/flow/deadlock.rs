//! Runs that wait for themselves: each for a room whose runs cannot end, because what they called waits in the
//! same way.
//!
//! A run is taken not to end before all that it called. That a capsule may give a callee up by itself does not
//! count: until it does, nobody else can know.

use std::collections::{BTreeSet, HashMap};

use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;

use super::{Flow, Lane, RuleKey};
use crate::id::RunId;

/// Callees that wait for one another, and so each for itself; the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadlock(Vec<Callee>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Callee {
    /// The sequence of its request.
    sequence: u64,
    run: RunId,
    caller: Option<RunId>,
}

impl Deadlock {
    pub fn runs(&self) -> impl Iterator<Item = RunId> {
        self.0.iter().map(|callee| callee.run)
    }

    /// Whose end lets their caller go on, and others with it: of those in `lasting` the youngest, and all others
    /// of the same caller.
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

/// Callees below the same runs that wait for the same rooms, of which nobody can leave.
struct Stuck<'a> {
    lane: &'a Lane,
    above: &'a BTreeSet<RunId>,
    callees: Vec<Callee>,
    /// The runs in those rooms.
    holders: BTreeSet<RunId>,
}

impl Flow {
    /// Those that wait for themselves, together if they wait for one another; none if not all that were admitted
    /// are taken in.
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
            // It is above whoever keeps it waiting.
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

    /// All that cannot go as long as nobody is ended. Found by leaving out, again and again, who waits for a run
    /// above nobody who is left.
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

    /// All waiting callees below runs in rooms.
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

    /// Who is in those rooms that runs of `lane` need of which everybody is in `waiting_for_callees`.
    fn holders_for_ever(
        &self,
        lane: &Lane,
        waiting_for_callees: &BTreeSet<RunId>,
    ) -> BTreeSet<RunId> {
        let going = |room: &RuleKey| Some(&self.rooms.get(room)?.going);
        let rooms = lane.rooms.iter().filter_map(|room| {
            let going = going(room)?;
            self.limit_reached(room, lane, going.len())?;
            going.is_subset(waiting_for_callees).then_some(going)
        });
        rooms.flatten().copied().collect()
    }
}

/// The runs in rooms that wait for the ends of others in rooms, with numbers that are the same for those that wait
/// for one another.
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
