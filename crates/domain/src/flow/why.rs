//! Why a run waits for admission: the limit that blocks it, the runs that hold places, its place in line, and an
//! estimate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::{Ahead, Flow, Lane, Rate, RuleKey, Slots, Waiting, earlier};
use crate::id::RunId;
use crate::subject::{Class, Pool};

/// Maximum holders that are named.
const HOLDERS_MAX: usize = 10;

/// The limit that blocks a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The bucket has its maximum number of runs.
    Concurrency { bucket: RuleKey, max: u32 },
    /// The bucket had its maximum number of starts within the period of its rate.
    Rate { bucket: RuleKey, rate: Rate },
    /// All slots of this pool have work, and the same number of roots is in the queue.
    Slots { pool: Pool, slots: usize },
    /// This pool has no online node.
    NoNode(Pool),
}

/// Why a run waits for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// None if the run is about to be admitted.
    pub block: Option<Block>,
    /// The first ten runs of its own tenant whose end it waits for.
    pub holders: Vec<RunId>,
    /// Number of all such runs, of all tenants.
    pub holders_count: usize,
    /// From 1, among the runs that the same limit blocks, in the order in which they would be admitted now.
    pub place: usize,
    /// The expected admission, at the recent pace; none if nothing is known about that.
    pub estimate: Option<Timestamp>,
}

impl Flow {
    /// Why `run` waits for admission; none if it does not.
    pub fn why(&self, run: RunId, slots: &Slots, now: Timestamp) -> Option<Why> {
        let Waiting {
            lane,
            tenant,
            sequence,
            ..
        } = self.waiting.get(&run)?;
        let ahead = Ahead::new(self, slots, now);
        let block = ahead.block(lane);
        let place = self.place(lane, *sequence, block.as_ref());
        let going = self.holders(block.as_ref());
        let is_own = |run: &&RunId| {
            let holder = self.going.get(run);
            holder.is_some_and(|going| going.tenant == *tenant)
        };
        let own = going.iter().filter(is_own);
        Some(Why {
            holders: own.take(HOLDERS_MAX).copied().collect(),
            holders_count: going.len(),
            estimate: self.estimate(block.as_ref(), place, now),
            block,
            place,
        })
    }

    fn holders(&self, block: Option<&Block>) -> BTreeSet<RunId> {
        let bucket = match block {
            Some(Block::Concurrency { bucket, .. }) => self.buckets.get(bucket),
            Some(Block::Slots { pool, .. }) => self.roots.get(pool),
            Some(Block::Rate { .. } | Block::NoNode(_)) | None => None,
        };
        bucket
            .map(|bucket| bucket.going.clone())
            .unwrap_or_default()
    }

    /// Its place among the runs that wait for the same: before it come runs of a higher class or priority, and of its
    /// own class and priority those whose share is smaller by then.
    fn place(&self, lane: &Lane, sequence: u64, block: Option<&Block>) -> usize {
        let mut before = 0;
        let mut shares: BTreeMap<Option<&RuleKey>, Share> = BTreeMap::new();
        for (other, queue) in self.lanes.iter().filter(|(lane, _)| is_held(lane, block)) {
            let order = (other.class, other.priority).cmp(&(lane.class, lane.priority));
            if order.is_gt() {
                continue;
            }
            let share = self.share(other);
            let new = || Share::of(self, share);
            let share = shares
                .entry(share.map(|(bucket, _)| bucket))
                .or_insert_with(new);
            if order.is_lt() {
                before += queue.len();
                share.going += queue.len() as u64;
            } else {
                share.waiting.extend(queue.keys());
            }
        }
        for share in shares.values_mut() {
            share.waiting.sort_unstable();
        }
        let own = self.share(lane).map(|(bucket, _)| bucket);
        let Some(mine) = shares.get(&own) else {
            return 1;
        };
        let rank = mine.waiting.partition_point(|&other| other < sequence);
        let others = shares.iter().map(|(key, share)| match (key, own) {
            (Some(key), Some(own)) if *key != own => share.before(mine, rank, sequence),
            _ => share.waiting.partition_point(|&other| other < sequence),
        });
        before + others.sum::<usize>() + 1
    }

