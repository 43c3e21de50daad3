//! Decisions about a run: one command, at most one event.

use jiff::Timestamp;
use thiserror::Error;

use super::{
    Admitted, AttemptFailed, AttemptLost, CancelRequested, DELIVERIES_COUNTED_MAX, Delivered,
    Ended, Event, Holder, Launched, Lease, Phase, Refused, Returned, Run, RunError, STEPS_MAX,
    Sealed, StepEnded,
};
use crate::rule::Admission;

/// A command for a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Starts the run, or joins it if an identical request started it before.
    Launch(Box<Launched>),
    /// Launches the run: its admission is stored at the sequence `granted`.
    Admit { granted: u64 },
    /// Returns the admission, because no node takes the run.
    Return { granted: u64 },
    /// Records that a node begins on a delivery.
    CountDelivery(Delivered),
    /// Takes the lease. A holder with another message of the queue is replaced only if `is_holder_gone`, according to
    /// presence.
    Lease {
        holder: Holder,
        is_holder_gone: bool,
    },
    /// Gives the lease to a gateway that ends the run: no node has the run, or its holder is long overdue.
    TakeOverToEnd { holder: Holder, lease_seconds: u32 },
    /// Ends `attempt` as lost, so that another one can begin.
    LoseAttempt { attempt: u32, error: RunError },
    /// Ends the attempt, because this node cannot run it.
    Refuse(Refused),
    /// Ends a failed attempt, so that another one can begin after a pause.
    FailAttempt(Box<AttemptFailed>),
    /// Records the end of a step of a task.
    EndStep(Box<StepEnded>),
    /// Requests its holder to end the run.
    Cancel(CancelRequested),
    /// Ends the run.
    End(Box<Ended>),
    /// Seals an ended root.
    Seal(Sealed),
}

/// Why a command is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// There is no such run.
    #[error("the run does not exist")]
    Unknown,
    /// The idempotency key belongs to another request.
    #[error("the key belongs to another request")]
    KeyReused,
    /// Another holder has the lease now: stop, and change nothing more.
    #[error("another attempt has taken over")]
    Superseded,
    #[error("the run has ended")]
    Ended,
    /// Its holder is present, or not overdue yet.
    #[error("the run has another holder")]
    Held,
    /// The request wants no further attempt after this kind of failure.
    #[error("the run has no retry left for this kind of failure")]
    NoRetry,
    /// The task has fewer ended steps, or as many as a task may have.
    #[error("the step is not the next of the task")]
    NotNextStep,
    /// The run waits for admission; earlier admissions no longer count.
    #[error("the run is not admitted")]
    NotAdmitted,
    /// Only an ended root is sealed.
    #[error("only an ended root can be sealed")]
    NotSealable,
}

/// The event to store; none if the state is already as the command wants; or the rejection.
pub type Decision = Result<Option<Event>, Rejection>;

/// Decides on `command` for the state `run`, none if the log has no events of the run.
pub fn decide(run: Option<&Run>, command: &Command, now: Timestamp) -> Decision {
    match (command, run) {
        (Command::Launch(launched), run) => launch(run, launched),
        (_, None) => Err(Rejection::Unknown),
        (Command::Admit { granted }, Some(run)) => admit(run, *granted),
        (Command::Return { granted }, Some(run)) => give_admission_back(run, *granted),
        (Command::CountDelivery(delivered), Some(run)) => count_delivery(run, delivered),
        (
            Command::Lease {
                holder,
                is_holder_gone,
            },
            Some(run),
        ) => lease(run, holder, *is_holder_gone),
        (
            Command::TakeOverToEnd {
                holder,
                lease_seconds,
            },
            Some(run),
        ) => take_over_to_end(run, holder, *lease_seconds, now),
        (Command::LoseAttempt { attempt, error }, Some(run)) => lose_attempt(run, *attempt, error),
        (Command::Refuse(refused), Some(run)) => give_up(run, refused.attempt, || {
            Event::AttemptRefused(refused.clone())
        }),
        (Command::FailAttempt(failed), Some(run)) => fail_attempt(run, failed),
        (Command::EndStep(step), Some(run)) => end_step(run, step),
        (Command::Cancel(cancel), Some(run)) => request_cancel(run, cancel),
        (Command::End(ended), Some(run)) => end(run, ended),
        (Command::Seal(sealed), Some(run)) => seal(run, sealed),
    }
}

