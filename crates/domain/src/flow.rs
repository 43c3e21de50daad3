//! Flow control: maximum concurrency, maximum rate and order of the runs that match a rule.
//!
//! A request that matches a rule is stored as `requested` and waits for *admission*; only then its launch enters the
//! work queue. The request fixes the buckets that the run needs; the current rules fix the size of each bucket. All
//! admissions form one chain with one guard: a gateway that admits has seen all earlier admissions, so no place in a
//! bucket is granted twice. A run leaves its buckets with its result, whichever part stores that. A run that does not
//! start, and holds a bucket that a callee needs, returns its admission.

mod ahead;
mod deadlock;
mod late;
#[cfg(test)]
mod tests;
mod why;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use self::ahead::Ahead;
pub use self::deadlock::Deadlock;
pub use self::late::Grant;
pub use self::why::{Block, Why};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
pub use crate::name::{MalformedRuleName, RuleName};
pub use crate::rule::{
    Admission, CAPSULES_MAX, Event, Facts, Held, KeyPart, MalformedKeyPart, PARTS_MAX,
    PRIORITY_MAX, RATE_SECONDS_MAX, RULES_MAX, RUNS_MAX, Rate, Rejection, Rule, RuleKey, Rules,
    TENANTS_MAX, WEIGHT_MAX, WEIGHTS_MAX, check,
};

use crate::run::{self, Launched};
use crate::subject::{self, Class, Pool, Subject};
use crate::tenant::Tenant;

/// Maximum runs that one event admits, so that the event stays small.
pub const GRANTS_MAX: usize = 128;

/// Roots admitted for each slot: one that runs and one in the queue, so that a free slot finds work while all other
/// roots keep their place in line.
const ROOTS_PER_SLOT: usize = 2;

/// Number of recent ends in each bucket whose times are kept for estimates.
const ENDS_KEPT_MAX: usize = 32;

/// Number of buckets that are always kept; above it, empty buckets are dropped from time to time.
const BUCKETS_KEPT_MAX: usize = if cfg!(test) { 100 } else { 10_000 };

/// Runs are admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Granted {
    #[serde(rename = "dev.aod.admission.granted.v1")]
    Granted {
        /// In this order, at most [`GRANTS_MAX`].
        runs: Vec<RunId>,
        /// The sequence of the last rule event that this admission is based on; 0 without one.
        rules: u64,
    },
}

impl Granted {
    pub fn subject(&self) -> Subject {
        subject::admission_event("granted")
    }

    pub fn runs(&self) -> &[RunId] {
        let Self::Granted { runs, .. } = self;
        runs
    }
}

/// The common properties of all runs that wait for the same; the earliest of them goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Lane {
    class: Class,
    priority: Reverse<i8>,
    pool: Pool,
    buckets: Vec<RuleKey>,
    shared: Vec<RuleKey>,
}

impl Lane {
    fn of(launched: &Launched, admission: &Admission) -> Self {
        Self {
            class: launched.placement.class,
            priority: Reverse(admission.priority),
            pool: launched.placement.pool.clone(),
            buckets: admission.buckets.clone(),
            shared: admission
                .shared
                .iter()
                .map(|held| held.bucket.clone())
                .collect(),
        }
    }

    /// The buckets that its runs hold themselves, without those of runs above them.
    fn held(&self) -> impl Iterator<Item = &RuleKey> {
        self.buckets
            .iter()
            .filter(|bucket| !self.shared.contains(bucket))
    }
}

/// A run that waits for admission.
#[derive(Clone, Debug)]
struct Waiting {
    lane: Lane,
    tenant: Tenant,
    /// The sequence of the request.
    sequence: u64,
    caller: Option<RunId>,
    /// The runs above it that hold buckets.
    above: BTreeSet<RunId>,
    /// Whether the run takes devices of its node, which waiting callers keep.
    takes_devices: bool,
}

