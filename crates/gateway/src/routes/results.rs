//! `/v1/runs/{run}/result`, and the files of a run.

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
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::reading;
use crate::routes::files;
use crate::routes::runs::{run_id, wait_parameter};

/// Shows the result of a run.
#[utoipa::path(
    get, path = "/v1/runs/{run}/result", tag = "runs", operation_id = "get_result",
    params(
        ("run" = String, Path),
        ("wait" = Option<u64>, Query, description = "Maximum number of seconds to wait for the result"),
    ),
    responses(
        (status = 200, body = RunResult, description = "The result"),
        (status = 202, body = RunView, description = "The run has not ended"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn result(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
) -> Result<Response> {
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

/// Downloads an output file of a run. Supports `Range` and `If-None-Match`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/files/{name}", tag = "runs", operation_id = "get_output_file",
    params(("run" = String, Path), ("name" = String, Path, description = "Name of the file; may contain slashes")),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "The content of the file"),
        (status = 206, description = "The requested range of the content"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn output_file(
    State(context): State<Shared>,
    Path((run, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let seen = reading::seen(&context, run_id(&run)?).await?;
    let outputs = seen
        .run
        .ended()
        .map(|ended| ended.event.files.as_slice())
        .unwrap_or_default();
    serve(&context, outputs, &name, &headers).await
}

/// Downloads an input file of a run. Supports `Range` and `If-None-Match`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/inputs/{name}", tag = "runs", operation_id = "get_input_file",
    params(("run" = String, Path), ("name" = String, Path, description = "Name of the file; may contain slashes")),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "The content of the file"),
        (status = 206, description = "The requested range of the content"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn input_file(
    State(context): State<Shared>,
    Path((run, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    let seen = reading::seen(&context, run_id(&run)?).await?;
    serve(&context, &seen.run.launched.event.files, &name, &headers).await
}

async fn serve(
    context: &Context,
    of_run: &[FileEntry],
    name: &str,
    headers: &HeaderMap,
) -> Result<Response> {
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
        return Err(Error::new(ErrorCode::UnknownFile, detail));
    };
    files::serve(context, file.digest, headers).await
}