fn launch(run: Option<&Run>, launched: &Launched) -> Decision {
    match run {
        None if launched.reuses.is_some() => Ok(Some(Event::Reused(Box::new(launched.clone())))),
        None if must_wait(launched) => Ok(Some(Event::Requested(Box::new(launched.clone())))),
        None => Ok(Some(Event::Launched(Box::new(launched.clone())))),
        Some(run) if is_same_request(&run.launched.event, launched) => Ok(None),
        Some(_) => Err(Rejection::KeyReused),
    }
}

/// Ids do not contain the tenant: no request joins a run of another tenant.
fn is_same_request(one: &Launched, other: &Launched) -> bool {
    one.request == other.request && one.tenant == other.tenant
}

fn must_wait(launched: &Launched) -> bool {
    let admission = launched.admission.as_deref();
    admission.is_some_and(Admission::must_wait)
}

/// A cancelled run can be ended without a launch.
fn admit(run: &Run, granted: u64) -> Decision {
    match &run.phase {
        Phase::Requested if run.has_returned(granted) => Err(Rejection::NotAdmitted),
        Phase::Requested if run.cancel.is_none() => {
            let launched = &run.launched.event;
            Ok(Some(Event::Admitted(Admitted {
                placement: launched.placement.clone(),
                memory_bytes: launched.resources.memory_bytes,
                cpu_millis: Some(launched.resources.cpu_millis),
            })))
        }
        Phase::Requested | Phase::Queued | Phase::Leased(_) => Ok(None),
        Phase::Ended(_) => Err(Rejection::Ended),
    }
}

/// Only a run that no node has returns its admission.
fn give_admission_back(run: &Run, granted: u64) -> Decision {
    match &run.phase {
        Phase::Ended(_) => Err(Rejection::Ended),
        _ if run.has_returned(granted) => Ok(None),
        _ if run.may_return(granted) => Ok(Some(Event::AdmissionReturned(Returned { granted }))),
        _ => Err(Rejection::Held),
    }
}

/// Counts only deliveries that no lease covers, each once, up to the number that dead-letters a launch.
fn count_delivery(run: &Run, delivered: &Delivered) -> Decision {
    let is_known = run.deliveries.last == Some(delivered.work);
    match &run.phase {
        Phase::Queued if is_known || run.deliveries.counted > DELIVERIES_COUNTED_MAX => Ok(None),
        Phase::Queued => Ok(Some(Event::Delivered(*delivered))),
        Phase::Requested | Phase::Leased(_) => Ok(None),
        Phase::Ended(_) => Err(Rejection::Ended),
    }
}

/// A later delivery of the launch takes over from an earlier one; no clock decides.
fn lease(run: &Run, holder: &Holder, is_holder_gone: bool) -> Decision {
    match &run.phase {
        // The launch of a returned admission is still in the queue.
        Phase::Requested => Err(Rejection::NotAdmitted),
        // The broker delivers at least once: a repeated command finds its work done.
        Phase::Leased(current) if current.event.holder == *holder => Ok(None),
        Phase::Queued | Phase::Leased(_) if has_led_to_lease(run, holder) => {
            Err(Rejection::Superseded)
        }
        Phase::Queued => Ok(Some(next_lease(run, holder))),
        Phase::Leased(current) => match claim(holder, &current.event.holder) {
            Claim::Redelivered => Ok(Some(next_lease(run, holder))),
            Claim::Another if is_holder_gone => Ok(Some(next_lease(run, holder))),
            Claim::Another => Err(Rejection::Held),
            Claim::Outdated => Err(Rejection::Superseded),
        },
        Phase::Ended(_) => Err(Rejection::Ended),
    }
}

/// Whether this delivery, or a later one, has already led to a lease. The holder of that lease returned the delivery
/// with its attempt, so the queue delivers the launch again.
fn has_led_to_lease(run: &Run, holder: &Holder) -> bool {
    let (Holder::Node { work, .. }, Some(leased)) = (holder, run.deliveries.leased) else {
        return false;
    };
    leased.is_same_message(work) && work.delivery <= leased.delivery
}

fn next_lease(run: &Run, holder: &Holder) -> Event {
    Event::Leased(Lease {
        attempt: run.attempts + 1,
        holder: holder.clone(),
    })
}

/// What a delivery implies about the current lease.
enum Claim {
    /// The queue received no progress from the holder for the whole lease time, so the holder has killed its capsule;
    /// or the holder was a gateway that died while it ended the run.
    Redelivered,
    /// The launch is in the queue twice, as after a loss of the queue: this implies nothing about the holder, who keeps
    /// another message.
    Another,
    /// The lease belongs to a later delivery.
    Outdated,
}

