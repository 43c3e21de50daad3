//! Flow control: how many runs of a kind go at once, how often they begin, and who is next.
//!
//! A request that a rule is for is stored as such and waits for *admission*: its launch, and with it its
//! place in the work queue, comes only when it may go. Which rooms it needs is settled when it is asked for;
//! how large they are, the rules say at any moment. All admissions are one chain with one guard, so that
//! whoever admits has seen all that was admitted before, and no room is ever given twice. A room is free again
//! when the run has its result, whoever stored that; who does not start and stands in a callee's way gives it back.

mod ahead;
mod deadlock;
mod late;
mod rule;
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
pub use self::rule::{
    CAPSULES_MAX, Event, Facts, KeyPart, MalformedKeyPart, MalformedRuleName, PARTS_MAX,
    RATE_SECONDS_MAX, RULES_MAX, RUNS_MAX, Rate, Rule, RuleKey, RuleName, TENANTS_MAX, WEIGHT_MAX,
    WEIGHTS_MAX,
};
pub use self::why::{Block, Why};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::run::{self, Launched};
use crate::subject::{self, Class, Label, Subject};
use crate::tenant::Tenant;

/// Runs that one event admits, so that it stays small.
pub const GRANTS_MAX: usize = 128;

/// Roots that are admitted for each slot: one that runs, and one in the queue, so that a slot that gets
/// free finds work while everyone else keeps their place.
const ROOTS_PER_SLOT: usize = 2;

/// Ends of which the times are kept for estimates, of each room.
const ENDS_KEPT_MAX: usize = 32;

/// Rooms that are kept in any case; beyond them those that nobody is in are forgotten now and then.
const ROOMS_KEPT_MAX: usize = 10_000;

/// The highest priority; the lowest is its negative.
pub const PRIORITY_MAX: i8 = 100;

/// How a request waits for admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Who goes first of those that wait, from -100 to 100; callees have their caller's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// The rooms that it needs; without any it does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rooms: Vec<RuleKey>,
    /// Rooms that a run above it has: whoever is called is in them with its caller, and never waits for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Held>,
}

/// A room, and the run that is in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    #[serde(flatten)]
    pub room: RuleKey,
    pub run: RunId,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(priority: &i8) -> bool {
    *priority == 0
}

impl Admission {
    /// What the request for a run of `class` needs by `rules`; none if nothing of it is worth keeping. `shared`
    /// is what the runs above it have.
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a Rule>,
        facts: &Facts<'_>,
        priority: i8,
        shared: Vec<Held>,
        class: Class,
    ) -> Option<Self> {
        let is_root = class == Class::Root;
        let rules = rules.into_iter();
        let rooms = rules.filter(|rule| is_root || rule.is_for_callees());
        let rooms = rooms.filter_map(|rule| {
            let room = rule.room(facts)?;
            let is_needed = rule.rate.is_some() || !shared.iter().any(|held| held.room == room);
            is_needed.then_some(room)
        });
        let admission = Self {
            priority,
            rooms: rooms.collect(),
            shared,
        };
        (admission != Self::default()).then_some(admission)
    }

    /// What those share that `run` calls, which has this.
    pub fn shared_below(&self, run: RunId) -> Vec<Held> {
        let above = self.shared.iter().map(|held| &held.room);
        let above: BTreeSet<&RuleKey> = above.collect();
        let own = self.rooms.iter().filter(|room| !above.contains(room));
        let own = own.map(|room| Held {
            room: room.clone(),
            run,
        });
        let mut shared: Vec<Held> = self.shared.iter().cloned().chain(own).collect();
        shared.sort_unstable();
        shared
    }

    pub fn must_wait(&self) -> bool {
        !self.rooms.is_empty()
    }
}

/// Runs may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Granted {
    #[serde(rename = "dev.aod.admission.granted.v1")]
    Granted {
        /// In this order, at most [`GRANTS_MAX`].
        runs: Vec<RunId>,
        /// The sequence of the last event about a rule that this was decided on; 0 if there was none.
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

/// What all runs that wait for the same have in common: of those the earliest goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Lane {
    class: Class,
    priority: Reverse<i8>,
    label: Label,
    rooms: Vec<RuleKey>,
    shared: Vec<RuleKey>,
}

impl Lane {
    fn of(launched: &Launched, admission: &Admission) -> Self {
        Self {
            class: launched.placement.class,
            priority: Reverse(admission.priority),
            label: launched.placement.label.clone(),
            rooms: admission.rooms.clone(),
            shared: admission
                .shared
                .iter()
                .map(|held| held.room.clone())
                .collect(),
        }
    }

