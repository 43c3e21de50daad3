//! The broker as measured: a log with guards and message ids, a queue derived from the log, presence that expires. The
//! broker itself never fails; only connections lose messages.

pub(crate) mod feed;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::Equipment;
use aod_domain::run::DELIVERIES_UNCOUNTED;
use aod_domain::subject::{Class, Pool, Subject, is_under};
use aod_ports::event_log::{Append, Guard, StoredEvent};
use aod_ports::log_stream::LogLine;
use aod_ports::presence::Member;
use aod_ports::work_queue::Offer;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::engine::Alive;
use crate::invariants::Invariants;
use crate::link::Switch;
use crate::world::World;

/// How long the log remembers the ids of messages. Source: the streams of `aod_jetstream`.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// One launch in this number has already been returned very often; one of those in the next number is deadly.
const RETURNED_OFTEN_ONE_IN: u64 = 60;
const DEADLY_ONE_IN: u64 = 3;

/// The broker. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    pub(crate) world: World,
    pub(crate) switch: Switch,
    state: Arc<Mutex<State>>,
    /// Sequence of the last event, to wake followers.
    last: Arc<watch::Sender<u64>>,
    /// Counts changes that may concern a puller.
    queue_changes: Arc<watch::Sender<u64>>,
    /// The position of the last line, to wake followers.
    line: Arc<watch::Sender<u64>>,
    lease: Duration,
}

#[derive(Debug)]
struct State {
    events: Vec<Logged>,
    /// The first event in the log; earlier ones are kept only for the invariants.
    first: u64,
    bytes: u64,
    invariants: Invariants,
    /// Launches by their sequence in the queue.
    work: BTreeMap<u64, Work>,
    work_last: u64,
    /// When the queue was made, in milliseconds.
    work_created_ms: i64,
    /// The first launch of a recreated queue.
    work_begins_at: u64,
    pools: BTreeSet<Pool>,
    /// Receivers of launches offered by other nodes.
    offers: BTreeMap<NodeId, mpsc::UnboundedSender<Offer>>,
    /// Offers that never arrived: nobody answers them.
    lost_offers: Vec<Offer>,
    /// Unacknowledged ends of runs by sequence, with the time of their next delivery.
    ends: BTreeMap<u64, Instant>,
    presence: BTreeMap<String, (Member, Instant)>,
    /// Stored lines with their positions in the stream.
    lines: BTreeMap<RunId, VecDeque<(u64, LogLine)>>,
    lines_last: u64,
}

#[derive(Debug)]
struct Logged {
    subject: String,
    id: String,
    bytes: Bytes,
    at: Instant,
}

/// A launch in the queue.
#[derive(Clone, Debug)]
struct Work {
    event: u64,
    subject: String,
    bytes: Bytes,
    deliveries: u64,
    /// Time of its next delivery.
    due: Instant,
}

/// The log's answer to an append.
pub(crate) enum Answer {
    Stored(u64),
    Conflict,
}

impl Broker {
    pub(crate) fn new(world: &World, lease: Duration) -> Self {
        Self {
            world: world.clone(),
            switch: Switch::new(),
            state: Arc::new(Mutex::new(State {
                events: Vec::new(),
                first: 1,
                bytes: 0,
                invariants: Invariants::default(),
                work: BTreeMap::new(),
                work_last: 0,
                work_created_ms: 1,
                work_begins_at: 1,
                pools: BTreeSet::new(),
                offers: BTreeMap::new(),
                lost_offers: Vec::new(),
                ends: BTreeMap::new(),
                presence: BTreeMap::new(),
                lines: BTreeMap::new(),
                lines_last: 0,
            })),
            last: Arc::new(watch::Sender::new(0)),
            queue_changes: Arc::new(watch::Sender::new(0)),
            line: Arc::new(watch::Sender::new(0)),
            lease,
        }
    }

    /// Stores an event if its guard holds; answers a known id as before.
    pub(crate) fn store(&self, append: &Append) -> Answer {
        let mut state = self.state();
        // A server with one copy checks the guard first, then the id (measured).
        if let Guard::Last { filter, sequence } = &append.guard
            && state.last_of(filter) != *sequence
        {
            return Answer::Conflict;
        }
        let now = Instant::now();
        let known = state.events.iter().enumerate().rev().find(|(_, event)| {
            event.id == append.id && now.duration_since(event.at) < DUPLICATE_WINDOW
        });
        if let Some((index, _)) = known {
            return Answer::Stored(index as u64 + 1);
        }
        state.bytes += append.bytes.len() as u64;
        state.events.push(Logged {
            subject: append.subject.to_string(),
            id: append.id.clone(),
            bytes: append.bytes.clone(),
            at: now,
        });
        let sequence = state.events.len() as u64;
        let stored = state.event(sequence);
        state.invariants.stored(&self.world, &stored);
        if Subject::is_launch(&stored.subject) {
            let deliveries = self.deliveries_before(&stored.subject);
            state.enqueue(sequence, deliveries);
        }
        if Subject::is_result(&stored.subject) {
            state.ends.insert(sequence, now);
        }
        drop(state);
        self.last.send_replace(sequence);
        self.queue_changes.send_modify(|count| *count += 1);
        Answer::Stored(sequence)
    }

