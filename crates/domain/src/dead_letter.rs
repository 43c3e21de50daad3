//! A dead letter: a run that was given up, and what operators have done about it.
//!
//! That a run is a dead letter, its result says; nothing here changes the run. To requeue it is to
//! launch the same request as another run, which names the old one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Hasher;
use crate::event::Recorded;
use crate::handoff::Lineage;
use crate::id::RunId;
use crate::run::{Launched, Placement, Run};
use crate::subject::{self, Class, Subject};
use crate::tenant::Tenant;

/// What operators did about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// Its request was launched anew.
    #[serde(rename = "dev.aod.deadletter.requeued.v1")]
    Requeued {
        run: RunId,
        requeued_as: RunId,
        requested_by: String,
    },
    /// It needs nothing more.
    #[serde(rename = "dev.aod.deadletter.purged.v1")]
    Purged { run: RunId, requested_by: String },
}

impl Event {
    pub fn run(&self) -> RunId {
        match self {
            Self::Requeued { run, .. } | Self::Purged { run, .. } => *run,
        }
    }

    /// Where it is stored if the run is `tenant`'s.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        match self {
            Self::Requeued { run, .. } => subject::dead_letter_event(tenant, *run, "requeued"),
            Self::Purged { run, .. } => subject::dead_letter_event(tenant, *run, "purged"),
        }
    }
}

/// Where a dead letter stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nobody has done anything about it.
    #[default]
    Open,
    Requeued(RunId),
    Purged,
}

impl State {
    /// What all events about one dead letter, in their order, add up to.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Recorded<Event>>) -> Self {
        events
            .into_iter()
            .fold(Self::Open, |_, recorded| match &recorded.event {
                Event::Requeued { requeued_as, .. } => Self::Requeued(*requeued_as),
                Event::Purged { .. } => Self::Purged,
            })
    }
}

/// What somebody wants to happen to the dead letter of `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Takes note of the run that it was launched as.
    Requeue {
        requested_by: String,
    },
    Purge {
        requested_by: String,
    },
}

/// The event to store; none when what the command wants is so already. What was requeued is dealt
/// with; what was purged may still be requeued.
pub fn decide(run: RunId, state: State, command: &Command) -> Option<Event> {
    match (command, state) {
        (_, State::Requeued(_)) | (Command::Purge { .. }, State::Purged) => None,
        (Command::Purge { requested_by }, State::Open) => Some(Event::Purged {
            run,
            requested_by: requested_by.clone(),
        }),
        (Command::Requeue { requested_by }, State::Open | State::Purged) => Some(Event::Requeued {
            run,
            requeued_as: requeued_as(run),
            requested_by: requested_by.clone(),
        }),
    }
}

/// The launch of `run`'s request anew: as a root, whoever had called, with as much time as it had.
pub fn launch(run: &Run, requested_by: &str, now: Timestamp) -> Launched {
    let old = &run.launched;
    let signature = old.event.lineage.signatures.last();
    Launched {
        parent: None,
        lineage: Lineage {
            signatures: signature.into_iter().copied().collect(),
        },
        placement: Placement {
            class: Class::Root,
            near: None,
            ..old.event.placement.clone()
        },
        deadline: now + run.total_as_root(),
        requested_by: requested_by.to_owned(),
        requeued_from: Some(run.id),
        ..old.event.clone()
    }
}

/// The run that `run` is launched as anew: always the same, so that it happens once.
pub fn requeued_as(run: RunId) -> RunId {
    let mut hasher = Hasher::new();
    hasher.field(b"requeued");
    hasher.field(run.token().as_bytes());
    RunId::root_of_key(&hasher.finish())
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::run::fixtures::{NOW, child, launched_child, root, run_of};

    fn requeue() -> Command {
        Command::Requeue {
            requested_by: "operator".into(),
        }
    }

    fn purge() -> Command {
        Command::Purge {
            requested_by: "operator".into(),
        }
    }

    #[test]
    fn a_dead_letter_is_requeued_once() {
        let event = decide(root(), State::Open, &requeue()).expect("it was open");
        assert_eq!(event.run(), root());
        let requeued = State::Requeued(requeued_as(root()));
        assert_eq!(decide(root(), requeued, &requeue()), None);
        assert_eq!(decide(root(), requeued, &purge()), None);
    }

    #[test]
    fn what_was_purged_may_still_be_requeued() {
        assert!(decide(root(), State::Open, &purge()).is_some());
        assert_eq!(decide(root(), State::Purged, &purge()), None);
        assert!(decide(root(), State::Purged, &requeue()).is_some());
    }

    #[test]
    fn the_same_request_is_launched_as_a_root_with_new_time() {
        let later = NOW + SignedDuration::from_hours(100);
        let old = run_of([crate::run::Event::Launched(Box::new(launched_child()))]);
        let anew = launch(&old, "operator", later);
        assert_eq!((&anew.parent, anew.placement.class), (&None, Class::Root));
        assert_eq!(anew.lineage.depth(), 0);
        assert_eq!(anew.requeued_from, Some(old.id));
        assert_eq!(anew.deadline, later + SignedDuration::from_hours(24));
        let expected = launched_child();
        assert_eq!(
            (anew.request, &anew.payload),
            (expected.request, &expected.payload)
        );
        assert_eq!(anew.requested_by, "operator");
    }

    #[test]
    fn a_requeued_callee_is_a_root() {
        assert!(requeued_as(child()).is_root());
        assert_ne!(requeued_as(child()), requeued_as(root()));
        assert_ne!(requeued_as(root()), root());
    }
}
