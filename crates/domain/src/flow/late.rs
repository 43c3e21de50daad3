//! Runs that were admitted and made no progress since.

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
    /// Runs admitted before `before` whose launches are not stored yet, for example because the gateway died.
    pub fn not_launched(&self, before: Timestamp) -> Vec<Grant> {
        self.late(|going| !going.is_launched && going.granted_at < before)
    }

    /// Runs that wait for a node since before `before`, for their first or a later attempt, while callees wait for a
    /// bucket that these runs hold. They may wait for memory or devices, which waiting callers keep.
    pub fn not_taken(&self, before: Timestamp) -> Vec<Grant> {
        if self.behind.is_some() {
            return Vec::new();
        }
        let callees = self.lanes.keys().filter(|lane| lane.class == Class::Child);
        let full = callees.flat_map(|lane| {
            let is_full = |bucket: &&RuleKey| {
                let going = self.going_in(bucket);
                self.limit_reached(bucket, lane, going).is_some()
            };
            lane.buckets.iter().filter(is_full)
        });
        let full: BTreeSet<&RuleKey> = full.collect();
        self.late(|going| {
            let is_in_the_way = || going.lane.held().any(|bucket| full.contains(bucket));
            // A callee without devices waits at most for a slot, which waiting callers free.
            let may_wait_for_callers = going.lane.class == Class::Root || going.takes_devices;
            let is_late = going.queued_at.is_some_and(|since| since < before);
            going.is_launched && is_late && may_wait_for_callers && is_in_the_way()
        })
    }

    fn late(&self, is_late: impl Fn(&Going) -> bool) -> Vec<Grant> {
        let late = self.going.iter().filter(|(_, going)| is_late(going));
        let mut late: Vec<Grant> = late.map(|(run, going)| Grant::of(*run, going)).collect();
        late.sort_unstable();
        late
    }
}
