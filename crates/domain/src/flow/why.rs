//! Why a run waits for admission: what holds it, who is in its way, its place in line, and an estimate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::{Ahead, Flow, Lane, Rate, RuleKey, Slots, Waiting, earlier};
use crate::id::RunId;
use crate::subject::{Class, Label};

/// Holders that are named.
const HOLDERS_MAX: usize = 10;

/// What holds a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// So many as may are in the room.
    Concurrency { room: RuleKey, max: u32 },
    /// So many as may have begun lately.
    Rate { room: RuleKey, rate: Rate },
    /// All slots of this label have work, and as much again is in their queue.
    Slots { label: Label, slots: usize },
    /// No node of this label is there.
    NoNode(Label),
}

/// Why a run waits for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// None if it is about to be admitted.
    pub block: Option<Block>,
    /// Runs of its own tenant that it waits for the end of, the first ten.
    pub holders: Vec<RunId>,
    /// How many there are, of all tenants.
    pub holders_count: usize,
    /// From 1, among those that what holds it holds, as they would go now.
    pub place: usize,
    /// When it goes, if all goes on as it did lately; none if nothing is known of that.
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
        let room = match block {
            Some(Block::Concurrency { room, .. }) => self.rooms.get(room),
            Some(Block::Slots { label, .. }) => self.roots.get(label),
            Some(Block::Rate { .. } | Block::NoNode(_)) | None => None,
        };
        room.map(|room| room.going.clone()).unwrap_or_default()
    }

    /// Which of those that wait for the same thing it is: as many go before it as have a higher class or priority,
    /// and of its own those whose share is smaller by then.
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
                .entry(share.map(|(room, _)| room))
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
        let own = self.share(lane).map(|(room, _)| room);
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
        let room = match block? {
            Block::Concurrency { room, .. } => self.rooms.get(room),
            Block::Slots { label, .. } => self.roots.get(label),
            Block::Rate { room, rate } => return Some(self.next_by_rate(room, *rate, place, now)),
            Block::NoNode(_) => None,
        }?;
        let each = mean_pause(&room.ended)?;
        let span = each.checked_mul(i32::try_from(place).ok()?)?;
        let since = room.ended.back().copied().unwrap_or(now);
        Some(since.checked_add(span).ok()?.max(now))
    }

    /// When the room has been passed by few enough for the one at `place`.
    fn next_by_rate(&self, room: &RuleKey, rate: Rate, place: usize, now: Timestamp) -> Timestamp {
        let since = earlier(now, rate.seconds);
        let begun: Vec<Timestamp> = self.rooms.get(room).map_or_else(Vec::new, |room| {
            let begun = room.begun.iter().copied();
            begun.filter(|at| *at > since).collect()
        });
        let (runs, period) = (rate.runs.max(1) as usize, i64::from(rate.seconds));
        // Whoever goes frees its place a period later: the line moves by as many as begin in each.
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

/// Those of one share that wait with somebody, by when they asked.
struct Share {
    /// Those that go, or will before any of these.
    going: u64,
    weight: u64,
    waiting: Vec<u64>,
}

impl Share {
    fn of(flow: &Flow, share: Option<(&RuleKey, u64)>) -> Self {
        Self {
            going: share.map_or(0, |(room, _)| flow.going_in(room) as u64),
            weight: share.map_or(1, |(_, weight)| weight),
            waiting: Vec::new(),
        }
    }

    /// How many of these go before the one of `other` that has `rank` before it there, and asked at `sequence`.
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

/// Whether `block` holds the runs of `lane`, too.
fn is_held(lane: &Lane, block: Option<&Block>) -> bool {
    match block {
        None => true,
        Some(Block::Slots { label, .. } | Block::NoNode(label)) => {
            lane.class == Class::Root && lane.label == *label
        }
        Some(Block::Concurrency { room, .. } | Block::Rate { room, .. }) => {
            lane.rooms.contains(room)
        }
    }
}

/// The mean time between two ends.
fn mean_pause(ends: &VecDeque<Timestamp>) -> Option<SignedDuration> {
    let (first, last) = (ends.front()?, ends.back()?);
    let pauses = i32::try_from(ends.len()).ok()? - 1;
    (pauses > 0).then(|| last.duration_since(*first) / pauses)
}
