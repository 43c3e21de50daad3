//! Invariants that must hold after every event: the rules of the log, checked from outside.

use std::collections::{BTreeMap, BTreeSet};

use aod_domain::archive;
use aod_domain::artifacts::{named_by_end, named_by_launch};
use aod_domain::digest::Digest;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::event::Recorded;
use aod_domain::flow::{Granted, RuleKey};
use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::{Equipment, fits};
use aod_domain::retention::ArtifactEvent;
use aod_domain::run::{
    ATTEMPTS_LOST_MAX, DELIVERIES_MAX, Ended, Event, Holder, Lease, Note, Outcome, Payload,
    Placement, Run, RunError,
};
use aod_domain::subject::{self, Pool, Subject, is_under};
use aod_ports::event_log::StoredEvent;

use crate::engine::Alive;
use crate::plan::LIMITS;
use crate::world::World;

/// All runs according to the log.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    runs: BTreeMap<RunId, Run>,
    /// The number of the last note of each attempt.
    notes: BTreeMap<(RunId, u32), u32>,
    /// The run that did a part of a plan, by root and number.
    done: BTreeMap<(RunId, u64), RunId>,
    /// Admitted runs that have not ended, by bucket.
    buckets: BTreeMap<RuleKey, BTreeSet<RunId>>,
    admitted: BTreeSet<RunId>,
    /// The equipment of the nodes, if runs have requirements.
    pub(crate) equipment: BTreeMap<NodeId, Equipment>,
    pub(crate) alive: Alive,
    /// Artifacts of the archived log.
    archived: BTreeSet<Digest>,
    /// Artifacts that the log records as deleted.
    deleted: BTreeSet<Digest>,
}

impl Invariants {
    /// Checks an event that was just stored.
    pub(crate) fn stored(&mut self, world: &World, stored: &StoredEvent) {
        if Subject::is_admission(&stored.subject) {
            return self.granted(world, stored);
        }
        if Subject::is_artifact(&stored.subject) {
            return self.deleted(world, stored);
        }
        if is_under(&stored.subject, subject::ARCHIVE) {
            return self.archived(world, stored);
        }
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
                for bucket in self.buckets.values_mut() {
                    bucket.remove(&id);
                }
                self.ends_for_a_reason(world, id, ended);
                if ended.outcome == Outcome::Succeeded {
                    self.done_once(world, id);
                }
            }
            Event::AttemptFailed(failed) => {
                world.count("retried");
                if failed.error.code == ErrorCode::HeartbeatMissed.as_str() {
                    world.count("silent");
                }
            }
            Event::Requested(_) => world.count("requested"),
            Event::Admitted(_) if self.admitted.contains(&id) => world.count("admitted"),
            Event::Admitted(_) => world.violation(format!("{id} is admitted without a grant")),
            Event::AdmissionReturned(_) => self.returned(world, id),
            Event::Reused(_) => world.count("reused"),
            Event::Delivered(_) => world.count("delivery counted"),
            Event::AttemptLost(lost) => count_loss(world, &lost.error),
            Event::Leased(lease) => self.leased(world, id, lease),
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

    /// A run starts only on a node that meets its requirements, and no device belongs to two runs with live processes:
    /// the log may record the end of a run last.
    fn leased(&self, world: &World, id: RunId, lease: &Lease) {
        let Some(run) = self.runs.get(&id) else {
            return;
        };
        if run.lease().is_some() {
            world.count("takeover");
        }
        let Holder::Node {
            node, incarnation, ..
        } = &lease.holder
        else {
            return;
        };
        let Some(equipment) = self.equipment.get(node) else {
            return;
        };
        let Placement {
            pool, requirements, ..
        } = &run.launched.event.placement;
        if let Err(refusals) = fits(pool, requirements, &[Pool::any()], equipment) {
            world.violation(format!("{id} starts on {node}: {refusals:?}"));
        }
        for (device, count) in &equipment.devices {
            let takes = |run: &Run| {
                run.launched
                    .event
                    .placement
                    .requirements
                    .devices
                    .get(device)
                    .copied()
            };
            let is_held = |other: &&Run| {
                other.id != id
                    && other.lease().is_some_and(|held| {
                        self.alive.is_alive(other.id, held.event.attempt)
                            && matches!(&held.event.holder, Holder::Node { incarnation: held, .. } if held == incarnation)
                    })
            };
            let held = self.runs.values().filter(is_held).filter_map(takes);
            let all: u16 = held.chain(takes(run)).sum();
            if takes(run).is_some() && usize::from(all) > *count {
                world.violation(format!(
                    "{id}: {all} {device} of {count} are held on {node}"
                ));
            }
        }
    }

