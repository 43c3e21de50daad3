//! `/v1/deadletters`: lists, shows, requeues and purges dead-lettered runs.

use aod_api::dead_letters::{DeadLetterPage, DeadLetterView};
use aod_api::problem::Problem;
use aod_api::runs::RunView;
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::error::Result;
use crate::http::access::Principal;
use crate::http::sequence;
use crate::parameters::Parameters;
use crate::reading;
use crate::routes::logs;
use crate::routes::runs::{put_headers, run_id};
use crate::runs::dead_letters::{DeadLetter, find};

/// Lines of output in the view of a dead letter; `/v1/runs/{run}/logs` returns all stored lines.
const LAST_LINES: usize = 20;

/// Lists dead letters, latest launch first: open ones, or all.
#[utoipa::path(
    get, path = "/v1/deadletters", tag = "dead letters", operation_id = "list_dead_letters",
    params(
        ("all" = Option<bool>, Query, description = "Include requeued and purged runs"),
        ("tenant" = Option<String>, Query, description = "Only dead letters of this tenant"),
        ("limit" = Option<u32>, Query, description = "Maximum number of items, from 1 to 500; default: 50"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("at_least" = Option<u64>, Query, description = "Wait until the list contains the event with this sequence"),
    ),
    responses(
        (status = 200, body = DeadLetterPage, description = "A page of dead letters"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
) -> Result<Json<DeadLetterPage>> {
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

/// Shows a dead letter: its attempts with their errors, and its last lines of output.
#[utoipa::path(
    get, path = "/v1/deadletters/{run}", tag = "dead letters", operation_id = "get_dead_letter",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = DeadLetterView, description = "The dead letter"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> Result<Json<DeadLetterView>> {
    let found = find(&context, run_id(&run)?).await?;
    Ok(Json(view(&context, &found).await?))
}

async fn view(context: &Context, found: &DeadLetter) -> Result<DeadLetterView> {
    Ok(DeadLetterView {
        last_lines: logs::last_so_far(context, found.run().id, LAST_LINES).await?,
        ..found.view()
    })
}

/// Launches the request of a dead letter as a new run.
///
/// The new run is a root, even if the dead letter was a callee. A repeated request returns the same new run.
#[utoipa::path(
    post, path = "/v1/deadletters/{run}/requeue", tag = "dead letters", operation_id = "requeue_dead_letter",
    params(("run" = String, Path)),
    responses(
        (status = 202, body = RunView, description = "The new run"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn requeue(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> Result<Response> {
    let found = find(&context, run_id(&run)?).await?;
    let (run, sequence) = found.requeue(&context, &principal.name).await?;
    let view = reading::view_of(&context, run.clone()).await?;
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    put_headers(&mut response, &run);
    let (name, value) = sequence::header(sequence);
    response.headers_mut().insert(name, value);
    Ok(response)
}

/// Removes a dead letter from the list of open dead letters.
///
/// Purging deletes nothing; you can still requeue the run.
#[utoipa::path(
    post, path = "/v1/deadletters/{run}/purge", tag = "dead letters", operation_id = "purge_dead_letter",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = DeadLetterView, description = "The dead letter"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn purge(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> Result<Response> {
    let found = find(&context, run_id(&run)?).await?;
    let purged = found.purge(&context, &principal.name).await?;
    let header = sequence::header(purged.sequence());
    Ok(([header], Json(view(&context, &purged).await?)).into_response())
}
