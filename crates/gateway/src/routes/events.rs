//! `/v1/runs/{run}/events`: the events of a run, as a page or as a stream.

use aod_api::events::{EventPage, EventView};
use aod_api::problem::Problem;
use aod_domain::id::RunId;
use aod_domain::subject;
use aod_ports::event_log::{Followed, From};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures::future::ready;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::reading::views;
use crate::reading::{self, RUN_EVENTS_MAX};
use crate::routes::runs::run_id;
use crate::routes::sse;

/// Lists the events of a run: as JSON the events so far, as `text/event-stream` all events until its result.
///
/// In a stream, `id` is the sequence of the event in the log. With `Last-Event-ID`, the stream continues after that
/// event, without gaps or duplicates, on any gateway.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs", operation_id = "list_run_events",
    params(
        ("run" = String, Path),
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
    headers: HeaderMap,
) -> Result<Response> {
    let id = run_id(&run)?;
    let after = sse::last_sequence(&headers)?.unwrap_or_default();
    let log = context.runs.log();
    let first = log.read(&subject::run_state(id), 0, 1).await?;
    if first.is_empty() {
        return Err(reading::unknown(id));
    }
    if sse::is_wanted(&headers) {
        let events = live(&context, id, after).await?.map(|view| to_sse(&view));
        return Ok(sse::respond(events, context.shutdown.clone()));
    }
    let stored = log
        .read(&subject::run_all(id), after, RUN_EVENTS_MAX)
        .await?;
    let items: Result<Vec<EventView>, Error> = stored.iter().map(views::event).collect();
    Ok(Json(EventPage { items: items? }).into_response())
}

/// All events after `after`, until and including the result.
async fn live(context: &Context, id: RunId, after: u64) -> Result<BoxStream<'static, EventView>> {
    let log = context.runs.log();
    let result = log.read_last(&subject::run_result(id)).await?;
    if result.is_some_and(|result| result.sequence <= after) {
        // Only a seal can follow the result.
        let stored = log
            .read(&subject::run_all(id), after, RUN_EVENTS_MAX)
            .await?;
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