fn claim(holder: &Holder, current: &Holder) -> Claim {
    match (holder, current) {
        (Holder::Node { work, .. }, Holder::Node { work: current, .. }) if work > current => {
            if work.is_same_message(current) {
                Claim::Redelivered
            } else {
                Claim::Another
            }
        }
        (Holder::Node { .. }, Holder::Gateway { .. }) => Claim::Redelivered,
        (Holder::Node { .. } | Holder::Gateway { .. }, _) => Claim::Outdated,
    }
}

fn take_over_to_end(run: &Run, holder: &Holder, lease_seconds: u32, now: Timestamp) -> Decision {
    match &run.phase {
        Phase::Requested | Phase::Queued => Ok(Some(next_lease(run, holder))),
        Phase::Leased(current) if current.event.holder == *holder => Ok(None),
        Phase::Leased(current)
            if matches!(current.event.holder, Holder::Gateway { .. })
                || now >= run.abandoned_at(lease_seconds) =>
        {
            Ok(Some(next_lease(run, holder)))
        }
        Phase::Leased(_) => Err(Rejection::Held),
        Phase::Ended(_) => Err(Rejection::Ended),
    }
}

fn lose_attempt(run: &Run, attempt: u32, error: &RunError) -> Decision {
    give_up(run, attempt, || {
        Event::AttemptLost(AttemptLost {
            attempt,
            error: error.clone(),
        })
    })
}

/// The holder has checked [`Run::retry_after`]; the next attempt sees a cancel that came since.
fn fail_attempt(run: &Run, failed: &AttemptFailed) -> Decision {
    if run.holds(failed.attempt) && !run.has_retry(failed.kind) {
        return Err(Rejection::NoRetry);
    }
    give_up(run, failed.attempt, || {
        Event::AttemptFailed(Box::new(failed.clone()))
    })
}

/// Only the holder ends its attempt.
fn give_up(run: &Run, attempt: u32, event: impl FnOnce() -> Event) -> Decision {
    match &run.phase {
        Phase::Leased(lease) if lease.event.attempt == attempt => Ok(Some(event())),
        // A run may return its admission afterwards.
        Phase::Requested | Phase::Queued if run.attempts == attempt => Ok(None),
        Phase::Ended(_) => Err(Rejection::Ended),
        Phase::Requested | Phase::Queued | Phase::Leased(_) => Err(Rejection::Superseded),
    }
}

/// Only the holder ends steps, one after the other.
fn end_step(run: &Run, step: &StepEnded) -> Decision {
    match &run.phase {
        Phase::Ended(_) => Err(Rejection::Ended),
        _ if !run.holds(step.attempt) => Err(Rejection::Superseded),
        // The broker stored the event, and its answer was lost.
        _ if step.number <= run.steps => Ok(None),
        _ if step.number != run.steps + 1 || step.number > STEPS_MAX => Err(Rejection::NotNextStep),
        _ => Ok(Some(Event::StepEnded(Box::new(step.clone())))),
    }
}

fn request_cancel(run: &Run, cancel: &CancelRequested) -> Decision {
    match (&run.phase, &run.cancel) {
        (Phase::Ended(_), _) => Err(Rejection::Ended),
        (_, Some(_)) => Ok(None),
        (_, None) => Ok(Some(Event::CancelRequested(cancel.clone()))),
    }
}

/// Only the holder of the current lease ends a run, so there is one result.
fn end(run: &Run, ended: &Ended) -> Decision {
    match &run.phase {
        Phase::Leased(lease) if lease.event.attempt == ended.attempt => {
            Ok(Some(Event::Ended(Box::new(ended.clone()))))
        }
        Phase::Ended(recorded) if recorded.event.attempt == ended.attempt => Ok(None),
        Phase::Requested | Phase::Queued | Phase::Leased(_) | Phase::Ended(_) => {
            Err(Rejection::Superseded)
        }
    }
}

fn seal(run: &Run, sealed: &Sealed) -> Decision {
    match &run.phase {
        Phase::Ended(ended)
            if run.id.is_root() && run.last.hash == ended.hash && sealed.result == ended.hash =>
        {
            Ok(Some(Event::Sealed(sealed.clone())))
        }
        // Only its seal can follow a result.
        Phase::Ended(ended) if run.id.is_root() && run.last.hash != ended.hash => Ok(None),
        _ => Err(Rejection::NotSealable),
    }
}