/// A run that was admitted and has not ended.
#[derive(Clone, Debug)]
struct Going {
    lane: Lane,
    tenant: Tenant,
    /// The sequence of the admission.
    granted: u64,
    granted_at: Timestamp,
    is_launched: bool,
    /// The time since which the run waits for a node; none while a node has it.
    queued_at: Option<Timestamp>,
    caller: Option<RunId>,
    above: BTreeSet<RunId>,
    takes_devices: bool,
}

/// The runs in a bucket, and its recent starts and ends.
#[derive(Clone, Debug, Default)]
struct Bucket {
    going: BTreeSet<RunId>,
    /// Admission times, as far back as the rate counts.
    begun: VecDeque<Timestamp>,
    /// End times of the last runs.
    ended: VecDeque<Timestamp>,
}

/// Slots of live nodes, by their pools.
pub type Slots = BTreeMap<Pool, usize>;

/// All waiting and all admitted runs, computed from events. Events are applied in the order of the log, starting before
/// the first request of a run that has not ended.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    rules: Rules,
    lanes: BTreeMap<Lane, BTreeMap<u64, RunId>>,
    waiting: HashMap<RunId, Waiting>,
    going: HashMap<RunId, Going>,
    buckets: HashMap<RuleKey, Bucket>,
    /// Number of buckets at which empty buckets are dropped.
    buckets_before_sweep: usize,
    /// Admitted roots, and end times of earlier ones, by pool.
    roots: HashMap<Pool, Bucket>,
    last: Option<(u64, Digest)>,
    /// The admission that must be applied before this gateway admits runs.
    behind: Option<u64>,
}

impl Flow {
    /// The same rules, without any run. Afterwards, events from the sequence `from` on are applied; `last` is the last
    /// existing admission, which may be among them.
    pub fn begin(&self, from: u64, last: Option<&Recorded<Granted>>) -> Self {
        Self {
            rules: self.rules.clone(),
            last: last.map(|last| (last.sequence, last.hash)),
            behind: last
                .map(|last| last.sequence)
                .filter(|&sequence| sequence >= from),
            ..Self::default()
        }
    }

    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    pub const fn rules_mut(&mut self) -> &mut Rules {
        &mut self.rules
    }

