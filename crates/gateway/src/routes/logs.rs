//! `/v1/runs/{id}/logs`: what the container wrote, live while it runs, from the artifact afterwards.
//!
//! Lines are numbered within their attempt, and the same in both places: so a reader passes from
//! the live stream to the artifact, or comes back later, without gap or repeat.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aod_api::events::{LogLineView, LogOutput, LogPage};
use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_ports::log_stream::{LogLine, Output};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures::future::ready;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_stream::wrappers::LinesStream;
use tokio_util::io::StreamReader;

use crate::context::{Context, Shared};
use crate::gone;
use crate::http::error::{ApiError, ApiResult};
use crate::reading;
use crate::routes::runs::run_id;
use crate::routes::sse;
use crate::waiters::RunEnd;

/// Lines of an answer in JSON; whoever wants more reads the stream.
const LINES_MAX: usize = 10_000;

/// How long the live stream may be silent before an answer in JSON counts it as read.
const QUIET: Duration = Duration::from_millis(200);

/// The place of a line: its attempt and its number.
pub(super) type Place = (u32, u64);

/// The lines that a capsule wrote: as JSON those so far, as `text/event-stream` all until its end.
///
/// The `id` of each is `<attempt>.<number>`: with `Last-Event-ID` the stream goes on after it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/logs", tag = "runs",
    params(
        ("run" = String, Path),
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on"),
    ),
    responses(
        (status = 200, content(
            (LogPage = "application/json"),
            (LogLineView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn logs(
    State(context): State<Shared>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let id = run_id(&run)?;
    let after = match sse::last_event_id(&headers) {
        None | Some("") => (0, 0),
        Some(text) => parse_place(text)
            .ok_or_else(|| ApiError::malformed("`Last-Event-ID` is no place in the logs"))?,
    };
    let seen = reading::seen(&context, id).await?;
    let end = seen.run.ended().cloned().map(RunEnd::of);
    if sse::is_wanted(&headers) {
        let parts = parts(&context, id, after, end).await?;
        return Ok(sse::respond(parts.map(to_sse), context.shutdown.clone()));
    }
    let is_live = end.is_none();
    let items = match end {
        Some(end) => {
            let parts = stored(&context, &end, after).await?;
            parts.filter_map(into_line).take(LINES_MAX).collect().await
        }
        None => so_far(&context, id, after).await?,
    };
    Ok(Json(LogPage { items, is_live }).into_response())
}

/// A part of an answer.
enum Part {
    Line(LogLineView),
    /// There is nothing more. A stream without it broke off.
    End,
}

async fn into_line(part: Part) -> Option<LogLineView> {
    match part {
        Part::Line(line) => Some(line),
        Part::End => None,
    }
}

/// All lines after `after`: live until the run ends, then whatever of the artifact was not seen.
async fn parts(
    context: &Shared,
    id: RunId,
    after: Place,
    end: Option<RunEnd>,
) -> ApiResult<BoxStream<'static, Part>> {
    if let Some(end) = end {
        return stored(context, &end, after).await;
    }
    let tail = context.ports.logs.follow(id, 0).await?;
    let shared = Arc::clone(context);
    let ended = async move {
        let log = Arc::clone(shared.runs.log());
        shared.waiters.wait(log.as_ref(), id, None).await
    };
    let live = Live {
        context: Arc::clone(context),
        tail,
        ended: Box::pin(ended),
        last: after,
        rest: None,
    };
    Ok(stream::unfold(live, next_part).boxed())
}

/// A reader between the live stream and the artifact.
struct Live {
    context: Shared,
    tail: BoxStream<'static, (u64, LogLine)>,
    ended: Pin<Box<dyn Future<Output = Option<RunEnd>> + Send>>,
    last: Place,
    rest: Option<BoxStream<'static, Part>>,
}

async fn next_part(mut live: Live) -> Option<(Part, Live)> {
    loop {
        if let Some(rest) = &mut live.rest {
            return rest.next().await.map(|part| (part, live));
        }
        tokio::select! {
            biased;
            line = live.tail.next() => {
                let (_, line) = line?;
                if (line.attempt, line.number) > live.last {
                    live.last = (line.attempt, line.number);
                    return Some((Part::Line(view(line)), live));
                }
            }
            end = &mut live.ended => {
                let stored = stored(&live.context, &end?, live.last).await;
                live.rest = Some(stored.ok()?);
            }
        }
    }
}

/// The lines of the artifact after `after`.
async fn stored(
    context: &Context,
    end: &RunEnd,
    after: Place,
) -> ApiResult<BoxStream<'static, Part>> {
    let Some(summary) = &end.ended.event.logs else {
        return Ok(stream::iter([Part::End]).boxed());
    };
    let lines = artifact_lines(context, summary.digest).await?;
    let parts = lines
        .try_filter_map(move |line| {
            let is_new = (line.attempt, line.number) > after;
            ready(Ok(is_new.then(|| Part::Line(view(line)))))
        })
        .chain(stream::iter([Ok(Part::End)]));
    // What breaks off must not look complete.
    let whole = parts.take_while(|part| ready(part.is_ok()));
    Ok(whole.filter_map(|part| ready(part.ok())).boxed())
}

async fn artifact_lines(
    context: &Context,
    digest: Digest,
) -> ApiResult<impl Stream<Item = ApiResult<LogLine>> + Send + use<>> {
    let content = match context.ports.artifacts.get_stream(digest, None).await {
        Ok(content) => content,
        Err(error) => return Err(gone::explained(context, error).await),
    };
    let bytes = content.bytes.map_err(io::Error::other);
    let lines = LinesStream::new(BufReader::new(StreamReader::new(bytes)).lines());
    Ok(lines.map(|line| {
        let damaged = |error: io::Error| {
            ApiError::new(ErrorCode::StoreUnavailable, "the logs broke off").because(error)
        };
        serde_json::from_str(&line.map_err(damaged)?).map_err(|error| damaged(error.into()))
    }))
}

/// What the live stream has kept, up to now.
pub(super) async fn so_far(
    context: &Context,
    id: RunId,
    after: Place,
) -> ApiResult<Vec<LogLineView>> {
    let mut live = context.ports.logs.follow(id, 0).await?;
    let mut items = Vec::new();
    while items.len() < LINES_MAX {
        match tokio::time::timeout(QUIET, live.next()).await {
            Ok(Some((_, line))) if (line.attempt, line.number) > after => items.push(view(line)),
            Ok(Some(_)) => (),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(items)
}

fn parse_place(text: &str) -> Option<Place> {
    let (attempt, number) = text.split_once('.')?;
    Some((attempt.parse().ok()?, number.parse().ok()?))
}

fn to_sse(part: Part) -> Event {
    match part {
        Part::Line(line) => {
            let data = serde_json::to_string(&line).expect("a line is plain data");
            let id = format!("{}.{}", line.attempt, line.number);
            Event::default().id(id).event("line").data(data)
        }
        Part::End => Event::default().event("end").data("{}"),
    }
}

fn view(line: LogLine) -> LogLineView {
    LogLineView {
        attempt: line.attempt,
        number: line.number,
        at: line.at,
        output: match line.output {
            Output::Stdout => LogOutput::Stdout,
            Output::Stderr => LogOutput::Stderr,
        },
        text: line.text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_by_attempt_and_number() {
        assert_eq!(parse_place("2.10"), Some((2, 10)));
        assert!(parse_place("2.10") > parse_place("1.11"));
        for text in ["", "2", ".1", "1.", "a.b", "1.2.3"] {
            assert_eq!(parse_place(text), None, "{text}");
        }
    }
}
