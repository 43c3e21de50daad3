//! Runs that were admitted and have not got further since.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Flow, Going, RuleKey};
use crate::id::RunId;
use crate::subject::Class;

/// A run that was admitted, and the sequence of its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub run: RunId,
    pub granted: u64,
}

impl Grant {
    const fn of(run: RunId, going: &Going) -> Self {
        Self {
            run,
            granted: going.granted,
        }
    }
}

impl Flow {
    /// Runs that were admitted before `before`, and whose launches are not stored yet: whoever admitted them
    /// may have died over it.
    pub fn not_launched(&self, before: Timestamp) -> Vec<Grant> {
        self.late(before, |going| !going.is_launched)
    }

    /// Runs that were admitted before `before` and that no node has taken, while callees wait for a room that they
    /// are in. They may wait for memory or devices, which the callers of those keep until they have their answers.
    pub fn not_taken(&self, before: Timestamp) -> Vec<Grant> {
        if self.behind.is_some() {
            return Vec::new();
        }
        let callees = self.lanes.keys().filter(|lane| lane.class == Class::Child);
        let full = callees.flat_map(|lane| {
            let is_full = |room: &&RuleKey| {
                let going = self.going_in(room);
                self.limit_reached(room, lane, going).is_some()
            };
            lane.rooms.iter().filter(is_full)
        });
        let full: BTreeSet<&RuleKey> = full.collect();
        self.late(before, |going| {
            let is_in_the_way = || going.lane.held().any(|room| full.contains(room));
            // A callee without devices waits for a slot at the most, which those who wait give away.
            let may_wait_for_callers = going.lane.class == Class::Root || going.takes_devices;
            going.is_launched && !going.is_taken && may_wait_for_callers && is_in_the_way()
        })
    }

    fn late(&self, before: Timestamp, is_meant: impl Fn(&Going) -> bool) -> Vec<Grant> {
        let late = self.going.iter();
        let late = late.filter(|(_, going)| going.granted_at < before && is_meant(going));
        let mut late: Vec<Grant> = late.map(|(run, going)| Grant::of(*run, going)).collect();
        late.sort_unstable();
        late
    }
}