    /// Initial delivery count of a new launch: sometimes so high, as if nodes without capacity had returned the
    /// launch, that the next delivery is suspicious. Some of those launches are deadly.
    fn deliveries_before(&self, subject: &str) -> u64 {
        if !self
            .world
            .strikes("returned to the queue often", RETURNED_OFTEN_ONE_IN)
        {
            return 0;
        }
        let run = Subject::run_of(subject);
        if let Some(run) = run.filter(|_| self.world.strikes("deadly launch", DEADLY_ONE_IN)) {
            self.world.make_deadly(run);
        }
        DELIVERIES_UNCOUNTED
    }

    /// Deletes the events before `sequence`.
    pub(crate) fn release_before(&self, sequence: u64) {
        let mut state = self.state();
        if state.first < sequence {
            state.first = sequence;
            self.world.count("released");
        }
    }

    pub(crate) fn has_released(&self) -> bool {
        self.state().first > 1
    }

    /// From now on, a run that starts on a node without its requirements is a violation.
    pub(crate) fn check_placement(&self, equipment: BTreeMap<NodeId, Equipment>, alive: Alive) {
        let mut state = self.state();
        state.invariants.equipment = equipment;
        state.invariants.alive = alive;
    }

    /// Whether an event of this id is stored.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.state().events.iter().any(|event| event.id == id)
    }

    /// The server has lost the queue, as after a crash: the log refills it.
    pub(crate) fn lose_queue(&self) {
        let mut state = self.state();
        state.work.clear();
        state.work_created_ms += 1;
        for sequence in state.work_begins_at.max(state.first)..=state.events.len() as u64 {
            if Subject::is_launch(&state.logged(sequence).subject) {
                state.enqueue(sequence, 0);
            }
        }
        drop(state);
        self.queue_changes.send_modify(|count| *count += 1);
    }

    /// Whether a run below `root` was dead-lettered, or no node took it within its queue time.
    pub(crate) fn has_platform_failure(&self, root: Option<&str>) -> bool {
        let root = root.and_then(|root| root.parse().ok());
        root.is_some_and(|root| self.state().invariants.has_platform_failure(root))
    }

    /// Whether all runs have ended, their ends are acknowledged, and the queue is empty.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.work.is_empty() && state.ends.is_empty() && state.invariants.all_ended()
    }

    /// An artifact was removed from the store.
    pub(crate) fn removed(&self, digest: Digest) {
        self.state().invariants.removed(&self.world, digest);
    }

    /// Whether the log says that an artifact was deleted.
    pub(crate) fn has_deleted(&self, digest: Digest) -> bool {
        self.state().invariants.has_deleted(digest)
    }

    /// All events, for the end of a simulation.
    pub(crate) fn events(&self) -> Vec<StoredEvent> {
        let state = self.state();
        (1..=state.events.len() as u64)
            .map(|sequence| state.event(sequence))
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn logged(&self, sequence: u64) -> &Logged {
        let index = usize::try_from(sequence - 1).expect("a simulated log is short");
        &self.events[index]
    }

    fn event(&self, sequence: u64) -> StoredEvent {
        let logged = self.logged(sequence);
        StoredEvent {
            sequence,
            subject: logged.subject.clone(),
            bytes: logged.bytes.clone(),
        }
    }

    fn last_of(&self, filter: &str) -> u64 {
        let found = self
            .events
            .iter()
            .rposition(|event| is_under(&event.subject, filter));
        let last = found.map_or(0, |index| index as u64 + 1);
        if last < self.first { 0 } else { last }
    }

    /// The events under `filter` after `after` that are still in the log.
    fn under(&self, filter: &str, after: u64) -> impl Iterator<Item = u64> {
        let after = after + 1..=self.events.len() as u64;
        let kept = after.skip_while(|&sequence| sequence < self.first);
        kept.filter(move |&sequence| is_under(&self.logged(sequence).subject, filter))
    }

    fn enqueue(&mut self, event: u64, deliveries: u64) {
        self.work_last += 1;
        let logged = self.logged(event);
        let work = Work {
            event,
            subject: logged.subject.clone(),
            bytes: logged.bytes.clone(),
            deliveries,
            due: Instant::now(),
        };
        self.work.insert(self.work_last, work);
    }
}

/// Pool and class of a launch, by its subject.
fn place_of(subject: &str) -> Option<(Pool, Class)> {
    let mut tokens = subject.split('.').skip(7);
    let pool = tokens.next()?.parse().ok()?;
    let class = tokens.next()?;
    let class = [Class::Child, Class::Root]
        .into_iter()
        .find(|known| known.to_string() == class)?;
    Some((pool, class))
}

#[cfg(test)]
mod tests;
