//! Ends runs: cancelled runs with their callees, and abandoned runs.
//!
//! Only the holder of a lease ends a run. A node that holds a run is asked to end it. If no node holds a run, this
//! gateway leases it and ends it immediately.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    CancelRequested, ChildResult, Command, Ended, Holder, Lease, Outcome, Rejection, Run, RunError,
};
use aod_services::program::inherit;
use aod_services::runs::HandleError;

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::reading;
use crate::reading::pending_reason;
use crate::reading::views::Seen;

/// Cancels `id` and its callees. Returns the run afterwards.
///
/// # Errors
/// [`ErrorCode::RunEnded`] if it has ended, [`ErrorCode::UnknownRun`] if it does not exist.
pub(crate) async fn cancel(
    context: &Context,
    id: RunId,
    requested_by: &str,
    reason: &str,
) -> Result<Run> {
    let request = CancelRequested {
        requested_by: requested_by.to_owned(),
        reason: reason.to_owned(),
    };
    // First the caller, so that it makes no new calls; then its callees.
    let run = context
        .runs
        .handle(id, &Command::Cancel(request.clone()), None)
        .await?;
    cancel_below(context, id, &request).await?;
    Ok(end_if_queued(context, &run).await?.unwrap_or(run))
}

/// Cancels the callees of `id`; runs that no node holds end immediately, leaves first.
pub(crate) async fn cancel_below(
    context: &Context,
    id: RunId,
    request: &CancelRequested,
) -> Result<()> {
    let family = reading::family(context, id).await?;
    for descendant in descendants(&family, id) {
        let run = match context
            .runs
            .handle(descendant, &Command::Cancel(request.clone()), None)
            .await
        {
            Ok(run) => run,
            Err(HandleError::Rejected {
                rejection: Rejection::Ended,
                ..
            }) => continue,
            Err(error) => return Err(error.into()),
        };
        end_if_queued(context, &run).await?;
    }
    Ok(())
}

/// The live runs below `id`, leaves first.
fn descendants(family: &BTreeMap<RunId, Seen>, id: RunId) -> Vec<RunId> {
    let children = reading::children_of(family);
    let mut found = Vec::new();
    let mut next = vec![id];
    // A family is finite and each run has one parent, so the loop visits each run once.
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            next.push(child.run.id);
            if child.run.ended().is_none() {
                found.push(child.run.id);
            }
        }
    }
    found.reverse();
    found
}

/// Ends a run that no node holds and that must not start: cancelled, late or dead-lettered. If the gateway that leased
/// a run to end it is offline, another gateway ends it.
pub(crate) async fn end_if_queued(context: &Context, run: &Run) -> Result<Option<Run>> {
    let is_of_node = |lease: &Recorded<Lease>| matches!(lease.event.holder, Holder::Node { .. });
    if run.ended().is_some() || run.lease().is_some_and(is_of_node) {
        return Ok(None);
    }
    match run.forbids_start(context.ports.clock.now()) {
        Some((Outcome::TimedOut, error)) => {
            let error = explained(context, run, error).await;
            end(context, run, Outcome::TimedOut, error).await
        }
        Some((outcome, error)) => end(context, run, outcome, error).await,
        None => Ok(None),
    }
}

/// `error` with the reason why `run` still waits.
async fn explained(context: &Context, run: &Run, error: RunError) -> RunError {
    match pending_reason::reason(context, &Seen::from(run.clone())).await {
        Some(reason) => RunError {
            message: format!("{}: {reason}", error.message),
            ..error
        },
        None => error,
    }
}

/// Ends a run that its holder has not ended long after its deadline.
pub(crate) async fn end_abandoned(context: &Context, run: &Run) -> Result<Option<Run>> {
    let text = format!(
        "the run had not ended {} seconds after its deadline",
        2 * context.config.lease_seconds
    );
    end(
        context,
        run,
        Outcome::TimedOut,
        RunError::new(ErrorCode::DeadlineExceeded, text),
    )
    .await
}

/// Leases `run` and ends it; none if another program holds it, or if callees have not ended.
async fn end(
    context: &Context,
    run: &Run,
    outcome: Outcome,
    error: RunError,
) -> Result<Option<Run>> {
    let Some(children) = results_of_children(context, run).await? else {
        return Ok(None);
    };
    let end = |attempt| Ended {
        children,
        ..Ended::without_start(attempt, outcome, error)
    };
    take_and_end(context, run, end).await
}

/// Leases `run` and ends it with the result of `end` for that attempt; none if another program holds it.
pub(crate) async fn take_and_end(
    context: &Context,
    run: &Run,
    end: impl FnOnce(u32) -> Ended,
) -> Result<Option<Run>> {
    let take = Command::TakeOverToEnd {
        holder: context.holder(),
        lease_seconds: context.config.lease_seconds,
    };
    let taken = match context.runs.handle(run.id, &take, Some(run.clone())).await {
        Ok(taken) => taken,
        Err(error) => return expected(error),
    };
    let end = Command::End(Box::new(end(taken.attempts)));
    match context.runs.handle(run.id, &end, Some(taken)).await {
        Ok(ended) => Ok(Some(ended)),
        Err(error) => expected(error),
    }
}

/// If another writer was faster, that is no error.
fn expected(error: HandleError) -> Result<Option<Run>> {
    match error {
        HandleError::Rejected {
            rejection: Rejection::Held | Rejection::Ended | Rejection::Superseded,
            ..
        } => Ok(None),
        error => Err(error.into()),
    }
}

/// The results of the callees of `run`; none while one of them has not ended. A run that was never leased has no
/// callees.
async fn results_of_children(context: &Context, run: &Run) -> Result<Option<Vec<ChildResult>>> {
    if run.attempts == 0 {
        return Ok(Some(Vec::new()));
    }
    let family = reading::family(context, run.id).await?;
    let children = reading::children_of(&family);
    let mut results = Vec::new();
    for child in children.get(&run.id).into_iter().flatten() {
        match child.run.ended() {
            Some(ended) => results.push(ChildResult {
                run: child.run.id,
                hash: ended.hash,
            }),
            None => return Ok(None),
        }
    }
    Ok(Some(results))
}

/// Time before a failed cancel is retried.
const CANCEL_RETRY: Duration = Duration::from_secs(2);

/// A caller that waits with `on_disconnect: cancel`. Dropped without an answer, as when the connection closes, it
/// cancels the run.
pub(crate) struct WaitingCaller {
    context: Shared,
    run: RunId,
    caller: String,
    is_answered: bool,
}

impl WaitingCaller {
    pub(crate) fn new(context: &Shared, run: RunId, caller: String) -> Self {
        Self {
            context: Arc::clone(context),
            run,
            caller,
            is_answered: false,
        }
    }

    pub(crate) fn was_answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (context, run) = (Arc::clone(&self.context), self.run);
        let caller = std::mem::take(&mut self.caller);
        self.context.tasks.spawn(inherit(async move {
            let reason = "the waiting caller disconnected";
            while let Err(error) = cancel(&context, run, &caller, reason).await {
                if matches!(error, Error::RunEnded(_)) {
                    return;
                }
                tracing::warn!(%run, ?error, "cannot cancel a run after its caller disconnected; retrying");
                let pause = tokio::time::sleep(CANCEL_RETRY);
                if context.shutdown.run_until_cancelled(pause).await.is_none() {
                    return;
                }
            }
        }));
    }
}
