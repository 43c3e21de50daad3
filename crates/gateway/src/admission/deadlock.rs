//! Of runs that wait for one another by rules, the youngest is ended, so that the others can go on.

use std::collections::BTreeSet;

use aod_domain::error_code::ErrorCode;
use aod_domain::flow::Deadlock;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Outcome, Phase, RunError};
use futures::{StreamExt as _, stream};

use crate::context::Context;
use crate::http::error::ApiResult;
use crate::stopping::take_and_end;
use crate::waiting;

/// Ends that are stored at a time.
const ENDS_AT_A_TIME: usize = 16;

/// Looks whether runs wait for one another. `suspects` are those found at the last look: only who is found twice
/// is ended, since a capsule may have given its callee up a moment ago.
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
        tracing::warn!(%run, problem = error.problem().detail, "a deadlock is not ended yet");
    }
}

async fn try_to_end(context: &Context, id: RunId) -> ApiResult<()> {
    let Some(run) = context.runs.load(id).await? else {
        return Ok(());
    };
    // Leased it is by a gateway that began to end it, and died.
    if !matches!(run.phase, Phase::Requested | Phase::Leased(_)) {
        return Ok(());
    }
    let held = waiting::admission(context, id);
    let text = format!("it waited for runs that waited for it: {held}");
    let error = RunError::new(ErrorCode::AdmissionDeadlock, text);
    let end = |attempt| Ended::without_start(attempt, Outcome::Failed, error);
    take_and_end(context, &run, end).await?;
    Ok(())
}
