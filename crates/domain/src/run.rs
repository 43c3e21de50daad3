//! A run: one execution of a capsule, from its request to its result.
//!
//! The log stores [`Event`]s; a [`Run`] is computed from them. This module reads no clock, draws no id and never waits:
//! callers pass `now`, store the event, and only then act on it.
//!
//! A run takes three durable events: `launched`, `leased`, `ended`. [`Note`]s record progress in between; no decision
//! depends on them.

mod chain;
mod dead_letter;
mod decide;
mod error;
mod event;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod left_out;
mod limits;
mod note;
mod retries;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use self::chain::RunChain;
pub use self::dead_letter::{
    DELIVERIES_COUNTED_MAX, DELIVERIES_MAX, DELIVERIES_UNCOUNTED, DeadLetterReason, Deliveries,
};
pub use self::decide::{Command, Decision, Rejection, decide};
pub use self::error::{RunError, error_text};
pub use self::event::{
    Admitted, AttemptFailed, AttemptLost, CHILDREN_LISTED_MAX, CancelRequested, ChildResult,
    ChildrenSummary, Delivered, EgressUsage, Ended, Event, Exit, FileEntry, Holder,
    LABEL_BYTES_MAX, LABELS_MAX, Launched, Lease, LogsSummary, NotesSummary, Outcome,
    PAYLOAD_INLINE_BYTES_MAX, Parent, Payload, Placement, REASON_LENGTH_MAX, Recompute, Refused,
    Rerun, Returned, Reuses, STEPS_MAX, Sealed, SealedTree, Snapshot, StepEnded, Timings, Usage,
    Work, WorkPosition,
};
pub use self::left_out::{LEFT_OUT_NAMED_MAX, LeftOut};
pub use self::limits::{
    COLLECTION_SECONDS_DEFAULT, LIMIT_SECONDS_MAX, Limits, PREPARATION_SECONDS_DEFAULT,
    queued_until,
};
pub use self::note::{
    CallRefused, Egress, EgressRefused, Note, NoteKind, REFUSED_TARGET_LENGTH_MAX,
};
pub use self::retries::{FailureKind, RETRIES_MAX, Retries, Retry, pause_after};
pub use self::state::State;
use crate::chain::Chain as _;
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::event::Recorded;
use crate::id::RunId;
use crate::rule::Admission;

/// Maximum leases that may be lost before a run is dead-lettered: a launch that kills every node it meets must not meet
/// all nodes.
pub const ATTEMPTS_LOST_MAX: u32 = 5;

/// Maximum nodes that may refuse a run before it fails with the last refusal: what all of them lack,
/// every node lacks.
pub const REFUSALS_MAX: usize = 8;

/// Default of the maximum time of a run, from its request to its end.
pub const TOTAL_SECONDS_DEFAULT: u32 = 24 * 60 * 60;

/// The state of a run after its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub launched: Recorded<Launched>,
    pub phase: Phase,
    /// Number of leases granted; also the number of the current attempt.
    pub attempts: u32,
    /// Leases that ended without a result.
    pub attempts_lost: u32,
    /// Why the last of them was lost.
    pub last_loss: Option<RunError>,
    /// Since when it waits for a node, if it does.
    pub queued_at: Option<Timestamp>,
    /// When a node took it for the first time.
    pub first_taken_at: Option<Timestamp>,
    pub deliveries: Deliveries,
    /// The nodes that returned it because they cannot run it, and why.
    pub refusals: Vec<Refused>,
    /// Number of attempts that failed and were retried, by the kind of failure.
    pub failed: Retries,
    /// The pause before another attempt, with its reason; the queue holds the launch until then.
    pub rests: Option<Rest>,
    /// The last admission that the run has returned.
    pub returned: Option<u64>,
    /// The holder that the current attempt replaced; none if there was none.
    pub replaced: Option<Holder>,
    pub cancel: Option<CancelRequested>,
    /// Number of ended executions of steps, if it is a task.
    pub steps: u32,
    /// The last state event: the next one is guarded by it and chained to it.
    pub last: Position,
}

/// The time between a failed attempt and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    pub until: Timestamp,
    /// The error that the failed attempt would have ended with.
    pub error: RunError,
}

impl Rest {
    fn after(failed: &AttemptFailed, at: Timestamp) -> Self {
        Self {
            until: failed.rests_until(at),
            error: failed.error.clone(),
        }
    }
}

impl AttemptFailed {
    /// The end of the pause if the failure is stored at `at`.
    pub fn rests_until(&self, at: Timestamp) -> Timestamp {
        later(at, Duration::from_millis(self.pause_ms))
    }
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Its admission: its launch is not stored yet.
    Requested,
    /// A node with free capacity.
    Queued,
    /// Its holder to end it.
    Leased(Box<Recorded<Lease>>),
    /// Nothing: it has its result.
    Ended(Box<Recorded<Ended>>),
}

