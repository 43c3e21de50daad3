//! `/v1/runs/{id}/events`: what the log has of a run, at once or as it comes.

use aod_api::events::{EventPage, EventView};
use aod_api::problem::Problem;
use aod_domain::id::RunId;
use aod_domain::subject;
use aod_ports::event_log::{From, Told};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures::future::ready;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};

use crate::context::{Context, Shared};
use crate::http::error::{ApiError, ApiResult};
use crate::reading::{self, RUN_EVENTS_MAX};
use crate::routes::runs::run_id;
use crate::routes::sse;
use crate::views;

/// The events of a run: as JSON those so far, as `text/event-stream` all until its result.
///
/// The `id` of each is its sequence in the log: with `Last-Event-ID` the stream goes on after it,
/// without gap or repeat, on any gateway.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs",
    params(
        ("run" = String, Path),
        ("Last-Event-ID" = Option<u64>, Header, description = "Where to go on"),
    ),
    responses(
        (status = 200, content(
            (EventPage = "application/json"),
            (EventView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn events(
    State(context): State<Shared>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Response> {
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
    let items: Result<Vec<EventView>, ApiError> = stored.iter().map(views::event).collect();
    Ok(Json(EventPage { items: items? }).into_response())
}

/// All events after `after`, until and including the result.
async fn live(
    context: &Context,
    id: RunId,
    after: u64,
) -> ApiResult<BoxStream<'static, EventView>> {
    let log = context.runs.log();
    let result = log.read_last(&subject::run_result(id)).await?;
    if result.is_some_and(|result| result.sequence <= after) {
        // Nothing but a seal can still be there.
        let stored = log
            .read(&subject::run_all(id), after, RUN_EVENTS_MAX)
            .await?;
        return Ok(stream::iter(stored)
            .filter_map(|stored| ready(views::event(&stored).ok()))
            .boxed());
    }
    let told = log
        .follow(&subject::run_all(id), From::After(after))
        .await?;
    Ok(until_result(told).boxed())
}

/// `told` without what is no event, ending right behind the result.
fn until_result(told: BoxStream<'static, Told>) -> impl Stream<Item = EventView> + Send {
    stream::unfold(Some(told), |told| async move {
        let mut told = told?;
        loop {
            let Told::Event(stored) = told.next().await? else {
                continue;
            };
            match views::event(&stored) {
                Ok(view) => {
                    let is_last = view.kind == RESULT_TYPE;
                    return Some((view, (!is_last).then_some(told)));
                }
                Err(_) => tracing::error!(sequence = stored.sequence, "an event cannot be read"),
            }
        }
    })
}

/// The type of the one terminal event.
const RESULT_TYPE: &str = "dev.aod.run.result.v1";

pub(super) fn to_sse(view: &EventView) -> Event {
    let data = serde_json::to_string(view).expect("a view is plain data");
    Event::default()
        .id(view.sequence.to_string())
        .event(&view.kind)
        .data(data)
}
