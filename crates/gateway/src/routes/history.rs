//! `/v1/runs/{id}/at`, `…/replay` and `…/diff`: the past of trees.

use aod_api::history::{ReplayView, TreeAt, TreeDifference};
use aod_api::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};

use crate::context::Shared;
use crate::history;
use crate::http::error::{ApiError, ApiResult};
use crate::routes::runs::run_id;

/// Shows a run with everything that it called, as they stood when the log had come to an event.
///
/// The event is named by its sequence in the log, as events of runs have it; it need not be one of this tree.
#[utoipa::path(
    get, path = "/v1/runs/{run}/at/{event}", tag = "runs",
    params(("run" = String, Path), ("event" = u64, Path, description = "A sequence of the log")),
    responses(
        (status = 200, body = TreeAt),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn at(
    State(context): State<Shared>,
    Path((run, event)): Path<(String, String)>,
) -> ApiResult<Json<TreeAt>> {
    let id = run_id(&run)?;
    let event = event
        .parse()
        .map_err(|_| ApiError::malformed(format!("{event:.80?} is no sequence of the log")))?;
    Ok(Json(history::at(&context, id, event).await?))
}

/// Rebuilds a whole tree from the log and compares it with what the lists of this gateway have of it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/replay", tag = "runs",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = ReplayView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn replay(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> ApiResult<Json<ReplayView>> {
    Ok(Json(history::replay(&context, run_id(&run)?).await?))
}

/// Tells in what two runs differ, with everything that each called.
#[utoipa::path(
    get, path = "/v1/runs/{run}/diff/{other}", tag = "runs",
    params(("run" = String, Path), ("other" = String, Path)),
    responses(
        (status = 200, body = TreeDifference),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn difference(
    State(context): State<Shared>,
    Path((run, other)): Path<(String, String)>,
) -> ApiResult<Json<TreeDifference>> {
    let (left, right) = (run_id(&run)?, run_id(&other)?);
    Ok(Json(history::difference(&context, left, right).await?))
}