    fn archived(&mut self, world: &World, stored: &StoredEvent) {
        match Recorded::<archive::Event>::decode(stored.sequence, &stored.bytes) {
            Ok(recorded) => {
                if matches!(recorded.event, archive::Event::Archived(_)) {
                    world.count("archived");
                }
                let segment = recorded.event.archive().segment;
                let artifacts = [segment.events, segment.index];
                self.archived
                    .extend(artifacts.map(|artifact| artifact.digest));
            }
            Err(error) => world.violation(format!("archive event: {error}")),
        }
    }

    fn deleted(&mut self, world: &World, stored: &StoredEvent) {
        world.count("deleted");
        match Recorded::<ArtifactEvent>::decode(stored.sequence, &stored.bytes) {
            Ok(recorded) => {
                let ArtifactEvent::Deleted { artifacts, .. } = recorded.event;
                self.deleted.extend(artifacts);
            }
            Err(error) => world.violation(format!("deletion event: {error}")),
        }
    }

    /// An artifact was just removed: the log records that, the log itself is not in it, and no unfinished tree names
    /// it.
    pub(crate) fn removed(&self, world: &World, digest: Digest) {
        world.count("removed");
        if !self.deleted.contains(&digest) {
            world.violation(format!("{digest} is removed without an event"));
        }
        if self.archived.contains(&digest) {
            world.violation(format!(
                "{digest} is removed although it holds a part of the log"
            ));
        }
        let live = self.runs.values().filter(|run| run.ended().is_none());
        let live: BTreeSet<RunId> = live.map(|run| run.id.root()).collect();
        for run in self.runs.values() {
            let ended = run.ended().map(|ended| named_by_end(&ended.event));
            let launched = named_by_launch(&run.launched.event);
            let mut named = launched.into_iter().chain(ended.into_iter().flatten());
            if live.contains(&run.id.root()) && named.any(|named| named.digest == digest) {
                world.violation(format!("{digest} is removed although {} names it", run.id));
            }
        }
    }

    pub(crate) fn has_deleted(&self, digest: Digest) -> bool {
        self.deleted.contains(&digest)
    }

    /// No run is admitted twice or into a full bucket.
    fn granted(&mut self, world: &World, stored: &StoredEvent) {
        let Ok(recorded) = Recorded::<Granted>::decode(stored.sequence, &stored.bytes) else {
            return world.violation(format!("admission {}: malformed event", stored.sequence));
        };
        for &id in recorded.event.runs() {
            world.count("granted");
            if !self.admitted.insert(id) {
                world.violation(format!("{id} is admitted twice"));
            }
            let Some(run) = self.runs.get(&id) else {
                world.violation(format!("{id} is admitted but was never requested"));
                continue;
            };
            let admission = run.launched.event.admission.as_deref();
            let buckets = admission.map_or(&[][..], |admission| &admission.buckets);
            for bucket in buckets.iter().filter(|_| run.ended().is_none()) {
                let inside = self.buckets.entry(bucket.clone()).or_default();
                inside.insert(id);
                let is_above = |&(rule, max): &(&str, u32)| {
                    bucket.rule.as_str() == rule && inside.len() > max as usize
                };
                if LIMITS.iter().any(is_above) {
                    world.violation(format!("{} runs are admitted to {bucket}", inside.len()));
                }
            }
        }
    }

    /// The run may be admitted again, and is in no bucket.
    fn returned(&mut self, world: &World, id: RunId) {
        world.count("returned");
        self.admitted.remove(&id);
        for inside in self.buckets.values_mut() {
            inside.remove(&id);
        }
    }

    /// Notes of an attempt are numbered, and each is stored once.
    fn noted(&mut self, world: &World, id: RunId, stored: &StoredEvent) {
        let Ok(recorded) = Recorded::<Note>::decode(stored.sequence, &stored.bytes) else {
            return world.violation(format!("{id}: malformed note"));
        };
        let kind = recorded.event.kind();
        let last = self.notes.insert((id, kind.attempt), kind.number);
        if last.is_some_and(|last| kind.number <= last) {
            world.violation(format!("{id}: note {} is stored twice", kind.number));
        }
    }

