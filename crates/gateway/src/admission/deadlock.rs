//! Of runs that wait for one another by rules, the youngest is ended, so that the others can go on.

use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Outcome, Phase, RunError};

use crate::context::Context;
use crate::http::error::ApiResult;
use crate::stopping::take_and_end;
use crate::waiting;

/// Looks whether runs wait for one another. `suspect` is who was found at the last look: only what is found twice
/// is ended, since a capsule may have given its callee up a moment ago.
pub(super) async fn end_deadlocked(context: &Context, suspect: &mut Option<RunId>) {
    let found = context.admitter.flow().deadlocked();
    let is_found_again = found.is_some() && *suspect == found;
    *suspect = found;
    if let Some(run) = found.filter(|_| is_found_again)
        && let Err(error) = end(context, run).await
    {
        tracing::warn!(%run, problem = error.problem().detail, "a deadlock is not ended yet");
    }
}

async fn end(context: &Context, id: RunId) -> ApiResult<()> {
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
