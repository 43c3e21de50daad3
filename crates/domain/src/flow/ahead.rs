//! Selects the next run to admit, assuming that some more runs are already admitted.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::{Block, Flow, Lane, ROOTS_PER_SLOT, RuleKey, Slots, earlier};
use crate::id::RunId;
use crate::subject::{Class, Pool};

/// The state of the flow if some more runs were admitted.
pub(super) struct Ahead<'a> {
    flow: &'a Flow,
    slots: &'a Slots,
    now: Timestamp,
    /// Number of assumed admissions of each lane.
    taken: BTreeMap<&'a Lane, usize>,
    /// The same number by the buckets that they hold, the buckets that they share, and their pools.
    entered: HashMap<&'a RuleKey, usize>,
    begun: HashMap<&'a RuleKey, usize>,
    roots: HashMap<&'a Pool, usize>,
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

    /// The next run that may be admitted.
    pub(super) fn admit(&mut self) -> Option<RunId> {
        // Most waiting runs wait for slots, and this check is cheap.
        self.take(|ahead, lane| {
            ahead.block_by_slots(lane).is_none() && ahead.block_by_buckets(lane).is_none()
        })
    }

    /// Takes the first run of all lanes that `is_open` accepts.
    pub(super) fn take(&mut self, is_open: impl Fn(&Self, &Lane) -> bool) -> Option<RunId> {
        let heads = self.flow.lanes.iter().filter_map(|(lane, queue)| {
            let taken = self.taken.get(lane).copied().unwrap_or_default();
            let (&sequence, &run) = queue.iter().nth(taken)?;
            Some((lane, sequence, run))
        });
        let open = heads.filter(|(lane, ..)| is_open(self, lane));
        let (lane, _, run) = open.min_by(|one, other| self.compare(one, other))?;
        *self.taken.entry(lane).or_default() += 1;
        for bucket in &lane.buckets {
            *self.begun.entry(bucket).or_default() += 1;
        }
        for bucket in lane.held() {
            *self.entered.entry(bucket).or_default() += 1;
        }
        if lane.class == Class::Root {
            *self.roots.entry(&lane.pool).or_default() += 1;
        }
        Some(run)
    }

    /// Callees first, then by priority, then by the smallest share, then by age.
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
                let one = self.in_bucket(one) as u64;
                let other = self.in_bucket(other) as u64;
                // Compares the shares by weight after one more admission each.
                ((one + 1) * other_weight).cmp(&((other + 1) * one_weight))
            }
            _ => Ordering::Equal,
        }
    }

    fn in_bucket(&self, bucket: &RuleKey) -> usize {
        let entered = self.entered.get(bucket).copied().unwrap_or_default();
        self.flow.going_in(bucket) + entered
    }

    /// The limit that blocks the next run of `lane` now.
    pub(super) fn block(&self, lane: &Lane) -> Option<Block> {
        self.block_by_buckets(lane)
            .or_else(|| self.block_by_slots(lane))
    }

    fn block_by_buckets(&self, lane: &Lane) -> Option<Block> {
        let mut buckets = lane.buckets.iter();
        buckets.find_map(|bucket| self.block_in(lane, bucket))
    }

    fn block_in(&self, lane: &Lane, bucket: &RuleKey) -> Option<Block> {
        if let Some(max) = self
            .flow
            .limit_reached(bucket, lane, self.in_bucket(bucket))
        {
            return Some(Block::Concurrency {
                bucket: bucket.clone(),
                max,
            });
        }
        let rate = self.flow.rate_of(bucket)?;
        let since = earlier(self.now, rate.seconds);
        let begun = self.begun.get(bucket).copied().unwrap_or_default();
        (self.flow.begun_in(bucket, since) + begun >= rate.runs as usize).then(|| Block::Rate {
            bucket: bucket.clone(),
            rate,
        })
    }

    /// Roots wait for slots; callees must be admitted, or their callers would wait for ever.
    fn block_by_slots(&self, lane: &Lane) -> Option<Block> {
        if lane.class == Class::Child {
            return None;
        }
        let pool = &lane.pool;
        let Some(&slots) = self.slots.get(pool) else {
            return Some(Block::NoNode(pool.clone()));
        };
        let entered = self.roots.get(pool).copied().unwrap_or_default();
        let roots = self.flow.roots.get(pool);
        let going = roots.map_or(0, |roots| roots.going.len()) + entered;
        (going >= ROOTS_PER_SLOT * slots).then(|| Block::Slots {
            pool: pool.clone(),
            slots,
        })
    }
}
