//! A run: one capsule, once, from its request to its one terminal event.
//!
//! The log keeps [`Event`]s; a [`Run`] is what they add up to. Nothing here reads a clock, draws
//! an id or waits: callers bring `now`, store the event, and only then carry out what it asks for.
//!
//! A run costs three durable events: `launch`, `lease`, `result`. What happens in between is told
//! by [`Note`]s, which nothing depends on.

mod dead_letter;
mod decide;
mod event;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod limits;
mod note;
mod retries;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use self::dead_letter::{
    DELIVERIES_COUNTED_MAX, DELIVERIES_MAX, DELIVERIES_UNCOUNTED, DeadLetterReason, Deliveries,
};
pub use self::decide::{Command, Decision, Rejection, decide};
pub use self::event::{
    Admitted, Anew, AttemptFailed, AttemptLost, CHILDREN_LISTED_MAX, CancelRequested, ChildResult,
    ChildrenSummary, Delivered, EgressUsage, Ended, Event, Exit, FileEntry, Holder, Launched,
    Lease, LogsSummary, NotesSummary, Outcome, PAYLOAD_INLINE_BYTES_MAX, Parent, Payload,
    Placement, Refused, Rerun, Returned, Reuses, RunError, Sealed, SealedTree, Timings, Usage,
    Work, WorkPosition,
};
pub use self::limits::{
    COLLECTION_SECONDS_DEFAULT, LIMIT_SECONDS_MAX, Limits, PREPARATION_SECONDS_DEFAULT,
    queued_until,
};
pub use self::note::{
    CallRefused, Egress, EgressRefused, Note, NoteKind, REFUSED_TARGET_LENGTH_MAX,
};
pub use self::retries::{FailureKind, RETRIES_MAX, Retries, Retry};
use crate::digest::Digest;
use crate::error_code::ErrorCode;
use crate::event::Recorded;
use crate::flow::Admission;
use crate::id::RunId;

/// Leases that may be lost before a run is given up: a launch that kills every node it meets
/// must not meet them all.
pub const ATTEMPTS_LOST_MAX: u32 = 5;

/// Nodes that may refuse a run before it fails with what the last of them says: whatever is missing on so many is
/// missing everywhere.
pub const REFUSALS_MAX: usize = 8;

/// How long a whole run may take, from its request to its end, unless the request says.
pub const TOTAL_SECONDS_DEFAULT: u64 = 24 * 60 * 60;

/// A run as its events tell it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub launched: Recorded<Launched>,
    pub phase: Phase,
    /// Leases granted so far; the number of the current attempt.
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
    /// Which nodes have given it back since they cannot run it, and why.
    pub refusals: Vec<Refused>,
    /// Attempts that failed and were tried again, by the kind of the failure.
    pub failed: Retries,
    /// Until when it rests before another attempt, and why; the queue keeps it so long.
    pub rests: Option<Rest>,
    /// The last admission that it has given back.
    pub returned: Option<u64>,
    /// Who had the lease when the current attempt took over; none if nobody had.
    pub replaced: Option<Holder>,
    pub cancel: Option<CancelRequested>,
    /// The last state event: what the next one is guarded on and chained to.
    pub last: Position,
}

/// The time between a failed attempt and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    pub until: Timestamp,
    /// What the failed attempt would have ended with.
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
    /// Until when the run rests if this is stored at `at`.
    pub fn rests_until(&self, at: Timestamp) -> Timestamp {
        later(at, Duration::from_millis(self.pause_ms))
    }
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Its admission: its launch is not stored yet.
    Requested,
    /// A node with room.
    Queued,
    /// Its holder to end it.
    Leased(Box<Recorded<Lease>>),
    /// Nothing: it has its one result.
    Ended(Box<Recorded<Ended>>),
}

/// The place of an event in the log and in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub sequence: u64,
    pub hash: Digest,
}

/// Stored events that no run can have: the log was tampered with, or a bug wrote it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("event {sequence} of {run} does not follow: {reason}")]
pub struct BrokenHistory {
    pub run: RunId,
    pub sequence: u64,
    pub reason: &'static str,
}