    fn estimate(&self, block: Option<&Block>, place: usize, now: Timestamp) -> Option<Timestamp> {
        let bucket = match block? {
            Block::Concurrency { bucket, .. } => self.buckets.get(bucket),
            Block::Slots { pool, .. } => self.roots.get(pool),
            Block::Rate { bucket, rate } => {
                return Some(self.next_by_rate(bucket, *rate, place, now));
            }
            Block::NoNode(_) => None,
        }?;
        let each = mean_pause(&bucket.ended)?;
        let span = each.checked_mul(i32::try_from(place).ok()?)?;
        let since = bucket.ended.back().copied().unwrap_or(now);
        Some(since.checked_add(span).ok()?.max(now))
    }

    /// The time at which the bucket has few enough recent starts for the run at `place`.
    fn next_by_rate(
        &self,
        bucket: &RuleKey,
        rate: Rate,
        place: usize,
        now: Timestamp,
    ) -> Timestamp {
        let since = earlier(now, rate.seconds);
        let begun: Vec<Timestamp> = self.buckets.get(bucket).map_or_else(Vec::new, |bucket| {
            let begun = bucket.begun.iter().copied();
            begun.filter(|at| *at > since).collect()
        });
        let (runs, period) = (rate.runs.max(1) as usize, i64::from(rate.seconds));
        // Each admitted run frees its place one period later, so the line advances by the maximum of the rate each
        // period.
        let index = begun.len() + place - 1;
        let (rounds, first) = (index / runs, index % runs);
        let from = begun.get(first).copied().unwrap_or(now);
        let span = i64::try_from(rounds)
            .unwrap_or(i64::MAX)
            .saturating_mul(period);
        from.checked_add(SignedDuration::from_secs(span))
            .unwrap_or(Timestamp::MAX)
            .max(now)
    }
}

/// The waiting runs of one share, by the time of their requests.
struct Share {
    /// Runs of the share that are admitted, or will be before any of these.
    going: u64,
    weight: u64,
    waiting: Vec<u64>,
}

impl Share {
    fn of(flow: &Flow, share: Option<(&RuleKey, u64)>) -> Self {
        Self {
            going: share.map_or(0, |(bucket, _)| flow.going_in(bucket) as u64),
            weight: share.map_or(1, |(_, weight)| weight),
            waiting: Vec::new(),
        }
    }

    /// Number of these runs that go before the run of `other` requested at `sequence`, which has `rank` runs before it
    /// there.
    fn before(&self, other: &Self, rank: usize, sequence: u64) -> usize {
        let theirs = other.going + rank as u64 + 1;
        let waiting = self.waiting.iter().enumerate();
        let goes_first = |(index, asked): (usize, &u64)| {
            let mine = self.going + index as u64 + 1;
            let order = (mine * other.weight).cmp(&(theirs * self.weight));
            order.then(asked.cmp(&sequence)).is_lt()
        };
        waiting.take_while(|&one| goes_first(one)).count()
    }
}

/// Whether `block` blocks the runs of `lane`, too.
fn is_held(lane: &Lane, block: Option<&Block>) -> bool {
    match block {
        None => true,
        Some(Block::Slots { pool, .. } | Block::NoNode(pool)) => {
            lane.class == Class::Root && lane.pool == *pool
        }
        Some(Block::Concurrency { bucket, .. } | Block::Rate { bucket, .. }) => {
            lane.buckets.contains(bucket)
        }
    }
}

/// The mean time between two ends.
fn mean_pause(ends: &VecDeque<Timestamp>) -> Option<SignedDuration> {
    let (first, last) = (ends.front()?, ends.back()?);
    let pauses = i32::try_from(ends.len()).ok()? - 1;
    (pauses > 0).then(|| last.duration_since(*first) / pauses)
}
