//! `/v1/runs/{id}/result`, and the bytes of a run's files.

use aod_api::problem::Problem;
use aod_api::runs::{RunResult, RunView};
use aod_domain::error_code::ErrorCode;
use aod_domain::run::FileEntry;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tokio::time::Instant;

use crate::context::{Context, Shared};
use crate::http::error::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::reading;
use crate::routes::files;
use crate::routes::runs::{run_id, wait_parameter};

/// The result of a run: 200 once there is one, else 202 and the run as it is.
#[utoipa::path(
    get, path = "/v1/runs/{run}/result", tag = "runs",
    params(
        ("run" = String, Path),
        ("wait" = Option<u64>, Query, description = "Seconds to wait for it"),
    ),
    responses(
        (status = 200, body = RunResult),
        (status = 202, body = RunView, description = "It has not ended yet"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn result(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let id = run_id(&run)?;
    let mut parameters = Parameters::of(&uri)?;
    let wait = wait_parameter(&mut parameters, context.wait_max());
    parameters.finish()?;
    let mut seen = reading::seen(&context, id).await?;
    if let (None, Some(wait)) = (seen.run.ended(), wait) {
        let until = Some(Instant::now() + wait);
        if context
            .waiters
            .wait(context.runs.log().as_ref(), id, until)
            .await
            .is_some()
        {
            seen = reading::seen(&context, id).await?;
        }
    }
    match seen.run.ended() {
        Some(ended) => Ok(Json(reading::result(&context, &seen.run, ended).await?).into_response()),
        None => Ok((
            StatusCode::ACCEPTED,
            Json(reading::view(&context, id).await?),
        )
            .into_response()),
    }
}

/// The bytes of a file that the run made. `Range` and `If-None-Match` are honoured.
#[utoipa::path(
    get, path = "/v1/runs/{run}/files/{name}", tag = "runs",
    params(("run" = String, Path), ("name" = String, Path, description = "May contain slashes")),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "A range"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn output_file(
    State(context): State<Shared>,
    Path((run, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let seen = reading::seen(&context, run_id(&run)?).await?;
    let made = seen
        .run
        .ended()
        .map(|ended| ended.event.files.as_slice())
        .unwrap_or_default();
    serve(&context, made, &name, &headers).await
}

/// The bytes of a file that the run was given.
#[utoipa::path(
    get, path = "/v1/runs/{run}/inputs/{name}", tag = "runs",
    params(("run" = String, Path), ("name" = String, Path, description = "May contain slashes")),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "A range"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn input_file(
    State(context): State<Shared>,
    Path((run, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let seen = reading::seen(&context, run_id(&run)?).await?;
    serve(&context, &seen.run.launched.event.files, &name, &headers).await
}

async fn serve(
    context: &Context,
    of_run: &[FileEntry],
    name: &str,
    headers: &HeaderMap,
) -> ApiResult<Response> {
    let Some(file) = of_run.iter().find(|file| file.name.as_str() == name) else {
        let shown: String = name.chars().take(80).collect();
        let names: Vec<&str> = of_run
            .iter()
            .take(20)
            .map(|file| file.name.as_str())
            .collect();
        let detail = format!(
            "the run has no file {shown:?}; it has [{}]",
            names.join(", ")
        );
        return Err(ApiError::new(ErrorCode::UnknownFile, detail));
    };
    files::serve(context, file.digest, headers).await
}
