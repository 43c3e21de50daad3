//! The state of a run, as users see it.

use super::{Note, Outcome, Phase, Run};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The run waits for admission, for a node, or for its next attempt.
    Queued,
    /// A node has the run and fetches image and files.
    Starting,
    /// The capsule runs, or the node collects its outputs.
    Running,
    /// The capsule waits for a callee.
    Waiting,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl State {
    /// The state of `run` after `note`, the last note that begins a state. A note of another attempt has no effect, and a
    /// result has precedence over every note.
    pub fn of(run: &Run, note: Option<&Note>) -> Self {
        match &run.phase {
            Phase::Requested | Phase::Queued => Self::Queued,
            Phase::Leased(lease) => note
                .filter(|note| note.kind().attempt == lease.event.attempt)
                .and_then(Self::begun_by)
                .unwrap_or(Self::Starting),
            Phase::Ended(ended) => ended.event.outcome.into(),
        }
    }

    /// The state that begins with a note; none for other notes.
    pub const fn begun_by(note: &Note) -> Option<Self> {
        match note {
            Note::PreparationStarted(_) => Some(Self::Starting),
            Note::CapsuleStarted(_) | Note::WaitEnded(_) | Note::CollectionStarted(_) => {
                Some(Self::Running)
            }
            Note::WaitStarted(_) => Some(Self::Waiting),
            Note::CallRefused(_) | Note::EgressClosed(_) | Note::EgressRefused(_) => None,
        }
    }
}

impl From<Outcome> for State {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}
