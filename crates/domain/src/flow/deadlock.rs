//! Runs that wait for themselves: each for a room whose runs cannot end, because what they called waits in the
//! same way.
//!
//! A run is taken not to end before all that it called. That a capsule may give a callee up by itself does not
//! count: until it does, nobody else can know.

use std::collections::BTreeSet;

use super::{Flow, RuleKey, Waiting};
use crate::id::RunId;

/// A callee that waits for rooms of which nobody can leave.
struct Stuck<'a> {
    run: RunId,
    waiting: &'a Waiting,
    /// The runs in those rooms.
    holders: BTreeSet<RunId>,
}

impl Flow {
    /// The youngest of the runs that wait for themselves; none if nobody does, or if not all that were admitted
    /// are taken in. Once it has ended, its caller can go on, and others with it.
    pub fn deadlocked(&self) -> Option<RunId> {
        if self.behind.is_some() {
            return None;
        }
        let mut stuck = self.stuck();
        stuck.sort_unstable_by_key(|one| one.waiting.sequence);
        let waits_for_itself = |index: &usize| is_in_cycle(*index, &stuck);
        let youngest = (0..stuck.len()).rev().find(waits_for_itself)?;
        Some(stuck[youngest].run)
    }

    /// All that cannot go as long as nobody is ended. Found by leaving out, again and again, who waits for a run
    /// above nobody who is left.
    fn stuck(&self) -> Vec<Stuck<'_>> {
        let callees = self.waiting.iter();
        let callees = callees.filter(|(_, waiting)| !waiting.above.is_empty());
        let mut stuck: Vec<Stuck<'_>> = callees
            .map(|(&run, waiting)| Stuck {
                run,
                waiting,
                holders: BTreeSet::new(),
            })
            .collect();
        loop {
            let above = stuck.iter().flat_map(|one| &one.waiting.above);
            let waiting_for_callees: BTreeSet<RunId> = above.copied().collect();
            let before = stuck.len();
            stuck.retain_mut(|one| {
                one.holders = self.holders_for_ever(one.waiting, &waiting_for_callees);
                !one.holders.is_empty()
            });
            if stuck.len() == before {
                return stuck;
            }
        }
    }

    /// Who is in those rooms that `waiting` needs of which everybody is in `waiting_for_callees`.
    fn holders_for_ever(
        &self,
        waiting: &Waiting,
        waiting_for_callees: &BTreeSet<RunId>,
    ) -> BTreeSet<RunId> {
        let going = |room: &RuleKey| Some(&self.rooms.get(room)?.going);
        let rooms = waiting.lane.rooms.iter().filter_map(|room| {
            let going = going(room)?;
            self.limit_reached(room, &waiting.lane, going.len())?;
            going.is_subset(waiting_for_callees).then_some(going)
        });
        rooms.flatten().copied().collect()
    }
}

/// Whether the one at `index` waits for a run above one that waits for ... a run above itself.
fn is_in_cycle(index: usize, stuck: &[Stuck<'_>]) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![index];
    while let Some(one) = next.pop() {
        let holders = &stuck[one].holders;
        let is_below = |other: &usize| !stuck[*other].waiting.above.is_disjoint(holders);
        for other in (0..stuck.len()).filter(is_below) {
            if other == index {
                return true;
            }
            if seen.insert(other) {
                next.push(other);
            }
        }
    }
    false
}