    /// Whether no run waits, and no run is in a bucket.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.going.is_empty()
    }

    /// Whether `run` waits for admission, or is admitted and has not ended.
    pub fn knows(&self, run: RunId) -> bool {
        self.waiting.contains_key(&run) || self.going.contains_key(&run)
    }

    /// The last admission: the next one is guarded by it and chained to it.
    pub fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    /// How many runs wait for admission.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of admitted runs and of waiting runs of a rule.
    pub fn counts(&self, rule: &RuleName) -> (usize, usize) {
        let is_by = |buckets: &[RuleKey]| buckets.iter().any(|bucket| bucket.rule == *rule);
        let going = self
            .going
            .values()
            .filter(|going| is_by(&going.lane.buckets));
        let lanes = self.lanes.iter().filter(|(lane, _)| is_by(&lane.buckets));
        (going.count(), lanes.map(|(_, queue)| queue.len()).sum())
    }

    /// The longest period of a rate, in seconds; none without rates.
    pub fn rate_seconds_max(&self) -> Option<u32> {
        let rates = self.rules.iter().filter_map(|rule| rule.rate);
        rates.map(|rate| rate.seconds).max()
    }

    pub fn apply_run(&mut self, id: RunId, recorded: &Recorded<run::Event>) {
        match &recorded.event {
            run::Event::Requested(launched) => {
                self.wait(id, recorded.sequence, launched);
            }
            run::Event::Admitted(_) => {
                if let Some(going) = self.going.get_mut(&id) {
                    going.is_launched = true;
                }
            }
            run::Event::Leased(_) => self.queue_at(id, None),
            run::Event::AttemptLost(_) | run::Event::AttemptRefused(_) => {
                self.queue_at(id, Some(recorded.time));
            }
            run::Event::AttemptFailed(failed) => {
                self.queue_at(id, Some(failed.rests_until(recorded.time)));
            }
            run::Event::AdmissionReturned(_) => self.wait_again(id, recorded.sequence),
            run::Event::Ended(_) => self.end(id, recorded.time),
            _ => (),
        }
    }

    fn queue_at(&mut self, run: RunId, queued_at: Option<Timestamp>) {
        if let Some(going) = self.going.get_mut(&run) {
            going.queued_at = queued_at;
        }
    }

    fn wait(&mut self, run: RunId, sequence: u64, launched: &Launched) {
        let needs_nothing = Admission::default();
        let admission = launched.admission.as_deref().unwrap_or(&needs_nothing);
        let waiting = Waiting {
            lane: Lane::of(launched, admission),
            tenant: launched.tenant.clone(),
            sequence,
            caller: launched.parent.as_ref().map(|parent| parent.run),
            above: admission.shared.iter().map(|held| held.run).collect(),
            takes_devices: !launched.placement.requirements.devices.is_empty(),
        };
        self.enter_lane(run, waiting);
    }

    /// Behind all other runs, because the run did not use its turn.
    fn wait_again(&mut self, run: RunId, sequence: u64) {
        let Some(going) = self.leave(run, |_| ()) else {
            return;
        };
        let waiting = Waiting {
            lane: going.lane,
            tenant: going.tenant,
            sequence,
            caller: going.caller,
            above: going.above,
            takes_devices: going.takes_devices,
        };
        self.enter_lane(run, waiting);
    }

    fn enter_lane(&mut self, run: RunId, waiting: Waiting) {
        let queue = self.lanes.entry(waiting.lane.clone()).or_default();
        queue.insert(waiting.sequence, run);
        self.waiting.insert(run, waiting);
    }

    /// Applies an admission. Runs that have already ended are skipped.
    pub fn apply_granted(&mut self, recorded: &Recorded<Granted>) {
        if self.last.is_none_or(|(last, _)| recorded.sequence >= last) {
            self.last = Some((recorded.sequence, recorded.hash));
        }
        self.behind = self.behind.filter(|&behind| recorded.sequence < behind);
        for &run in recorded.event.runs() {
            if let Some(waited) = self.leave_lane(run) {
                self.enter(run, waited, recorded.sequence, recorded.time);
            }
        }
    }

    fn enter(&mut self, run: RunId, waited: Waiting, granted: u64, at: Timestamp) {
        let Waiting {
            lane,
            tenant,
            caller,
            above,
            takes_devices,
            ..
        } = waited;
        let held: BTreeSet<RuleKey> = lane.held().cloned().collect();
        for key in &lane.buckets {
            let seconds = self.rate_of(key).map_or(0, |rate| rate.seconds);
            let bucket = self.buckets.entry(key.clone()).or_default();
            forget_before(&mut bucket.begun, earlier(at, seconds));
            bucket.begun.push_back(at);
            if held.contains(key) {
                bucket.going.insert(run);
            }
        }
        if lane.class == Class::Root {
            let roots = self.roots.entry(lane.pool.clone()).or_default();
            roots.going.insert(run);
        }
        let going = Going {
            lane,
            tenant,
            granted,
            granted_at: at,
            is_launched: false,
            queued_at: Some(at),
            caller,
            above,
            takes_devices,
        };
        self.going.insert(run, going);
        self.forget_empty_buckets(at);
    }

    fn end(&mut self, run: RunId, at: Timestamp) {
        drop(self.leave_lane(run));
        self.leave(run, |bucket| {
            bucket.ended.push_back(at);
            if bucket.ended.len() > ENDS_KEPT_MAX {
                bucket.ended.pop_front();
            }
        });
    }

    /// Removes `run` from all buckets, and calls `left` with each.
    fn leave(&mut self, run: RunId, mut left: impl FnMut(&mut Bucket)) -> Option<Going> {
        let going = self.going.remove(&run)?;
        let mut leave = |bucket: &mut Bucket| {
            if bucket.going.remove(&run) {
                left(bucket);
            }
        };
        for key in &going.lane.buckets {
            self.buckets.get_mut(key).map(&mut leave);
        }
        self.roots.get_mut(&going.lane.pool).map(&mut leave);
        Some(going)
    }

    fn leave_lane(&mut self, run: RunId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&run)?;
        if let Some(queue) = self.lanes.get_mut(&waiting.lane) {
            queue.remove(&waiting.sequence);
            if queue.is_empty() {
                self.lanes.remove(&waiting.lane);
            }
        }
        Some(waiting)
    }

    /// Empty buckets that no rate counts any more serve only for estimates.
    fn forget_empty_buckets(&mut self, now: Timestamp) {
        if self.buckets.len() < self.buckets_before_sweep.max(BUCKETS_KEPT_MAX) {
            return;
        }
        let rules = &self.rules;
        self.buckets.retain(|key, bucket| {
            let rate = rules.get(&key.rule).and_then(|rule| rule.rate);
            let since = rate.map(|rate| earlier(now, rate.seconds));
            let begun = bucket.begun.back();
            !bucket.going.is_empty()
                || since.is_some_and(|since| begun.is_some_and(|&at| at > since))
        });
        // The next sweep comes at twice the number, so each bucket is checked only a few times.
        self.buckets_before_sweep = 2 * self.buckets.len();
    }

    /// The runs to admit now, in this order: none if no run may start, or if not all earlier admissions are applied.
    pub fn next(&self, slots: &Slots, now: Timestamp) -> Option<Granted> {
        if self.behind.is_some() {
            return None;
        }
        let mut ahead = Ahead::new(self, slots, now);
        let runs: Vec<RunId> = std::iter::from_fn(|| ahead.admit())
            .take(GRANTS_MAX)
            .collect();
        let rules = self.rules.sequence();
        (!runs.is_empty()).then_some(Granted::Granted { runs, rules })
    }

    /// The maximum of `bucket`, if `going` runs reach it so that a run of `lane` must wait for an end.
    fn limit_reached(&self, bucket: &RuleKey, lane: &Lane, going: usize) -> Option<u32> {
        // A removed rule blocks no run.
        let max = self.rules.get(&bucket.rule)?.concurrency_max?;
        (!lane.shared.contains(bucket) && going >= max as usize).then_some(max)
    }

    fn rate_of(&self, key: &RuleKey) -> Option<Rate> {
        self.rules.get(&key.rule)?.rate
    }

    /// The bucket in which a lane shares slots by weight, and its weight.
    fn share<'a>(&'a self, lane: &'a Lane) -> Option<(&'a RuleKey, u64)> {
        let fair = |bucket: &'a RuleKey| {
            let rule = self.rules.get(&bucket.rule).filter(|rule| rule.is_fair)?;
            Some((bucket, rule.weight(&bucket.key)))
        };
        lane.buckets.iter().find_map(fair)
    }

    fn going_in(&self, bucket: &RuleKey) -> usize {
        self.buckets
            .get(bucket)
            .map_or(0, |bucket| bucket.going.len())
    }

    fn begun_in(&self, bucket: &RuleKey, since: Timestamp) -> usize {
        let begun = self.buckets.get(bucket).map(|bucket| &bucket.begun);
        begun.map_or(0, |begun| {
            begun.iter().rev().take_while(|&&at| at > since).count()
        })
    }
}

fn earlier(at: Timestamp, seconds: u32) -> Timestamp {
    at.saturating_sub(SignedDuration::from_secs(seconds.into()))
        .unwrap_or(Timestamp::MIN)
}

fn forget_before(times: &mut VecDeque<Timestamp>, before: Timestamp) {
    while times.front().is_some_and(|&at| at <= before) {
        times.pop_front();
    }
}
