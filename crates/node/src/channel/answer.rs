//! Answers calls: the head as soon as the call is stored, the body when the callee has ended.

use std::convert::Infallible;
use std::time::Duration;

use aod_api::RUN_ID_HEADER;
use aod_api::problem::Problem;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::id::RunId;
use aod_domain::run::{Outcome, RunError};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::calls::{Answer, CallEnd, Progress, Waiting};

/// How often a waiting answer sends white space. Source: the settled points of the design.
const WHITE_SPACE_EVERY: Duration = Duration::from_secs(15);

/// Whose words an answer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Standard,
    /// The original implementation's: 200 with `success`, and `error` a text.
    Original,
}

/// An open request that waits for a call.
pub(super) struct Waiter {
    waiting: Waiting,
    progress: watch::Receiver<Progress>,
}

impl Waiter {
    pub(super) fn new(waiting: Waiting, progress: watch::Receiver<Progress>) -> Self {
        Self { waiting, progress }
    }

    async fn reached(&mut self, is_far_enough: impl FnMut(&Progress) -> bool) -> Progress {
        match self.progress.wait_for(is_far_enough).await {
            Ok(progress) => progress.clone(),
            // The attempt is over; the connection is about to be closed with it.
            Err(_) => Progress::Done(Answer::Refused(Box::new(Problem::new(
                ErrorCode::RunEnded,
                "the run is over",
            )))),
        }
    }

    async fn done(&mut self) -> Answer {
        match self
            .reached(|progress| matches!(progress, Progress::Done(_)))
            .await
        {
            Progress::Done(answer) => answer,
            Progress::Sent | Progress::Accepted(_) => unreachable!("waited for the end"),
        }
    }
}

/// Answers the request that made a call.
pub(super) async fn respond(mut waiter: Waiter, headers: &HeaderMap, style: Style) -> Response {
    let run = match waiter
        .reached(|progress| !matches!(progress, Progress::Sent))
        .await
    {
        Progress::Done(Answer::Refused(problem)) => {
            waiter.waiting.delivered();
            return refusal(&problem, style);
        }
        Progress::Done(Answer::Ended(end)) => end.run,
        Progress::Accepted(run) => run,
        Progress::Sent => unreachable!("waited for more"),
    };
    let wants = |name: HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .any(|value| value.to_str().is_ok_and(|text| text.contains(word)))
    };
    if wants(HeaderName::from_static("prefer"), "respond-async") {
        waiter.waiting.delivered();
        let headers = [
            (LOCATION, format!("/handoffs/{run}")),
            (run_id_header(), run.to_string()),
        ];
        return (StatusCode::ACCEPTED, headers, Json(json!({"run_id": run}))).into_response();
    }
    if wants(ACCEPT, "text/event-stream") {
        return streamed(run, "text/event-stream", events(waiter, run));
    }
    streamed(run, "application/json", document(waiter, style))
}

/// Answers a poll: the answer if it comes within `wait`, else 202.
pub(super) async fn poll(mut waiter: Waiter, wait: Duration) -> Response {
    match tokio::time::timeout(wait, waiter.done()).await {
        Ok(answer) => {
            waiter.waiting.delivered();
            match answer {
                Answer::Ended(end) => Json(end_document(&end, Style::Standard)).into_response(),
                Answer::Refused(problem) => super::problem(&problem),
            }
        }
        Err(_) => {
            // It is not abandoned: whoever polls comes again.
            waiter.waiting.delivered();
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// A refusal before anything was stored.
pub(super) fn refusal(problem: &Problem, style: Style) -> Response {
    match style {
        Style::Standard => super::problem(problem),
        Style::Original => Json(refusal_document(problem, style)).into_response(),
    }
}

fn run_id_header() -> HeaderName {
    HeaderName::from_static(RUN_ID_HEADER)
}

fn streamed(
    run: RunId,
    media_type: &'static str,
    body: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    use futures::StreamExt;
    let mut response = Response::new(Body::from_stream(body.map(Ok::<_, Infallible>)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let run = HeaderValue::try_from(run.to_string()).expect("an id is visible ASCII");
    response.headers_mut().insert(run_id_header(), run);
    response
}

/// White space while the callee runs, then the document.
fn document(waiter: Waiter, style: Style) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some(waiter), move |waiter| async move {
        let mut waiter = waiter?;
        match tokio::time::timeout(WHITE_SPACE_EVERY, waiter.done()).await {
            Err(_) => Some((Bytes::from_static(b" "), Some(waiter))),
            Ok(answer) => {
                waiter.waiting.delivered();
                Some((to_bytes(&answer_document(&answer, style)), None))
            }
        }
    })
}

/// Server-sent events: `acknowledged`, comments as signs of life, `completed`.
fn events(waiter: Waiter, run: RunId) -> impl Stream<Item = Bytes> + Send {
    let first = Bytes::from(format!(
        "event: acknowledged\ndata: {}\n\n",
        json!({"run_id": run})
    ));
    stream::unfold((Some(first), Some(waiter)), |(first, waiter)| async move {
        if let Some(first) = first {
            return Some((first, (None, waiter)));
        }
        let mut waiter = waiter?;
        match tokio::time::timeout(WHITE_SPACE_EVERY, waiter.done()).await {
            Err(_) => Some((Bytes::from_static(b": waiting\n\n"), (None, Some(waiter)))),
            Ok(answer) => {
                waiter.waiting.delivered();
                let document = answer_document(&answer, Style::Standard);
                Some((
                    Bytes::from(format!("event: completed\ndata: {document}\n\n")),
                    (None, None),
                ))
            }
        }
    })
}

fn to_bytes(document: &Value) -> Bytes {
    Bytes::from(format!("{document}\n"))
}

fn answer_document(answer: &Answer, style: Style) -> Value {
    match answer {
        Answer::Ended(end) => end_document(end, style),
        Answer::Refused(problem) => refusal_document(problem, style),
    }
}

fn end_document(end: &CallEnd, style: Style) -> Value {
    let success = end.ended.outcome == Outcome::Succeeded;
    let output = success.then_some(end.output.as_ref()).flatten();
    match style {
        Style::Standard => json!({
            "success": success,
            "output": output,
            "files": end.files,
            "run_id": end.run,
            "error": end.ended.error,
        }),
        Style::Original => json!({
            "success": success,
            "output": output,
            "files": end.files.values().collect::<Vec<_>>(),
            "session_id": end.run,
            "error": end.ended.error.as_ref().map(|error| &error.message),
            "error_detail": end.ended.error,
        }),
    }
}

/// A refusal in a body whose head has been sent, or that the original's clients read.
fn refusal_document(problem: &Problem, style: Style) -> Value {
    let code = ErrorCode::ALL
        .iter()
        .find(|code| code.as_str() == problem.code);
    let error = RunError {
        code: problem.code.clone(),
        message: problem.detail.clone(),
        detail: (!problem.errors.is_empty()).then(|| json!({"errors": problem.errors})),
        retryable: code.is_some_and(|code| code.is_retryable()),
        source: code.map_or(ErrorSource::Platform, |code| code.source()),
    };
    match style {
        Style::Standard => {
            json!({"success": false, "output": null, "files": {}, "run_id": null, "error": error})
        }
        Style::Original => {
            let places = problem.errors.iter();
            let places = places.map(|item| format!("{} {}", item.pointer, item.message));
            let texts: Vec<_> = std::iter::once(error.message.clone())
                .chain(places)
                .collect();
            json!({"success": false, "output": null, "files": [], "session_id": null,
            "error": texts.join("; "), "error_detail": error})
        }
    }
}
