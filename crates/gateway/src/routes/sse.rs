//! Answers that go on: server-sent events that end with the gateway, and stay alive in proxies.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use crate::http::error::{ApiError, ApiResult};

/// How often an idle stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the caller wants a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted
        .into_iter()
        .any(|value| value.contains("text/event-stream"))
}

/// What the caller has seen last.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .map(str::trim)
}

/// The same where it is a sequence of the log.
pub(super) fn last_sequence(headers: &HeaderMap) -> ApiResult<Option<u64>> {
    match last_event_id(headers) {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| ApiError::malformed("`Last-Event-ID` is no sequence of the log")),
    }
}

/// `events` as an answer, until they end or the gateway does.
pub(super) fn respond(
    events: impl Stream<Item = Event> + Send + 'static,
    shutdown: CancellationToken,
) -> Response {
    let until = async move { shutdown.cancelled().await };
    let events = events.take_until(Box::pin(until)).map(Ok::<_, Infallible>);
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    // Asks proxies of nginx' kind to pass bytes on at once.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
