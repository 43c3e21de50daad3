//! Server-sent events: streams that end when the gateway stops, with comments that keep proxies from closing them.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Time between two comments of an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Maximum number of events in one write: ready events are sent together, because a write costs more than an event.
const EVENTS_IN_WRITE_MAX: usize = 512;

/// Whether the caller requests a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted
        .into_iter()
        .any(|value| value.contains("text/event-stream"))
}

/// The id of the last event that the caller has received.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .map(str::trim)
}

/// As [`last_event_id`], as a sequence of the log.
pub(super) fn last_sequence(headers: &HeaderMap) -> Result<Option<u64>> {
    match last_event_id(headers) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Error::malformed("invalid `Last-Event-ID`: expected a sequence number of the log")
        }),
    }
}

/// `events` as an answer, until they end or the gateway stops.
pub(super) fn respond(
    events: impl Stream<Item = Event> + Send + 'static,
    shutdown: CancellationToken,
) -> Response {
    let until = async move { shutdown.cancelled().await };
    let events = events.take_until(Box::pin(until)).map(Ok::<_, Infallible>);
    let response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    let (head, body) = response.into_parts();
    let writes = body.into_data_stream().ready_chunks(EVENTS_IN_WRITE_MAX);
    let writes = writes.map(|events| {
        let events: std::result::Result<Vec<Bytes>, _> = events.into_iter().collect();
        events.map(|events| Bytes::from(events.concat()))
    });
    let mut response = Response::from_parts(head, Body::from_stream(writes));
    // Tells proxies like nginx not to buffer the answer.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
