//! `/v1/runs/{run}/events`: the events of a run, as a page or as a stream.

use aod_api::events::{EventPage, EventView};
use aod_api::problem::Problem;
use aod_domain::id::RunId;
use aod_domain::subject;
use aod_ports::event_log::{Followed, From};
use aod_services::pages::Pages;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures::future::ready;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::reading;
use crate::reading::views;
use crate::routes::runs::run_id;
use crate::routes::sse;

/// Maximum number of events of a page; the stream has no limit.
const EVENTS_MAX: usize = 10_000;

/// Lists the events of a run: as JSON a page of the events so far, as `text/event-stream` all events until its result.
///
/// A page with `next` is not the last one: `after=` that value returns the next page. In a stream, `id` is the sequence
/// of the event in the log. With `Last-Event-ID` or `after`, the stream continues after that event, without gaps or
/// duplicates, on any gateway.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs", operation_id = "list_run_events",
    params(
        ("run" = String, Path),
        ("after" = Option<u64>, Query, description = "Only events after this sequence of the log: `next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of events of a page, 1 to 10000; by default 10000"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Sequence of the last event that the client has received"),
    ),
    responses(
        (status = 200, description = "The events of the run", content(
            (EventPage = "application/json"),
            (EventView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn events(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let id = run_id(&run)?;
    let mut parameters = Parameters::of(&uri)?;
    let after: Option<u64> = parameters.value("after", "the sequence of an event");
    let limit = parameters.value("limit", "a number from 1 to 10000");
    parameters.finish()?;
    let after = sse::last_sequence(&headers)?.or(after).unwrap_or_default();
    let log = context.runs.log();
    let first = log.read(&subject::run_state(id), 0, 1).await?;
    if first.is_empty() {
        return Err(reading::unknown(id));
    }
    if sse::is_wanted(&headers) {
        let events = live(&context, id, after).await?.map(|view| to_sse(&view));
        return Ok(sse::respond(events, context.shutdown.clone()));
    }
    let limit = limit.unwrap_or(EVENTS_MAX).clamp(1, EVENTS_MAX);
    let mut stored = log.read(&subject::run_all(id), after, limit + 1).await?;
    let is_last = stored.len() <= limit;
    stored.truncate(limit);
    let items: Result<Vec<EventView>, Error> = stored.iter().map(views::event).collect();
    let items = items?;
    let next = items.last().map(|last| last.sequence);
    let next = next.filter(|_| !is_last);
    Ok(Json(EventPage { items, next }).into_response())
}

/// All events after `after`, until and including the result.
async fn live(context: &Context, id: RunId, after: u64) -> Result<BoxStream<'static, EventView>> {
    let log = context.runs.log();
    let result = log.read_last(&subject::run_result(id)).await?;
    if result.is_some_and(|result| result.sequence <= after) {
        // Only a seal can follow the result.
        let pages = Pages::new(log.as_ref(), subject::run_all(id), after);
        let stored = pages.rest().await?;
        return Ok(stream::iter(stored)
            .filter_map(|stored| ready(views::event(&stored).ok()))
            .boxed());
    }
    let followed = log
        .follow(&subject::run_all(id), From::After(after))
        .await?;
    Ok(until_result(followed).boxed())
}

/// The events of `followed`, up to and including the result.
fn until_result(followed: BoxStream<'static, Followed>) -> impl Stream<Item = EventView> + Send {
    stream::unfold(Some(followed), |followed| async move {
        let mut followed = followed?;
        loop {
            let Followed::Event(stored) = followed.next().await? else {
                continue;
            };
            match views::event(&stored) {
                Ok(view) => {
                    let is_last = view.kind == RESULT_TYPE;
                    return Some((view, (!is_last).then_some(followed)));
                }
                Err(_) => {
                    tracing::error!(sequence = stored.sequence, "skipped an unreadable event");
                }
            }
        }
    })
}

/// Type of the event that ends a run.
const RESULT_TYPE: &str = "dev.aod.run.ended.v1";

pub(super) fn to_sse(view: &EventView) -> Event {
    let data = serde_json::to_string(view).expect("a view is plain data");
    Event::default()
        .id(view.sequence.to_string())
        .event(&view.kind)
        .data(data)
}
