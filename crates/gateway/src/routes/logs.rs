//! `/v1/runs/{run}/logs`: the output of the container; live while the run lasts, from the artifact afterwards.
//!
//! Lines have the same numbers in the live stream and in the artifact. A reader can therefore switch from one to the
//! other, or resume later, without gaps or duplicates.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
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
use axum::http::{HeaderMap, Uri};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures::future::ready;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_stream::wrappers::LinesStream;
use tokio_util::io::StreamReader;

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::parameters::Parameters;
use crate::reading;
use crate::routes::runs::run_id;
use crate::routes::sse;
use crate::runs::result_waiters::RunEnd;

/// Maximum number of lines of a page; the stream has no limit.
const LINES_MAX: usize = 10_000;

/// Time without a line after which a page ends.
const QUIET: Duration = Duration::from_millis(200);

/// Position of a line, as text `<attempt>.<number>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    attempt: u32,
    number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.attempt, self.number)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (attempt, number) = text.split_once('.').ok_or(())?;
        Ok(Self {
            attempt: attempt.parse().map_err(|_| ())?,
            number: number.parse().map_err(|_| ())?,
        })
    }
}

/// Shows the output of a run: as JSON a page of the lines so far, as `text/event-stream` all lines until its end.
///
/// A page with `next` is not the last one: `after=` that value returns the next page. In a stream, `id` is
/// `<attempt>.<number>`. With `Last-Event-ID` or `after`, the stream continues after that line.
#[utoipa::path(
    get, path = "/v1/runs/{run}/logs", tag = "runs", operation_id = "get_run_logs",
    params(
        ("run" = String, Path),
        ("after" = Option<String>, Query, description = "Only lines after this one: `next` of the previous page, or `<attempt>.<number>`"),
        ("limit" = Option<usize>, Query, description = "Maximum number of lines of a page, 1 to 10000; by default 10000"),
        ("Last-Event-ID" = Option<String>, Header, description = "`id` of the last line that the client has received"),
    ),
    responses(
        (status = 200, description = "The lines of the run", content(
            (LogPage = "application/json"),
            (LogLineView = "text/event-stream"),
        )),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn logs(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let id = run_id(&run)?;
    let mut parameters = Parameters::of(&uri)?;
    let after = parameters.value("after", "`next` of a page, or `<attempt>.<number>`");
    let limit = parameters.value("limit", "a number from 1 to 10000");
    parameters.finish()?;
    let after = match sse::last_event_id(&headers) {
        None | Some("") => after.unwrap_or_default(),
        Some(text) => text.parse().map_err(|()| {
            Error::malformed("invalid `Last-Event-ID`: expected `<attempt>.<number>`")
        })?,
    };
    let seen = reading::seen(&context, id).await?;
    let end = seen.run.ended().cloned().map(RunEnd::of);
    if sse::is_wanted(&headers) {
        let parts = parts(&context, id, after, end).await?;
        return Ok(sse::respond(parts.map(to_sse), context.shutdown.clone()));
    }
    let limit = limit.unwrap_or(LINES_MAX).clamp(1, LINES_MAX);
    Ok(Json(page(&context, id, after, limit, end).await?).into_response())
}

/// At most `limit` lines after `after`.
async fn page(
    context: &Context,
    id: RunId,
    after: Place,
    limit: usize,
    end: Option<RunEnd>,
) -> Result<LogPage> {
    let is_live = end.is_none();
    let mut parts = match end {
        Some(end) => stored(context, &end, after).await?,
        None => {
            let lines = so_far(context, id, after).await?;
            lines
                .map(Part::Line)
                .chain(stream::iter([Part::End]))
                .boxed()
        }
    };
    let mut items: Vec<LogLineView> = Vec::new();
    loop {
        let next = match parts.next().await {
            Some(Part::Line(line)) if items.len() < limit => {
                items.push(line);
                continue;
            }
            Some(Part::Line(_)) => items.last().map(|line| place(line).to_string()),
            Some(Part::End) => None,
            None => return Err(unreadable()),
        };
        return Ok(LogPage {
            items,
            is_live,
            next,
        });
    }
}

fn unreadable() -> Error {
    let text = "reading the logs failed: retry the request";
    Error::new(ErrorCode::StoreUnavailable, text)
}

/// A part of an answer.
enum Part {
    Line(LogLineView),
    /// The end; a stream without it is incomplete.
    End,
}

/// All lines after `after`: live until the run ends, then the remaining lines of the artifact.
async fn parts(
    context: &Shared,
    id: RunId,
    after: Place,
    end: Option<RunEnd>,
) -> Result<BoxStream<'static, Part>> {
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
                let line = view(line);
                if place(&line) > live.last {
                    live.last = place(&line);
                    return Some((Part::Line(line), live));
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
async fn stored(context: &Context, end: &RunEnd, after: Place) -> Result<BoxStream<'static, Part>> {
    let Some(summary) = &end.ended.event.logs else {
        return Ok(stream::iter([Part::End]).boxed());
    };
    let lines = artifact_lines(context, summary.digest).await?;
    let parts = lines
        .try_filter_map(move |line| {
            let line = view(line);
            ready(Ok((place(&line) > after).then_some(Part::Line(line))))
        })
        .chain(stream::iter([Ok(Part::End)]));
    // An aborted stream must not look complete.
    let whole = parts.take_while(|part| ready(part.is_ok()));
    Ok(whole.filter_map(|part| ready(part.ok())).boxed())
}

async fn artifact_lines(
    context: &Context,
    digest: Digest,
) -> Result<impl Stream<Item = Result<LogLine>> + Send + use<>> {
    let content = match context.ports.artifacts.get_stream(digest, None).await {
        Ok(content) => content,
        Err(error) => return Err(deleted_artifacts::explained(context, error).await),
    };
    let bytes = content.bytes.map_err(io::Error::other);
    let lines = LinesStream::new(BufReader::new(StreamReader::new(bytes)).lines());
    Ok(lines.map(|line| {
        let damaged = |error: io::Error| unreadable().because(error);
        serde_json::from_str(&line.map_err(damaged)?).map_err(|error| damaged(error.into()))
    }))
}

/// The lines that the live stream has now.
async fn so_far(
    context: &Context,
    id: RunId,
    after: Place,
) -> Result<BoxStream<'static, LogLineView>> {
    let live = context.ports.logs.follow(id, 0).await?;
    let lines = stream::unfold((live, after), |(mut live, mut last)| async move {
        loop {
            let line = tokio::time::timeout(QUIET, live.next()).await.ok()??;
            let line = view(line.1);
            if place(&line) > last {
                last = place(&line);
                return Some((line, (live, last)));
            }
        }
    });
    Ok(lines.boxed())
}

/// The last `count` of the lines that the live stream has now.
pub(super) async fn last_so_far(
    context: &Context,
    id: RunId,
    count: usize,
) -> Result<Vec<LogLineView>> {
    let mut lines = so_far(context, id, Place::default()).await?;
    let mut last = VecDeque::new();
    while let Some(line) = lines.next().await {
        last.push_back(line);
        if last.len() > count {
            last.pop_front();
        }
    }
    Ok(last.into())
}

fn place(line: &LogLineView) -> Place {
    Place {
        attempt: line.attempt,
        number: line.number,
    }
}

fn to_sse(part: Part) -> Event {
    match part {
        Part::Line(line) => {
            let data = serde_json::to_string(&line).expect("a line is plain data");
            let id = place(&line).to_string();
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
        step: line.step,
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
    fn positions_are_ordered_by_attempt_and_number() {
        let place = |text: &str| text.parse::<Place>().ok();
        assert!(place("2.10") > place("1.11"));
        assert_eq!(
            place("2.10").map(|place| place.to_string()).as_deref(),
            Some("2.10")
        );
        for text in ["", "2", ".1", "1.", "a.b", "1.2.3"] {
            assert_eq!(place(text), None, "{text}");
        }
    }
}
