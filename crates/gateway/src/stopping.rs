//! Runs that must end: cancelled with all they called, or left over by whoever should have ended them.
//!
//! Only the holder of a lease ends a run. So a run that a node has is asked to end; one that no
//! node has is taken over by this gateway and ended at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    CancelRequested, ChildResult, Command, Ended, Holder, Lease, Outcome, Rejection, Run, RunError,
};
use aod_ports::program::inherit;
use aod_ports::runs::HandleError;

use crate::context::{Context, Shared};
use crate::http::error::ApiResult;
use crate::reading;
use crate::views::Seen;

/// Asks for `id` and everything that it called to end. Answers with the run as it is then.
///
/// # Errors
/// [`ErrorCode::RunEnded`] if it has ended, [`ErrorCode::UnknownRun`] if it was never there.
pub(crate) async fn cancel(
    context: &Context,
    id: RunId,
    requested_by: &str,
    reason: &str,
) -> ApiResult<Run> {
    let request = CancelRequested {
        requested_by: requested_by.to_owned(),
        reason: reason.to_owned(),
    };
    // First the caller, so that it calls nobody new; then its callees.
    let run = context
        .runs
        .handle(id, &Command::Cancel(request.clone()), None)
        .await?;
    cancel_below(context, id, &request).await?;
    Ok(end_if_queued(context, &run).await?.unwrap_or(run))
}

/// Asks for everything that `id` called to end; what no node has ends at once, leaves first.
pub(crate) async fn cancel_below(
    context: &Context,
    id: RunId,
    request: &CancelRequested,
) -> ApiResult<()> {
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
    // A family is finite and each run has one parent, so each is met once.
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

/// Ends a run that no node has and that must not start: cancelled, too late, given up. One that a
/// gateway had taken to end is ended by the next if that gateway is gone.
pub(crate) async fn end_if_queued(context: &Context, run: &Run) -> ApiResult<Option<Run>> {
    let is_of_node = |lease: &Recorded<Lease>| matches!(lease.event.holder, Holder::Node { .. });
    if run.ended().is_some() || run.lease().is_some_and(is_of_node) {
        return Ok(None);
    }
    match run.forbids_start(context.ports.clock.now()) {
        Some((outcome, error)) => end(context, run, outcome, error).await,
        None => Ok(None),
    }
}

/// Ends a run whose holder should long have ended it.
pub(crate) async fn end_abandoned(context: &Context, run: &Run) -> ApiResult<Option<Run>> {
    let text = format!(
        "still not ended {} seconds after its deadline",
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

/// Takes the lease of `run` and ends it; none while somebody else has it, or callees still live.
async fn end(
    context: &Context,
    run: &Run,
    outcome: Outcome,
    error: RunError,
) -> ApiResult<Option<Run>> {
    let Some(children) = results_of_children(context, run).await? else {
        return Ok(None);
    };
    let end = |attempt| Ended {
        children,
        ..Ended::without_start(attempt, outcome, error)
    };
    take_and_end(context, run, end).await
}

/// Takes the lease of `run` and ends it with what `end` says of that attempt; none while somebody else has it.
pub(crate) async fn take_and_end(
    context: &Context,
    run: &Run,
    end: impl FnOnce(u32) -> Ended,
) -> ApiResult<Option<Run>> {
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

/// Others being faster is no failure.
fn expected(error: HandleError) -> ApiResult<Option<Run>> {
    match error {
        HandleError::Rejected {
            rejection: Rejection::Held | Rejection::Ended | Rejection::Superseded,
            ..
        } => Ok(None),
        error => Err(error.into()),
    }
}

/// What the callees of `run` came to; none while one of them lives. A run that never had a lease
/// has called nobody.
async fn results_of_children(context: &Context, run: &Run) -> ApiResult<Option<Vec<ChildResult>>> {
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

/// How long a cancel that the broker did not take rests.
const CANCEL_RETRY: Duration = Duration::from_secs(2);

/// Somebody who waits for a run and wants it to end when nobody does. Dropped without an answer, as
/// when the connection is closed, it cancels the run.
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
            let reason = "whoever waited for it went away";
            while let Err(error) = cancel(&context, run, &caller, reason).await {
                if error.problem().code == ErrorCode::RunEnded.as_str() {
                    return;
                }
                tracing::warn!(%run, ?error, "a run that nobody waits for is not cancelled yet");
                let pause = tokio::time::sleep(CANCEL_RETRY);
                if context.shutdown.run_until_cancelled(pause).await.is_none() {
                    return;
                }
            }
        }));
    }
}
