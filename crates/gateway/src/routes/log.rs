//! `/v1/events`: queries of the whole log.

use aod_api::events::{EventView, SelectedEvents};
use aod_api::problem::Problem;
use aod_ports::event_log::From;
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;

use crate::context::Shared;
use crate::error::Result;
use crate::http::access::Principal;
use crate::parameters::Parameters;
use crate::reading::selecting;
use crate::routes::{events, sse};

/// Queries events of the whole log: as JSON a page, oldest first, as `text/event-stream` new events.
///
/// A request reads at most 10,000 events and returns the matching ones, so a page without items can have a `next`. In a
/// stream, `id` is the sequence of the event in the log. With `Last-Event-ID`, the stream continues after that event,
/// without gaps or duplicates, on any gateway.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "query_events",
    params(
        ("type" = Option<Vec<String>>, Query, description = "Only events of this type: `dev.aod.run.ended.v1`, or its word `ended` (repeatable)"),
        ("run" = Option<String>, Query, description = "Only events of this run"),
        ("tree" = Option<String>, Query, description = "Only events of the whole tree of this run"),
        ("tenant" = Option<String>, Query, description = "Only events of this tenant"),
        ("capsule" = Option<String>, Query, description = "Only registrations of this capsule and events of its runs"),
        ("label" = Option<Vec<String>>, Query, description = "Only events of runs that have the label `name=value`, or whose root has it (repeatable; all must match)"),
        ("since" = Option<String>, Query, description = "Only events from this time on"),
        ("until" = Option<String>, Query, description = "Only events before this time"),
        ("text" = Option<String>, Query, description = "Only events whose values contain all these words"),
        ("after" = Option<u64>, Query, description = "Only events after this sequence: `next` of the previous page, or the start of a stream; default for a stream: now"),
        ("limit" = Option<u32>, Query, description = "Maximum number of items, from 1 to 500; default: 50"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Sequence of the last event that the client of a stream has received"),
    ),
    responses(
        (status = 200, description = "The matching events", content(
            (SelectedEvents = "application/json"),
            (EventView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn select(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response> {
    let mut parameters = Parameters::of(&uri)?;
    let selection = selecting::read(&mut parameters, &principal);
    let after: Option<u64> = parameters.value("after", "a sequence number of the log");
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