    /// The rooms that its runs are in alone, without a run above them.
    fn held(&self) -> impl Iterator<Item = &RuleKey> {
        self.rooms.iter().filter(|room| !self.shared.contains(room))
    }
}

/// A run that waits for admission.
#[derive(Clone, Debug)]
struct Waiting {
    lane: Lane,
    tenant: Tenant,
    /// The sequence of its request.
    sequence: u64,
    caller: Option<RunId>,
    /// The runs above it that are in rooms.
    above: BTreeSet<RunId>,
    /// Whether it takes something of its node that others have while they wait for what they called.
    takes_devices: bool,
}

/// A run that was admitted and has not ended.
#[derive(Clone, Debug)]
struct Going {
    lane: Lane,
    tenant: Tenant,
    /// The sequence of its admission.
    granted: u64,
    granted_at: Timestamp,
    is_launched: bool,
    /// Whether a node has had it.
    is_taken: bool,
    caller: Option<RunId>,
    above: BTreeSet<RunId>,
    takes_devices: bool,
}

/// Who is in a room, and what went through it.
#[derive(Clone, Debug, Default)]
struct Room {
    going: BTreeSet<RunId>,
    /// When runs were admitted to it, as far back as its rate looks.
    begun: VecDeque<Timestamp>,
    /// When the last runs in it ended.
    ended: VecDeque<Timestamp>,
}

/// Slots of live nodes, by their labels.
pub type Slots = BTreeMap<Label, usize>;

/// All that waits for admission and all that was admitted, as events tell it. Events are taken in in the
/// order of the log, from before the first request of a run that has not ended.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    rules: BTreeMap<RuleName, Rule>,
    /// The sequence of the last event about a rule.
    rules_at: u64,
    lanes: BTreeMap<Lane, BTreeMap<u64, RunId>>,
    waiting: HashMap<RunId, Waiting>,
    going: HashMap<RunId, Going>,
    rooms: HashMap<RuleKey, Room>,
    /// How many rooms there are before those are forgotten that nobody is in.
    rooms_before_sweep: usize,
    /// Roots that go, by the label that they ask for, with the times at which others ended.
    roots: HashMap<Label, Room>,
    last: Option<(u64, Digest)>,
    /// The admission up to which all must be taken in before anybody is admitted here.
    behind: Option<u64>,
}

