//! The broker as it was measured to behave: a log with guards and message ids, a queue derived from
//! it, presence that fades. Nothing here fails by itself: what is lost is lost on the way.

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
use aod_domain::subject::{Class, Label, Subject, is_under};
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

/// How long the log knows the ids of messages. Source: the streams as we make them.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// One launch in so many has been given back very often, and one of those in so many is deadly.
const GIVEN_BACK_OFTEN_ONE_IN: u64 = 60;
const DEADLY_ONE_IN: u64 = 3;

/// The broker. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    pub(crate) world: World,
    pub(crate) switch: Switch,
    state: Arc<Mutex<State>>,
    /// Sequence of the last event, to wake who follows.
    last: Arc<watch::Sender<u64>>,
    /// Counts what may concern a puller.
    queue_changes: Arc<watch::Sender<u64>>,
    /// The last line's place, to wake who reads along.
    line: Arc<watch::Sender<u64>>,
    lease: Duration,
}

#[derive(Debug)]
struct State {
    events: Vec<Logged>,
    /// The first event that the log still has; those before are kept for the invariants alone.
    first: u64,
    bytes: u64,
    invariants: Invariants,
    /// Launches by their sequence in the queue.
    work: BTreeMap<u64, Work>,
    work_last: u64,
    /// When the queue was made, in milliseconds.
    work_created_ms: i64,
    /// The queue takes launches from here on when it is made anew.
    work_begins_at: u64,
    labels: BTreeSet<Label>,
    /// Who listens for launches that others hand over.
    offers: BTreeMap<NodeId, mpsc::UnboundedSender<Offer>>,
    /// Ends of runs that nobody has dealt with, by their sequences; each is given from then on.
    ends: BTreeMap<u64, Instant>,
    presence: BTreeMap<String, (Member, Instant)>,
    /// Lines that are kept, with their places in the stream.
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
    /// It is delivered from then on.
    due: Instant,
}

/// What the log answers to an append.
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
                labels: BTreeSet::new(),
                offers: BTreeMap::new(),
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

    /// Stores an event if its guard holds; a known id is answered as before.
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

    /// How often a new launch counts as delivered already: now and then as if nodes without room had given
    /// it back so often that the next delivery is suspicious. Of those some are deadly.
    fn deliveries_before(&self, subject: &str) -> u64 {
        if !self
            .world
            .strikes("given back often", GIVEN_BACK_OFTEN_ONE_IN)
        {
            return 0;
        }
        let run = Subject::run_of(subject);
        if let Some(run) = run.filter(|_| self.world.strikes("deadly launch", DEADLY_ONE_IN)) {
            self.world.make_deadly(run);
        }
        DELIVERIES_UNCOUNTED
    }

    /// Lets go of the events before `sequence`.
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

    /// From now on no run may start on a node that has not what it requires.
    pub(crate) fn look_at_places(&self, equipment: BTreeMap<NodeId, Equipment>, alive: Alive) {
        let mut state = self.state();
        state.invariants.equipment = equipment;
        state.invariants.alive = alive;
    }

    /// Whether an event of this id is stored.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.state().events.iter().any(|event| event.id == id)
    }

    /// The server has lost the queue, as a crash may do: the log fills it anew.
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

    /// Whether a run below `root` was given up, or found no node in the time it had.
    pub(crate) fn has_given_up(&self, root: Option<&str>) -> bool {
        let root = root.and_then(|root| root.parse().ok());
        root.is_some_and(|root| self.state().invariants.has_given_up(root))
    }

    /// Whether all runs have ended, their ends are dealt with, and the queue is empty.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.work.is_empty() && state.ends.is_empty() && state.invariants.all_ended()
    }

    /// An artifact was removed from the store.
    pub(crate) fn removed(&self, digest: Digest) {
        self.state().invariants.removed(&self.world, digest);
    }

    /// Whether the log says that an artifact was collected.
    pub(crate) fn has_collected(&self, digest: Digest) -> bool {
        self.state().invariants.has_collected(digest)
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

    /// The events under `filter` after `after` that the log still has.
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

/// Label and class of a launch, by its subject.
fn place_of(subject: &str) -> Option<(Label, Class)> {
    let mut tokens = subject.split('.').skip(7);
    let label = tokens.next()?.parse().ok()?;
    let class = tokens.next()?;
    let class = [Class::Child, Class::Root]
        .into_iter()
        .find(|known| known.to_string() == class)?;
    Some((label, class))
}

#[cfg(test)]
mod tests;
