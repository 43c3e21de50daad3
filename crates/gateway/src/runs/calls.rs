//! Calls of runs: loads the facts for the rules of `domain::handoff`, and stores or joins the callee.

use std::sync::Arc;

use aod_api::internal::CallRequest;
use aod_domain::digest::Digest;
use aod_domain::file_name::Directory;
use aod_domain::handoff::{self, Found, RENEWALS_MAX, Refusal, TREE_RUNS_MAX, renewed_key};
use aod_domain::id::RunId;
use aod_domain::launch::{CallOrigin, Checked, Origin, Wanted, check_ranges};
use aod_domain::placement::Requirements;
use aod_domain::rerun::{Callee, again, callee};
use aod_domain::run::{Rerun, Reuses, Run};
use aod_domain::spending::Budget;

use crate::capsules::catalogue::Registered;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::reading;
use crate::runs::launch::{self, Started};
use crate::runs::rerun;

/// Starts the callee of `request`, or joins an existing one.
pub(crate) async fn call(context: &Context, caller: &Run, request: CallRequest) -> Result<Started> {
    let call_key = request.call_key;
    let recorded = rerun::recorded_callee(context, caller, call_key).await?;
    match admit(context, caller, &request.target).await {
        Ok(target) => start(context, caller, target, recorded, request).await,
        // The caller may still wait for a callee that exists, even if it may not start one now.
        Err(refusal) => match latest_callee(context, caller.id, call_key).await? {
            Some(run) => launch::join(context, run.id).await?.ok_or(refusal),
            None => Err(refusal),
        },
    }
}

/// The capsule `target`, if `caller` may call it now.
async fn admit(context: &Context, caller: &Run, target: &str) -> Result<Registered> {
    let tree_runs = tree_runs(context, caller.id).await?;
    handoff::check_not_cancelled(caller)?;
    let tenant = &caller.launched.event.tenant;
    let target = context.capsules.get(tenant, target).await?;
    let resolve = |name: &str| context.capsules.resolve(tenant, name);
    handoff::check(caller, &target.event.name, tree_runs, resolve)?;
    Ok(target)
}

/// Number of runs in the tree of `run`, as known to this gateway.
async fn tree_runs(context: &Context, run: RunId) -> Result<u64> {
    match context.waiters.tree_runs(run.root()) {
        Some(count) => Ok(count),
        None => context.read_model.count_tree(run, TREE_RUNS_MAX).await,
    }
}

/// The latest callee that `call_key` has started, including renewals.
pub(crate) async fn latest_callee(
    context: &Context,
    caller: RunId,
    call_key: Digest,
) -> Result<Option<Run>> {
    let mut found = None;
    for renewal in 0..=RENEWALS_MAX {
        let id = caller.child(&renewed_key(call_key, renewal));
        match context.runs.load(id).await? {
            Some(run) => found = Some(run),
            None => break,
        }
    }
    Ok(found)
}

/// Checks the call and stores the launch of the callee, or joins an existing callee.
async fn start(
    context: &Context,
    caller: &Run,
    target: Registered,
    recorded: Option<Run>,
    request: CallRequest,
) -> Result<Started> {
    let (attempt, call_key) = (request.attempt, request.call_key);
    let wanted = wanted(request);
    check_ranges(&wanted).map_err(|rejection| Error::rejected(&rejection, ""))?;
    let target = rerun::as_recorded(context, caller, recorded.as_ref(), target).await?;
    let name = target.event.name.clone();
    let checked = launch::check(context, target, &wanted, Directory::Outgoing, "/args").await?;
    let signature = checked.signature();
    let lineage = &caller.launched.event.lineage;
    let lineage = lineage.descend(&name, signature)?;
    let recorded = match recorded {
        None => rerun::recorded_elsewhere(context, caller, signature).await?,
        by_key => by_key,
    };
    let (rerun, reuses) = repeated(context, caller, recorded.as_ref(), signature).await?;
    let origin = CallOrigin {
        attempt,
        call_key,
        lineage,
        rerun,
        reuses,
    };
    let started = launch_or_join(context, caller, &checked, &origin).await?;
    rerun::take_over(context, started).await
}

fn wanted(request: CallRequest) -> Wanted {
    Wanted {
        target: request.target,
        arguments: request.arguments,
        files: request.files,
        pool: request.pool,
        requirements: Requirements::default(),
        timeout_seconds: request.timeout_seconds,
        retries: request.retries,
        limits: request.limits,
        // The budget of the tree applies.
        budget: Budget::default(),
    }
}

/// In a rerun: the run that a call with `signature` repeats, and the result that it reuses. A result with deleted
/// files is recomputed.
async fn repeated(
    context: &Context,
    caller: &Run,
    recorded: Option<&Run>,
    signature: Digest,
) -> Result<(Option<Rerun>, Option<Reuses>)> {
    let Some(repeats) = &caller.launched.event.rerun else {
        return Ok((None, None));
    };
    match (callee(repeats, recorded, signature), recorded) {
        (Callee::Started(rerun), _) => Ok((Some(rerun), None)),
        (Callee::Reused(_), Some(recorded)) if !rerun::is_whole(context, recorded).await? => {
            Ok((Some(again(repeats, recorded)), None))
        }
        (Callee::Reused(reuses), _) => Ok((None, Some(reuses))),
    }
}

/// Launches the callee under the key of the call, or joins an existing one; renews the call as
/// [`handoff::found`] decides.
async fn launch_or_join(
    context: &Context,
    caller: &Run,
    checked: &Checked,
    call: &CallOrigin,
) -> Result<Started> {
    for renewal in 0..=RENEWALS_MAX {
        let call_key = renewed_key(call.call_key, renewal);
        let of_renewal = CallOrigin {
            call_key,
            ..call.clone()
        };
        let origin = Origin::of_callee(caller, of_renewal, context.ports.clock.now());
        let id = caller.id.child(&call_key);
        let started = launch::launch(context, id, checked, origin).await?;
        if handoff::found(&started.run, call.attempt) == Found::Joined {
            return Ok(started);
        }
        check_not_cancelled_above(context, caller.id).await?;
    }
    Err(Refusal::RenewedTooOften.into())
}

/// A cancel proceeds down the tree: a caller that it has not reached yet must not renew calls that it ended. Reads at
/// most as many runs as calls may be nested, and only if a callee of an earlier attempt failed.
async fn check_not_cancelled_above(context: &Context, caller: RunId) -> Result<()> {
    let mut next = Some(caller);
    while let Some(id) = next {
        let run = context.runs.load(id).await?;
        let run = run.ok_or_else(|| reading::unknown(id))?;
        handoff::check_not_cancelled(&run)?;
        next = run.launched.event.parent.map(|parent| parent.run);
    }
    Ok(())
}

/// The registered capsules that `caller` may call.
pub(crate) fn targets(context: &Context, caller: &Run) -> Vec<Registered> {
    let tenant = &caller.launched.event.tenant;
    let handoffs = handoff::handoffs(caller);
    let resolve = |name: &str| context.capsules.resolve(tenant, name);
    let mut all = context.capsules.all(tenant);
    all.retain(|target: &Registered| {
        let target = Arc::as_ref(target);
        handoff::permits(handoffs, &target.event.name, resolve)
    });
    all
}