impl Flow {
    /// The same rules, before any run is taken in. From now on events from the sequence `from` on are taken in;
    /// `last` is the last admission that there is, which may be among them.
    pub fn begin(&self, from: u64, last: Option<&Recorded<Granted>>) -> Self {
        Self {
            rules: self.rules.clone(),
            rules_at: self.rules_at,
            last: last.map(|last| (last.sequence, last.hash)),
            behind: last
                .map(|last| last.sequence)
                .filter(|&sequence| sequence >= from),
            ..Self::default()
        }
    }

    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values()
    }

    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether nobody waits, and nobody is in a room.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.going.is_empty()
    }

    /// Whether `run` waits for admission, or was admitted and has not ended.
    pub fn knows(&self, run: RunId) -> bool {
        self.waiting.contains_key(&run) || self.going.contains_key(&run)
    }

    /// The last admission: what the next one is guarded on and chained to.
    pub fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    /// How many runs wait for admission.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many runs a rule lets go, and how many wait by it.
    pub fn counts(&self, rule: &RuleName) -> (usize, usize) {
        let is_by = |rooms: &[RuleKey]| rooms.iter().any(|room| room.rule == *rule);
        let going = self.going.values().filter(|going| is_by(&going.lane.rooms));
        let lanes = self.lanes.iter().filter(|(lane, _)| is_by(&lane.rooms));
        (going.count(), lanes.map(|(_, queue)| queue.len()).sum())
    }

    /// The longest that a rate looks back, in seconds; none without rates.
    pub fn rate_seconds_max(&self) -> Option<u32> {
        let rates = self.rules.values().filter_map(|rule| rule.rate);
        rates.map(|rate| rate.seconds).max()
    }

    pub fn apply_rule(&mut self, recorded: Recorded<Event>) {
        if recorded.sequence <= self.rules_at {
            return;
        }
        self.rules_at = recorded.sequence;
        match recorded.event {
            Event::Set { rule, .. } => drop(self.rules.insert(rule.name.clone(), rule)),
            Event::Removed { name, .. } => drop(self.rules.remove(&name)),
        }
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
            run::Event::Leased(_) => {
                if let Some(going) = self.going.get_mut(&id) {
                    going.is_taken = true;
                }
            }
            run::Event::Returned(_) => self.wait_again(id, recorded.sequence),
            run::Event::Ended(_) => self.end(id, recorded.time),
            _ => (),
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

    /// Behind all others: its turn was of no use to it.
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

    /// Takes an admission in. What has ended before it is left out: it is in no room.
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
        for key in &lane.rooms {
            let seconds = self.rate_of(key).map_or(0, |rate| rate.seconds);
            let room = self.rooms.entry(key.clone()).or_default();
            forget_before(&mut room.begun, earlier(at, seconds));
            room.begun.push_back(at);
            if held.contains(key) {
                room.going.insert(run);
            }
        }
        if lane.class == Class::Root {
            let roots = self.roots.entry(lane.label.clone()).or_default();
            roots.going.insert(run);
        }
        let going = Going {
            lane,
            tenant,
            granted,
            granted_at: at,
            is_launched: false,
            is_taken: false,
            caller,
            above,
            takes_devices,
        };
        self.going.insert(run, going);
        self.forget_empty_rooms(at);
    }

    fn end(&mut self, run: RunId, at: Timestamp) {
        drop(self.leave_lane(run));
        self.leave(run, |room| {
            room.ended.push_back(at);
            if room.ended.len() > ENDS_KEPT_MAX {
                room.ended.pop_front();
            }
        });
    }

    /// Takes `run` out of all rooms, and tells `left` of each.
    fn leave(&mut self, run: RunId, mut left: impl FnMut(&mut Room)) -> Option<Going> {
        let going = self.going.remove(&run)?;
        let mut leave = |room: &mut Room| {
            if room.going.remove(&run) {
                left(room);
            }
        };
        for key in &going.lane.rooms {
            self.rooms.get_mut(key).map(&mut leave);
        }
        self.roots.get_mut(&going.lane.label).map(&mut leave);
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

    /// Rooms that nobody is in, and that no rate looks at any more, are of use for estimates only.
    fn forget_empty_rooms(&mut self, now: Timestamp) {
        if self.rooms.len() < self.rooms_before_sweep.max(ROOMS_KEPT_MAX) {
            return;
        }
        let rules = &self.rules;
        self.rooms.retain(|key, room| {
            let rate = rules.get(&key.rule).and_then(|rule| rule.rate);
            let since = rate.map(|rate| earlier(now, rate.seconds));
            let begun = room.begun.back();
            !room.going.is_empty() || since.is_some_and(|since| begun.is_some_and(|&at| at > since))
        });
        // Looked at again when they are twice as many, so that each is looked at a few times at the most.
        self.rooms_before_sweep = 2 * self.rooms.len();
    }

    /// Which runs are admitted now, in this order: none if nobody may go, or if not all that were admitted are
    /// taken in.
    pub fn next(&self, slots: &Slots, now: Timestamp) -> Option<Granted> {
        if self.behind.is_some() {
            return None;
        }
        let mut ahead = Ahead::new(self, slots, now);
        let runs: Vec<RunId> = std::iter::from_fn(|| ahead.admit())
            .take(GRANTS_MAX)
            .collect();
        let rules = self.rules_at;
        (!runs.is_empty()).then_some(Granted::Granted { runs, rules })
    }

    /// How many may be in `room`, if the `going` are so many that a run of `lane` has to wait for one to end.
    fn limit_reached(&self, room: &RuleKey, lane: &Lane, going: usize) -> Option<u32> {
        // A rule that was removed holds nobody.
        let max = self.rules.get(&room.rule)?.concurrency_max?;
        (!lane.shared.contains(room) && going >= max as usize).then_some(max)
    }

    fn rate_of(&self, key: &RuleKey) -> Option<Rate> {
        self.rules.get(&key.rule)?.rate
    }

    /// The room that a lane shares with others by weight, and its weight.
    fn share<'a>(&'a self, lane: &'a Lane) -> Option<(&'a RuleKey, u64)> {
        let fair = |room: &'a RuleKey| {
            let rule = self.rules.get(&room.rule).filter(|rule| rule.is_fair)?;
            Some((room, rule.weight(&room.key)))
        };
        lane.rooms.iter().find_map(fair)
    }

    fn going_in(&self, room: &RuleKey) -> usize {
        self.rooms.get(room).map_or(0, |room| room.going.len())
    }

    fn begun_in(&self, room: &RuleKey, since: Timestamp) -> usize {
        let begun = self.rooms.get(room).map(|room| &room.begun);
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
