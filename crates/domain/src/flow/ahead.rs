//! Who is next: what would be if some more were admitted than are.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::{Block, Flow, Lane, ROOTS_PER_SLOT, RuleKey, Slots, earlier};
use crate::id::RunId;
use crate::subject::{Class, Label};

/// What would be if some more were admitted than are.
pub(super) struct Ahead<'a> {
    flow: &'a Flow,
    slots: &'a Slots,
    now: Timestamp,
    /// Of each lane, how many of its runs were admitted in thought.
    taken: BTreeMap<&'a Lane, usize>,
    /// The same by the rooms that they are in, those that they pass through, and their labels.
    entered: HashMap<&'a RuleKey, usize>,
    begun: HashMap<&'a RuleKey, usize>,
    roots: HashMap<&'a Label, usize>,
}

impl<'a> Ahead<'a> {
    pub(super) fn new(flow: &'a Flow, slots: &'a Slots, now: Timestamp) -> Self {
        Self {
            flow,
            slots,
            now,
            taken: BTreeMap::new(),
            entered: HashMap::new(),
            begun: HashMap::new(),
            roots: HashMap::new(),
        }
    }

    /// The next run that may go.
    pub(super) fn admit(&mut self) -> Option<RunId> {
        // Most of those that wait, wait for slots: that is told at once.
        self.take(|ahead, lane| {
            ahead.block_by_slots(lane).is_none() && ahead.block_by_rooms(lane).is_none()
        })
    }

    /// Takes the first run of all lanes of which `is_open` says so.
    pub(super) fn take(&mut self, is_open: impl Fn(&Self, &Lane) -> bool) -> Option<RunId> {
        let heads = self.flow.lanes.iter().filter_map(|(lane, queue)| {
            let taken = self.taken.get(lane).copied().unwrap_or_default();
            let (&sequence, &run) = queue.iter().nth(taken)?;
            Some((lane, sequence, run))
        });
        let open = heads.filter(|(lane, ..)| is_open(self, lane));
        let (lane, _, run) = open.min_by(|one, other| self.compare(one, other))?;
        *self.taken.entry(lane).or_default() += 1;
        for room in &lane.rooms {
            *self.begun.entry(room).or_default() += 1;
        }
        for room in lane.held() {
            *self.entered.entry(room).or_default() += 1;
        }
        if lane.class == Class::Root {
            *self.roots.entry(&lane.label).or_default() += 1;
        }
        Some(run)
    }

    /// Callees first, then by priority; then whoever has least of its share; then whoever came first.
    fn compare(
        &self,
        (one, one_at, _): &(&'a Lane, u64, RunId),
        (other, other_at, _): &(&'a Lane, u64, RunId),
    ) -> Ordering {
        let order = (one.class, one.priority).cmp(&(other.class, other.priority));
        order
            .then_with(|| self.compare_shares(one, other))
            .then(one_at.cmp(other_at))
    }

    fn compare_shares(&self, one: &Lane, other: &Lane) -> Ordering {
        match (self.flow.share(one), self.flow.share(other)) {
            (Some((one, one_weight)), Some((other, other_weight))) => {
                let one = self.in_room(one) as u64;
                let other = self.in_room(other) as u64;
                // Who has less for its weight once it has one more.
                ((one + 1) * other_weight).cmp(&((other + 1) * one_weight))
            }
            _ => Ordering::Equal,
        }
    }

    fn in_room(&self, room: &RuleKey) -> usize {
        let entered = self.entered.get(room).copied().unwrap_or_default();
        self.flow.going_in(room) + entered
    }

    /// Why the next run of `lane` may not go now.
    pub(super) fn block(&self, lane: &Lane) -> Option<Block> {
        self.block_by_rooms(lane)
            .or_else(|| self.block_by_slots(lane))
    }

    fn block_by_rooms(&self, lane: &Lane) -> Option<Block> {
        let mut rooms = lane.rooms.iter();
        rooms.find_map(|room| self.block_in(lane, room))
    }

    fn block_in(&self, lane: &Lane, room: &RuleKey) -> Option<Block> {
        if let Some(max) = self.flow.limit_reached(room, lane, self.in_room(room)) {
            return Some(Block::Concurrency {
                room: room.clone(),
                max,
            });
        }
        let rate = self.flow.rate_of(room)?;
        let since = earlier(self.now, rate.seconds);
        let begun = self.begun.get(room).copied().unwrap_or_default();
        (self.flow.begun_in(room, since) + begun >= rate.runs as usize).then(|| Block::Rate {
            room: room.clone(),
            rate,
        })
    }

    /// Roots wait for slots; what was called has to go, or its caller would wait for ever.
    fn block_by_slots(&self, lane: &Lane) -> Option<Block> {
        if lane.class == Class::Child {
            return None;
        }
        let label = &lane.label;
        let Some(&slots) = self.slots.get(label) else {
            return Some(Block::NoNode(label.clone()));
        };
        let entered = self.roots.get(label).copied().unwrap_or_default();
        let roots = self.flow.roots.get(label);
        let going = roots.map_or(0, |roots| roots.going.len()) + entered;
        (going >= ROOTS_PER_SLOT * slots).then(|| Block::Slots {
            label: label.clone(),
            slots,
        })
    }
}