    /// No part of a plan is done by two runs, with one exception: if a run further up was dead-lettered or ran out of
    /// time, its own caller may repeat it with all of its callees.
    fn done_once(&mut self, world: &World, id: RunId) {
        let Some(Payload::Inline(arguments)) =
            self.runs.get(&id).map(|run| &run.launched.event.payload)
        else {
            return;
        };
        let number = arguments["number"].as_u64().unwrap_or_default();
        let other = self.done.insert((id.root(), number), id);
        if let Some(other) = other.filter(|other| !self.is_below_platform_failure(*other)) {
            world.violation(format!("{id} repeats the work of {other}"));
        }
    }

    /// A dead-lettered run has used up its attempts, and a run that timed out in the queue had a queue limit.
    fn ends_for_a_reason(&self, world: &World, id: RunId, ended: &Ended) {
        let Some(run) = self.runs.get(&id) else {
            return;
        };
        if ended.dead_letter().is_some() {
            world.count("dead letter");
            let deliveries = run.deliveries.last.map_or(0, |last| last.delivery);
            if run.attempts_lost < ATTEMPTS_LOST_MAX && deliveries <= DELIVERIES_MAX {
                world.violation(format!("{id} is dead-lettered too early: {ended:?}"));
            }
        }
        if is_deadlocked(ended) {
            world.count("deadlock");
        }
        if is_queued_too_long(ended) {
            world.count("queued too long");
            if run.launched.event.limits.queue_seconds.is_none() {
                world.violation(format!("{id} timed out in the queue without a queue limit"));
            }
        }
    }

    /// Whether a caller further up ended in a way that a later attempt does not join: dead-lettered, out of time, or
    /// cancelled by its own caller, whose attempt was lost before it could end.
    fn is_below_platform_failure(&self, run: RunId) -> bool {
        let parent = |run: &Run| run.launched.event.parent.as_ref().map(|parent| parent.run);
        let above = |id: &RunId| self.runs.get(id).and_then(parent);
        std::iter::successors(above(&run), above).any(|caller| {
            let ended = self.runs.get(&caller).and_then(Run::ended);
            ended.is_some_and(|ended| {
                let error = ended.event.error.as_ref();
                ended.event.outcome == Outcome::TimedOut
                    || self.is_cancelled_by_its_caller(caller)
                    || error.is_some_and(|error| error.source == ErrorSource::Platform)
            })
        })
    }

    fn is_cancelled_by_its_caller(&self, id: RunId) -> bool {
        self.runs.get(&id).is_some_and(|run| {
            let parent = run.launched.event.parent.as_ref();
            let cancel = run.cancel.as_ref();
            parent
                .zip(cancel)
                .is_some_and(|(parent, cancel)| cancel.requested_by == parent.run.to_string())
        })
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.runs.values().all(|run| run.ended().is_some())
    }

    /// Whether a run below `root` was dead-lettered, timed out in the queue, or waited for itself.
    pub(crate) fn has_platform_failure(&self, root: RunId) -> bool {
        let mut below = self.runs.values().filter(|run| run.id.root() == root);
        below.any(|run| {
            let ended = run.ended().map(|ended| &ended.event);
            ended.is_some_and(|ended| {
                ended.dead_letter().is_some() || is_queued_too_long(ended) || is_deadlocked(ended)
            })
        })
    }

    /// A run ends after all of its callees.
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
                // The last attempt of the caller joined a call of an earlier attempt.
                Some(ended) if Some(ended.sequence) < began => world.count("replay"),
                Some(_) => (),
            }
        }
    }
}

fn count_loss(world: &World, error: &RunError) {
    if error.code == ErrorCode::PreparationTimedOut.as_str() {
        world.count("prepared too long");
    }
    if error.code == ErrorCode::CollectionTimedOut.as_str() {
        world.count("collected too long");
    }
}

fn is_queued_too_long(ended: &Ended) -> bool {
    has_code(ended, ErrorCode::QueueTimedOut)
}

fn is_deadlocked(ended: &Ended) -> bool {
    has_code(ended, ErrorCode::AdmissionDeadlock)
}

fn has_code(ended: &Ended, code: ErrorCode) -> bool {
    let error = ended.error.as_ref();
    error.is_some_and(|error| error.code == code.as_str())
}