impl Run {
    /// What `history`, all state events of `id` in their order, adds up to; nothing gives `None`.
    ///
    /// # Errors
    /// [`BrokenHistory`] when an event does not follow from those before it, by rule or by chain.
    pub fn replay(
        id: RunId,
        history: impl IntoIterator<Item = Recorded<Event>>,
    ) -> Result<Option<Self>, BrokenHistory> {
        let mut run: Option<Self> = None;
        for recorded in history {
            run = Some(match run {
                None => Self::begin(id, recorded)?,
                Some(mut run) => {
                    run.apply(recorded)?;
                    run
                }
            });
        }
        Ok(run)
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
                last,
            }),
            None => Err(BrokenHistory {
                run: id,
                sequence: last.sequence,
                reason: "a run begins with its launch",
            }),
        }
    }

    /// Takes the next stored event in.
    pub fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), BrokenHistory> {
        let (id, sequence) = (self.id, recorded.sequence);
        let broken = |reason| BrokenHistory {
            run: id,
            sequence,
            reason,
        };
        if recorded.previous != Some(self.last.hash) {
            return Err(broken("its chain names another event before it"));
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
            Event::Returned(returned) if self.may_return(returned.granted) => {
                self.wait_again(returned.granted);
            }
            Event::Returned(_) => {
                return Err(broken("only an admission that is of no use is given back"));
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
            Event::Refused(refused) if self.holds(refused.attempt) => {
                self.refusals.push(refused.clone());
                self.queue_at(recorded.time);
            }
            Event::Refused(_) => return Err(broken("only the current attempt can be refused")),
            Event::AttemptFailed(failed) if self.holds(failed.attempt) => {
                if !self.has_retry(failed.kind) {
                    return Err(broken("no failure of this kind is tried again"));
                }
                self.count_failure(failed.kind);
                let rest = Rest::after(failed, recorded.time);
                self.queue_at(rest.until);
                self.rests = Some(rest);
            }
            Event::AttemptFailed(_) => return Err(broken("only the current attempt can fail")),
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

    /// What a lease says of the deliveries, and of the time in the queue.
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

    /// Whether the admission at `granted` can be given back: no node has had the run, so it has called nobody.
    pub fn may_return(&self, granted: u64) -> bool {
        let admission = self.launched.event.admission.as_deref();
        matches!(self.phase, Phase::Queued)
            && self.attempts == 0
            && admission.is_some_and(Admission::must_wait)
            && !self.has_returned(granted)
    }

    /// Whether the admission at `granted` is spent.
    pub fn has_returned(&self, granted: u64) -> bool {
        self.returned.is_some_and(|returned| granted <= returned)
    }

    /// Whether `attempt` has the lease now.
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

    /// When the run must have ended, queueing included.
    pub fn deadline(&self) -> Timestamp {
        self.launched.event.deadline
    }

    /// How much time its request has when it is asked for again, as a root: as much as it had; what was called
    /// has as much as a root has by default.
    pub fn total_as_root(&self) -> SignedDuration {
        let launched = &self.launched;
        if launched.event.parent.is_some() {
            SignedDuration::from_secs(TOTAL_SECONDS_DEFAULT.cast_signed())
        } else {
            launched.event.deadline.duration_since(launched.time)
        }
    }

    /// Why a holder must end this run instead of starting it, if it must.
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
            let text = format!("not started by its deadline {}", self.deadline());
            return Some((
                Outcome::TimedOut,
                RunError::new(ErrorCode::DeadlineExceeded, text),
            ));
        }
        self.queued_too_long(now)
    }

    /// When a gateway may end the run over the head of its holder, who should have ended it itself:
    /// two lease times after the deadline, so that a holder cut off has killed what it ran.
    pub fn abandoned_at(&self, lease_seconds: u32) -> Timestamp {
        later(
            self.deadline(),
            2 * Duration::from_secs(lease_seconds.into()),
        )
    }
}

/// `at` and `span` more, or the end of all time: an event may hold any instant and any span.
fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.saturating_add(span).unwrap_or(Timestamp::MAX)
}