/// The position of an event in the log and in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub sequence: u64,
    pub hash: Digest,
}

/// Stored events that cannot be a run: the log was tampered with, or a bug wrote them.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("event {sequence} of {run} contradicts the earlier events: {reason}")]
pub struct BrokenHistory {
    pub run: RunId,
    pub sequence: u64,
    pub reason: &'static str,
}

impl Run {
    /// The state after `history`, all state events of `id` in their order; `None` without events.
    ///
    /// # Errors
    /// [`BrokenHistory`] if an event does not follow from those before it, by rule or by chain.
    pub fn replay(
        id: RunId,
        history: impl IntoIterator<Item = Recorded<Event>>,
    ) -> Result<Option<Self>, BrokenHistory> {
        let mut chain = RunChain { id, run: None };
        for recorded in history {
            chain.apply(recorded)?;
        }
        Ok(chain.run)
    }

    fn begin(id: RunId, recorded: Recorded<Event>) -> Result<Self, BrokenHistory> {
        let last = Position {
            sequence: recorded.sequence,
            hash: recorded.hash,
        };
        let (phase, queued_at) = match &recorded.event {
            Event::Requested(_) => (Phase::Requested, None),
            _ => (Phase::Queued, Some(recorded.time)),
        };
        match recorded.map(Event::into_launched).transpose() {
            Some(launched) => Ok(Self {
                id,
                launched,
                phase,
                attempts: 0,
                attempts_lost: 0,
                last_loss: None,
                queued_at,
                first_taken_at: None,
                deliveries: Deliveries::default(),
                refusals: Vec::new(),
                failed: Retries::default(),
                rests: None,
                returned: None,
                replaced: None,
                cancel: None,
                steps: 0,
                last,
            }),
            None => Err(BrokenHistory {
                run: id,
                sequence: last.sequence,
                reason: "a run begins with its launch",
            }),
        }
    }

