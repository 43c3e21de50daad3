//! `/v1/deadletters`: runs that were given up, and what is done about them.

use aod_api::SEQUENCE_HEADER;
use aod_api::dead_letters::{DeadLetterPage, DeadLetterView};
use aod_api::problem::Problem;
use aod_api::runs::RunView;
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::dead_letters::{DeadLetter, find};
use crate::http::access::Principal;
use crate::http::error::ApiResult;
use crate::http::parameters::Parameters;
use crate::reading;
use crate::routes::logs;
use crate::routes::runs::{put_headers, run_id};

/// Lines of output that come with a dead letter; all that is left is at `/v1/runs/{run}/logs`.
const LAST_LINES: usize = 20;

/// Lists dead letters, the latest launch first: those about which nothing was done yet, or all.
#[utoipa::path(
    get, path = "/v1/deadletters", tag = "dead letters",
    params(
        ("all" = Option<bool>, Query, description = "Also those that were requeued or purged"),
        ("tenant" = Option<String>, Query, description = "Only those of this tenant"),
        ("limit" = Option<u32>, Query, description = "1 to 500, 50 unless given"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("at_least" = Option<u64>, Query, description = "Waits until the list contains this sequence"),
    ),
    responses(
        (status = 200, body = DeadLetterPage),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
) -> ApiResult<Json<DeadLetterPage>> {
    let mut parameters = Parameters::of(&uri)?;
    let is_all = parameters.value("all", "true or false").unwrap_or_default();
    let tenant = parameters.tenant(&principal);
    let page = parameters.page();
    parameters.finish()?;
    let lists = &context.read_model;
    lists.wait_for(page.at_least).await?;
    let page = lists.dead_letters(tenant, is_all, page.cursor, page.limit);
    Ok(Json(page.await?))
}

/// Why a run was given up: its attempts with their errors, and the last that it wrote.
#[utoipa::path(
    get, path = "/v1/deadletters/{run}", tag = "dead letters",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = DeadLetterView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> ApiResult<Json<DeadLetterView>> {
    let found = find(&context, run_id(&run)?).await?;
    Ok(Json(view(&context, &found).await?))
}

async fn view(context: &Context, found: &DeadLetter) -> ApiResult<DeadLetterView> {
    let lines = logs::so_far(context, found.run().id, (0, 0)).await?;
    let first = lines.len().saturating_sub(LAST_LINES);
    Ok(DeadLetterView {
        last_lines: lines.into_iter().skip(first).collect(),
        ..found.view()
    })
}

/// Launches the same request as a new run, which names the old one: a root, also where the old one was
/// called. Asked for again, it is the same new run.
#[utoipa::path(
    post, path = "/v1/deadletters/{run}/requeue", tag = "dead letters",
    params(("run" = String, Path)),
    responses(
        (status = 202, body = RunView, description = "The new run"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn requeue(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> ApiResult<Response> {
    let found = find(&context, run_id(&run)?).await?;
    let (run, sequence) = found.requeue(&context, &principal.name).await?;
    let view = reading::view_of(&context, run.clone()).await?;
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    put_headers(&mut response, &run);
    put_sequence(&mut response, sequence);
    Ok(response)
}

/// Takes a dead letter off the list; nothing is deleted, and it can still be requeued.
#[utoipa::path(
    post, path = "/v1/deadletters/{run}/purge", tag = "dead letters",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = DeadLetterView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn purge(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> ApiResult<Response> {
    let found = find(&context, run_id(&run)?).await?;
    let purged = found.purge(&context, &principal.name).await?;
    let mut response = Json(view(&context, &purged).await?).into_response();
    put_sequence(&mut response, purged.sequence);
    Ok(response)
}

fn put_sequence(response: &mut Response, sequence: u64) {
    let headers = response.headers_mut();
    headers.insert(SEQUENCE_HEADER, HeaderValue::from(sequence));
}
