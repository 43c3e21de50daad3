//! What must hold after every event: the rules of the log, looked at from outside.

use std::collections::BTreeMap;

use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{ATTEMPTS_LOST_MAX, Event, Note, Outcome, Payload, Run};
use aod_domain::subject::Subject;
use aod_ports::event_log::StoredEvent;

use crate::world::World;

/// All runs as the log has them.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    runs: BTreeMap<RunId, Run>,
    /// The number of the last note of each attempt.
    notes: BTreeMap<(RunId, u32), u32>,
    /// Which run has done a part of a plan: a root's, by its number.
    done: BTreeMap<(RunId, u64), RunId>,
}

impl Invariants {
    /// Looks at an event that the log has just taken.
    pub(crate) fn stored(&mut self, world: &World, stored: &StoredEvent) {
        let Some(id) = Subject::run_of(&stored.subject) else {
            return;
        };
        if !Subject::is_state(&stored.subject) {
            return self.noted(world, id, stored);
        }
        let recorded = match Recorded::<Event>::decode(stored.sequence, &stored.bytes) {
            Ok(recorded) => recorded,
            Err(error) => return world.violation(format!("{id}: {error}")),
        };
        match &recorded.event {
            Event::Ended(ended) => {
                self.children_end_first(world, id);
                if ended.outcome == Outcome::Succeeded {
                    self.done_once(world, id);
                }
            }
            Event::AttemptFailed(_) => world.count("tried again"),
            Event::Leased(_) if self.runs.get(&id).is_some_and(|run| run.lease().is_some()) => {
                world.count("takeover");
            }
            _ => (),
        }
        // The rules of a run: one launch, leases in order, one result from its holder, nothing after.
        let applied = match self.runs.get_mut(&id) {
            Some(run) => run.apply(recorded),
            None => Run::replay(id, [recorded]).map(|run| {
                self.runs.extend(run.map(|run| (id, run)));
            }),
        };
        if let Err(error) = applied {
            world.violation(format!("{id}: {error}"));
        }
    }

    /// Notes of an attempt are counted, and each is told once.
    fn noted(&mut self, world: &World, id: RunId, stored: &StoredEvent) {
        let Ok(recorded) = Recorded::<Note>::decode(stored.sequence, &stored.bytes) else {
            return world.violation(format!("{id}: a note cannot be read"));
        };
        let kind = match recorded.event {
            Note::Preparing(kind)
            | Note::Running(kind)
            | Note::Waiting(kind)
            | Note::Resumed(kind)
            | Note::Collecting(kind) => kind,
        };
        let last = self.notes.insert((id, kind.attempt), kind.number);
        if last.is_some_and(|last| kind.number <= last) {
            world.violation(format!("{id}: note {} comes again", kind.number));
        }
    }

    /// No part of a plan is done by two runs.
    fn done_once(&mut self, world: &World, id: RunId) {
        let Some(Payload::Inline(arguments)) =
            self.runs.get(&id).map(|run| &run.launched.event.payload)
        else {
            return;
        };
        let number = arguments["number"].as_u64().unwrap_or_default();
        if let Some(other) = self.done.insert((id.root(), number), id) {
            world.violation(format!("{id} does what {other} has done"));
        }
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.runs.values().all(|run| run.ended().is_some())
    }

    /// Whether a run below `root` has lost as many attempts as it may.
    pub(crate) fn has_given_up(&self, root: RunId) -> bool {
        self.runs
            .values()
            .any(|run| run.id.root() == root && run.attempts_lost >= ATTEMPTS_LOST_MAX)
    }

    /// A run ends after all that it called.
    fn children_end_first(&self, world: &World, id: RunId) {
        let is_child = |run: &&Run| {
            let parent = run.launched.event.parent.as_ref();
            parent.is_some_and(|parent| parent.run == id)
        };
        let began = self
            .runs
            .get(&id)
            .and_then(Run::lease)
            .map(|lease| lease.sequence);
        for child in self.runs.values().filter(is_child) {
            match child.ended() {
                None => world.violation(format!("{id} ends before its callee {}", child.id)),
                // The caller's last attempt got what an earlier one had called for.
                Some(ended) if Some(ended.sequence) < began => world.count("replay"),
                Some(_) => (),
            }
        }
    }
}
