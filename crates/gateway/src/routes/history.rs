//! `/v1/runs/{run}/at`, `…/replay` and `…/diff`: the history of trees.

use aod_api::history::{ReplayView, TreeAt, TreeDifference};
use aod_api::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};

use crate::context::Shared;
use crate::error::{Error, Result};
use crate::reading::history;
use crate::routes::runs::run_id;

/// Shows a run with all runs below it, in their state at an event.
///
/// `event` is a sequence number of the log; the event may belong to another tree.
#[utoipa::path(
    get, path = "/v1/runs/{run}/at/{event}", tag = "runs", operation_id = "get_tree_at_event",
    params(("run" = String, Path), ("event" = u64, Path, description = "Sequence of an event in the log")),
    responses(
        (status = 200, body = TreeAt, description = "The tree at the event"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn at(
    State(context): State<Shared>,
    Path((run, event)): Path<(String, String)>,
) -> Result<Json<TreeAt>> {
    let id = run_id(&run)?;
    let event = event.parse().map_err(|_| {
        Error::malformed(format!(
            "{event:.80?} given; expected a sequence number of the log"
        ))
    })?;
    Ok(Json(history::at(&context, id, event).await?))
}

/// Computes the whole tree from its events and compares it with the read model of this gateway.
#[utoipa::path(
    get, path = "/v1/runs/{run}/replay", tag = "runs", operation_id = "replay_tree",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = ReplayView, description = "The differences"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn replay(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> Result<Json<ReplayView>> {
    Ok(Json(history::replay(&context, run_id(&run)?).await?))
}

/// Compares two runs with all runs below them.
#[utoipa::path(
    get, path = "/v1/runs/{run}/diff/{other}", tag = "runs", operation_id = "compare_trees",
    params(("run" = String, Path), ("other" = String, Path)),
    responses(
        (status = 200, body = TreeDifference, description = "The differences"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn difference(
    State(context): State<Shared>,
    Path((run, other)): Path<(String, String)>,
) -> Result<Json<TreeDifference>> {
    let (left, right) = (run_id(&run)?, run_id(&other)?);
    Ok(Json(history::difference(&context, left, right).await?))
}
