//! Deadlocks of rules: ends the youngest of the runs that wait for each other, so that the rest can continue.

use std::collections::BTreeSet;

use aod_domain::error_code::ErrorCode;
use aod_domain::flow::Deadlock;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Outcome, Phase, RunError};
use futures::{StreamExt as _, stream};

use crate::context::Context;
use crate::error::Result;
use crate::reading::pending_reason;
use crate::runs::stopping::take_and_end;

/// Results that are stored concurrently.
const ENDS_AT_A_TIME: usize = 16;

/// Checks for runs that wait for each other. `suspects` are the runs that the previous check found: only runs that are
/// found twice are ended, because a capsule may have abandoned its callee a moment ago.
pub(super) async fn end_deadlocked(context: &Context, suspects: &mut BTreeSet<RunId>) {
    let deadlocks = context.admitter.flow().deadlocks();
    let youngest = deadlocks.iter().map(|deadlock| deadlock.youngest(suspects));
    let ended: Vec<RunId> = youngest.flatten().collect();
    let ends = stream::iter(ended).map(|run| end(context, run));
    let ends = ends.buffer_unordered(ENDS_AT_A_TIME);
    ends.for_each(|()| async {}).await;
    *suspects = deadlocks.iter().flat_map(Deadlock::runs).collect();
}

async fn end(context: &Context, run: RunId) {
    if let Err(error) = try_to_end(context, run).await {
        tracing::warn!(%run, problem = error.problem().detail, "cannot end a deadlock; retrying");
    }
}

async fn try_to_end(context: &Context, id: RunId) -> Result<()> {
    let Some(run) = context.runs.load(id).await? else {
        return Ok(());
    };
    // A leased run belongs to a gateway that began to end it, and died.
    if !matches!(run.phase, Phase::Requested | Phase::Leased(_)) {
        return Ok(());
    }
    let held = pending_reason::admission(context, id);
    let text = format!("flow-control deadlock: {held}");
    let error = RunError::new(ErrorCode::AdmissionDeadlock, text);
    let end = |attempt| Ended::without_start(attempt, Outcome::Failed, error);
    take_and_end(context, &run, end).await?;
    Ok(())
}
