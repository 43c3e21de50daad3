//! `/v1/events`: the whole log, as far as somebody wants it.

use aod_api::events::{EventView, SelectedEvents};
use aod_api::problem::Problem;
use aod_ports::event_log::From;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;

use crate::context::Shared;
use crate::http::access::Principal;
use crate::http::error::ApiResult;
use crate::http::parameters::Parameters;
use crate::routes::{events, sse};
use crate::selecting;

/// Events of the whole log: as JSON a page, the oldest first, as `text/event-stream` those that come.
///
/// A request looks at 10,000 events at the most and answers with what it found and where to go on, so a page
/// may have no items and yet a `next`. The `id` of each event of a stream is its sequence in the log: with
/// `Last-Event-ID` the stream goes on after it, without gap or repeat, on any gateway.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        ("type" = Option<Vec<String>>, Query, description = "Any of these: `dev.aod.run.result.v1`, or its word `result`"),
        ("run" = Option<String>, Query, description = "Only events of this run"),
        ("tree" = Option<String>, Query, description = "Only events of the whole tree of this run"),
        ("tenant" = Option<String>, Query, description = "Only events of this tenant"),
        ("capsule" = Option<String>, Query, description = "Only registrations of this capsule and events of its runs"),
        ("label" = Option<Vec<String>>, Query, description = "`name=value`, all of which the run or its root must have"),
        ("since" = Option<String>, Query, description = "Only events from this time on"),
        ("until" = Option<String>, Query, description = "Only events before this time"),
        ("text" = Option<String>, Query, description = "Words that occur in the event's values, all of them"),
        ("after" = Option<u64>, Query, description = "Only events after this sequence: `next` of the page before; of a stream where it begins, now unless given"),
        ("limit" = Option<u32>, Query, description = "1 to 500, 50 unless given"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Where a stream goes on"),
    ),
    responses(
        (status = 200, content(
            (SelectedEvents = "application/json"),
            (EventView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn select(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    uri: Uri,
) -> ApiResult<Response> {
    let mut parameters = Parameters::of(&uri)?;
    let selection = selecting::read(&mut parameters, &principal);
    let after: Option<u64> = parameters.value("after", "a sequence of the log");
    let limit = parameters.limit();
    parameters.finish()?;
    if !sse::is_wanted(&headers) {
        let after = after.unwrap_or_default();
        let page = selecting::page(&context, &selection, after, limit).await?;
        return Ok(Json(page).into_response());
    }
    let seen = sse::last_sequence(&headers)?;
    let from = seen.or(after).map_or(From::Now, From::After);
    let taken = selecting::follow(&context, selection, from).await?;
    let taken = taken.map(|view| events::to_sse(&view));
    Ok(sse::respond(taken, context.shutdown.clone()))
}