    /// Applies the next stored event.
    pub fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), BrokenHistory> {
        let (id, sequence) = (self.id, recorded.sequence);
        let broken = |reason| BrokenHistory {
            run: id,
            sequence,
            reason,
        };
        if recorded.previous != Some(self.last.hash) {
            return Err(broken("the event names another event as its predecessor"));
        }
        let is_ended = matches!(self.phase, Phase::Ended(_));
        let last = Position {
            sequence,
            hash: recorded.hash,
        };
        match &recorded.event {
            Event::Launched(_) | Event::Requested(_) | Event::Reused(_) => {
                return Err(broken("a run is launched once"));
            }
            Event::Sealed(_) if is_ended => (),
            Event::Sealed(_) => return Err(broken("only an ended run is sealed")),
            _ if is_ended => return Err(broken("nothing but a seal follows a result")),
            Event::Admitted(_) if matches!(self.phase, Phase::Requested) => {
                self.queue_at(recorded.time);
            }
            Event::Admitted(_) => return Err(broken("only a request is admitted, and once")),
            Event::AdmissionReturned(returned) if self.may_return(returned.granted) => {
                self.wait_again(returned.granted);
            }
            Event::AdmissionReturned(_) => {
                return Err(broken("only an unused admission can be returned"));
            }
            Event::Delivered(delivered) if matches!(self.phase, Phase::Queued) => {
                self.deliveries.count(delivered.work);
            }
            Event::Delivered(_) => return Err(broken("only a queued run is delivered")),
            Event::Leased(lease) if lease.attempt == self.attempts + 1 => {
                let lease = lease.clone();
                self.take_lease(recorded.map(|_| lease));
            }
            Event::Leased(_) => return Err(broken("attempts are numbered without a gap")),
            Event::AttemptLost(lost) if self.holds(lost.attempt) => {
                self.lose(lost.error.clone());
                self.queue_at(recorded.time);
            }
            Event::AttemptLost(_) => return Err(broken("only the current attempt can be lost")),
            Event::AttemptRefused(refused) if self.holds(refused.attempt) => {
                self.refusals.push(refused.clone());
                self.queue_at(recorded.time);
            }
            Event::AttemptRefused(_) => return Err(broken("only the current attempt refuses")),
            Event::AttemptFailed(failed) if self.holds(failed.attempt) => {
                if !self.has_retry(failed.kind) {
                    return Err(broken("the run has no retry left for this kind of failure"));
                }
                self.count_failure(failed.kind);
                let rest = Rest::after(failed, recorded.time);
                self.queue_at(rest.until);
                self.rests = Some(rest);
            }
            Event::AttemptFailed(_) => return Err(broken("only the current attempt can fail")),
            Event::StepEnded(step) => self.end_step(step).map_err(broken)?,
            Event::CancelRequested(cancel) => self.cancel = Some(cancel.clone()),
            Event::Ended(ended) if self.holds(ended.attempt) => {
                let ended = ended.clone();
                self.phase = Phase::Ended(Box::new(recorded.map(|_| *ended)));
            }
            Event::Ended(_) => return Err(broken("only the current attempt ends a run")),
        }
        self.last = last;
        Ok(())
    }

    fn end_step(&mut self, step: &StepEnded) -> Result<(), &'static str> {
        if !self.holds(step.attempt) {
            return Err("only the current attempt ends a step");
        }
        if step.number != self.steps + 1 {
            return Err("ended steps are numbered without a gap");
        }
        self.steps = step.number;
        if step.snapshot.is_some() {
            // A task of many hours may lose many nodes, as long as it makes progress.
            self.attempts_lost = 0;
        }
        Ok(())
    }

    fn take_lease(&mut self, lease: Recorded<Lease>) {
        self.replaced = self.lease().map(|lease| lease.event.holder.clone());
        if self.replaced.is_some() {
            self.lose(RunError::replaced());
        }
        self.attempts = lease.event.attempt;
        self.queued_at = None;
        self.rests = None;
        self.take_note(&lease.event, lease.time);
        self.phase = Phase::Leased(Box::new(lease));
    }

    fn queue_at(&mut self, time: Timestamp) {
        self.phase = Phase::Queued;
        self.queued_at = Some(time);
    }

    fn wait_again(&mut self, granted: u64) {
        self.returned = Some(granted);
        self.phase = Phase::Requested;
        self.queued_at = None;
    }

    fn lose(&mut self, error: RunError) {
        self.attempts_lost += 1;
        self.last_loss = Some(error);
    }

    /// Records the deliveries and the end of queueing from a lease.
    fn take_note(&mut self, lease: &Lease, at: Timestamp) {
        let work = match &lease.holder {
            Holder::Node { work, .. } => Some(*work),
            Holder::Gateway { .. } => None,
        };
        if work.is_some() {
            self.first_taken_at.get_or_insert(at);
        }
        self.deliveries.lease(work);
    }

    /// Whether the admission at `granted` can be returned: no node has the run. Who returns it ensures that no
    /// callee of an earlier attempt is in its buckets.
    pub fn may_return(&self, granted: u64) -> bool {
        let admission = self.launched.event.admission.as_deref();
        matches!(self.phase, Phase::Queued)
            && admission.is_some_and(Admission::must_wait)
            && !self.has_returned(granted)
    }

    /// Whether the admission at `granted` has been returned.
    pub fn has_returned(&self, granted: u64) -> bool {
        self.returned.is_some_and(|returned| granted <= returned)
    }

    /// Whether `attempt` holds the lease now.
    pub fn holds(&self, attempt: u32) -> bool {
        matches!(&self.phase, Phase::Leased(lease) if lease.event.attempt == attempt)
    }

    pub fn lease(&self) -> Option<&Recorded<Lease>> {
        match &self.phase {
            Phase::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    pub fn ended(&self) -> Option<&Recorded<Ended>> {
        match &self.phase {
            Phase::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// When the run must have ended, including queueing.
    pub fn deadline(&self) -> Timestamp {
        self.launched.event.deadline
    }

    /// The time limit of its request if it is launched again as a root: the same, or for a callee the default of roots.
    pub fn total_as_root(&self) -> SignedDuration {
        let launched = &self.launched;
        if launched.event.parent.is_some() {
            SignedDuration::from_secs(TOTAL_SECONDS_DEFAULT.into())
        } else {
            launched.event.deadline.duration_since(launched.time)
        }
    }

    /// Why a holder must end this run instead of starting it, if so.
    pub fn forbids_start(&self, now: Timestamp) -> Option<(Outcome, RunError)> {
        if let Some(cancel) = &self.cancel {
            let text = format!("cancelled by {}: {}", cancel.requested_by, cancel.reason);
            return Some((
                Outcome::Cancelled,
                RunError::new(ErrorCode::Cancelled, text),
            ));
        }
        if let Some(reason) = self.dead_letter() {
            return Some((Outcome::Failed, self.dead_letter_error(reason)));
        }
        if now >= self.deadline() {
            let text = format!(
                "the run had not started by its deadline {}",
                self.deadline()
            );
            return Some((
                Outcome::TimedOut,
                RunError::new(ErrorCode::DeadlineExceeded, text),
            ));
        }
        self.queued_too_long(now)
    }

    /// When a gateway may end the run in place of its holder, which should have ended it: two lease times after the
    /// deadline, so that an isolated holder has killed its capsule.
    pub fn abandoned_at(&self, lease_seconds: u32) -> Timestamp {
        later(
            self.deadline(),
            2 * Duration::from_secs(lease_seconds.into()),
        )
    }
}

/// `at` plus `span`, at most [`Timestamp::MAX`]: events may contain any time and any duration.
fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.saturating_add(span).unwrap_or(Timestamp::MAX)
}
