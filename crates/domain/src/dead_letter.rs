//! Dead letters: dead-lettered runs, and what operators did about them.
//!
//! The result of a run shows that it is a dead letter; nothing here changes the run. Requeueing launches the same
//! request as a new run, which names the old one.

use std::convert::Infallible;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::chain::Chain;
use crate::digest::{Digest, Hasher};
use crate::event::Recorded;
use crate::id::RunId;
use crate::lineage::Lineage;
use crate::run::{Launched, Placement, Run};
use crate::subject::{self, Class, Subject};
use crate::tenant::Tenant;

/// An operator's action on a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// The request was launched again as `requeued_as`.
    #[serde(rename = "dev.aod.deadletter.requeued.v1")]
    Requeued {
        run: RunId,
        requeued_as: RunId,
        requested_by: String,
    },
    /// The dead letter needs no further action.
    #[serde(rename = "dev.aod.deadletter.purged.v1")]
    Purged { run: RunId, requested_by: String },
}

impl Event {
    pub fn run(&self) -> RunId {
        match self {
            Self::Requeued { run, .. } | Self::Purged { run, .. } => *run,
        }
    }

    /// The subject of the event if the run belongs to `tenant`.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        match self {
            Self::Requeued { run, .. } => subject::dead_letter_event(tenant, *run, "requeued"),
            Self::Purged { run, .. } => subject::dead_letter_event(tenant, *run, "purged"),
        }
    }
}

/// The state of a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No operator has acted on it.
    #[default]
    Open,
    Requeued(RunId),
    Purged,
}

/// The dead letter of `run`, with its events so far.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub run: RunId,
    pub tenant: Tenant,
    pub state: State,
    last: Option<(u64, Digest)>,
}

impl DeadLetter {
    /// The dead letter of `run` of `tenant`, without any event.
    pub const fn new(tenant: Tenant, run: RunId) -> Self {
        Self {
            run,
            tenant,
            state: State::Open,
            last: None,
        }
    }

    /// The sequence of its last event; 0 without one.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }
}

impl Chain for DeadLetter {
    type Event = Event;
    type Broken = Infallible;

    fn name(&self) -> String {
        format!("the dead letter {}", self.run)
    }

    fn filter(&self) -> String {
        subject::dead_letter(self.run)
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject(&self.tenant)
    }

    fn about(&self, _event: &Event) -> String {
        self.run.to_string()
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        self.last = Some((recorded.sequence, recorded.hash));
        self.state = match recorded.event {
            Event::Requeued { requeued_as, .. } => State::Requeued(requeued_as),
            Event::Purged { .. } => State::Purged,
        };
        Ok(())
    }
}

/// A command for the dead letter of `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Records the run that the request was launched as.
    Requeue {
        requested_by: String,
    },
    Purge {
        requested_by: String,
    },
}

/// The event to store; none if the state is already as the command wants. A requeued dead letter is final; a purged one
/// can still be requeued.
pub fn decide(letter: &DeadLetter, command: &Command) -> Option<Event> {
    let run = letter.run;
    match (command, letter.state) {
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

/// A new launch of `run`'s request: a root, regardless of the caller, with the same time limit.
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

/// The id of the run that a requeue of `run` launches: always the same, so that a second requeue has no effect.
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

    fn letter(state: State) -> DeadLetter {
        DeadLetter {
            state,
            ..DeadLetter::new(Tenant::default(), root())
        }
    }

    #[test]
    fn dead_letter_is_requeued_once() {
        let event = decide(&letter(State::Open), &requeue()).expect("it was open");
        assert_eq!(event.run(), root());
        let requeued = letter(State::Requeued(requeued_as(root())));
        assert_eq!(decide(&requeued, &requeue()), None);
        assert_eq!(decide(&requeued, &purge()), None);
    }

    #[test]
    fn purged_dead_letter_can_be_requeued() {
        assert!(decide(&letter(State::Open), &purge()).is_some());
        assert_eq!(decide(&letter(State::Purged), &purge()), None);
        assert!(decide(&letter(State::Purged), &requeue()).is_some());
    }

    #[test]
    fn requeued_request_is_launched_as_a_root_with_new_time() {
        let later = NOW + SignedDuration::from_hours(100);
        let old = run_of([crate::run::Event::Launched(Box::new(launched_child()))]);
        let requeued = launch(&old, "operator", later);
        assert_eq!(
            (&requeued.parent, requeued.placement.class),
            (&None, Class::Root)
        );
        assert_eq!(requeued.lineage.depth(), 0);
        assert_eq!(requeued.requeued_from, Some(old.id));
        assert_eq!(requeued.deadline, later + SignedDuration::from_hours(24));
        let expected = launched_child();
        assert_eq!(
            (requeued.request, &requeued.payload),
            (expected.request, &expected.payload)
        );
        assert_eq!(requeued.requested_by, "operator");
    }

    #[test]
    fn a_requeued_callee_is_a_root() {
        assert!(requeued_as(child()).is_root());
        assert_ne!(requeued_as(child()), requeued_as(root()));
        assert_ne!(requeued_as(root()), root());
    }
}
