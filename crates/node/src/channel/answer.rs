//! Answers calls: the head as soon as the gateway has stored the call, the body when the callee has ended.

use std::convert::Infallible;
use std::time::Duration;

use aod_api::RUN_ID_HEADER;
use aod_api::problem::Problem;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::id::RunId;
use aod_domain::run::{Outcome, RunError, error_text};
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
use crate::problem;

/// How often a waiting answer sends white space.
const WHITE_SPACE_EVERY: Duration = Duration::from_secs(15);

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Standard,
    /// agent-on-demand compatibility: 200 with `success`, and `error` a text.
    Compatibility,
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
            // The attempt is over; the node is about to close the connection.
            Err(_) => {
                let ended = Problem::new(ErrorCode::RunEnded, "the run has ended");
                Progress::Done(Err(Box::new(ended)))
            }
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
        Progress::Done(Err(problem)) => {
            waiter.waiting.delivered();
            return refusal(&problem, style);
        }
        Progress::Done(Ok(end)) => end.run,
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

/// Answers a poll: with the answer if it arrives within `wait`, otherwise with 202.
pub(super) async fn poll(mut waiter: Waiter, wait: Duration) -> Response {
    match tokio::time::timeout(wait, waiter.done()).await {
        Ok(answer) => {
            waiter.waiting.delivered();
            match answer {
                Ok(end) => Json(end_document(&end, Style::Standard)).into_response(),
                Err(problem) => problem::response(&problem),
            }
        }
        Err(_) => {
            // The call is not abandoned: the client polls again.
            waiter.waiting.delivered();
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// Answers a call that was refused before it was stored.
pub(super) fn refusal(problem: &Problem, style: Style) -> Response {
    match style {
        Style::Standard => problem::response(problem),
        Style::Compatibility => Json(refusal_document(problem, style)).into_response(),
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

/// Sends white space while the callee runs, then the document.
fn document(waiter: Waiter, style: Style) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some(waiter), move |waiter| async move {
        let mut waiter = waiter?;
        match tokio::time::timeout(WHITE_SPACE_EVERY, waiter.done()).await {
            Err(_) => Some((Bytes::from_static(b" "), Some(waiter))),
            Ok(answer) => {
                waiter.waiting.delivered();
                let document = answer_document(&answer, style);
                Some((Bytes::from(format!("{document}\n")), None))
            }
        }
    })
}

/// Sends server-sent events: `acknowledged`, comments as signs of life, `completed`.
fn events(waiter: Waiter, run: RunId) -> impl Stream<Item = Bytes> + Send {
    let run = json!({"run_id": run});
    let first = Bytes::from(format!("event: acknowledged\ndata: {run}\n\n"));
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

fn answer_document(answer: &Answer, style: Style) -> Value {
    match answer {
        Ok(end) => end_document(end, style),
        Err(problem) => refusal_document(problem, style),
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
        Style::Compatibility => json!({
            "success": success,
            "output": output,
            "files": end.files.values().collect::<Vec<_>>(),
            "session_id": end.run,
            "error": end.ended.error.as_ref().map(|error| error_text(&error.message, error.detail.as_ref())),
            "error_detail": end.ended.error,
        }),
    }
}

/// A refusal in a body whose head was already sent, or for agent-on-demand clients.
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
        Style::Compatibility => {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aod_domain::run::Ended;

    use super::*;

    #[test]
    fn compatibility_answer_quotes_the_last_lines_of_output() {
        let error = RunError::new(ErrorCode::CapsuleExit, "the capsule ended with exit code 1");
        let error =
            error.with_detail(json!({"code": 1, "last_lines": ["reading", "KeyError: 'x'"]}));
        let end = CallEnd {
            run: RunId::root_of_key(&aod_domain::digest::Digest::of("x")),
            ended: Ended::without_start(1, Outcome::Failed, error.clone()),
            output: None,
            files: BTreeMap::new(),
        };
        let document = end_document(&end, Style::Compatibility);
        let text = "the capsule ended with exit code 1\nreading\nKeyError: 'x'";
        assert_eq!(document["error"], text);
        assert_eq!(document["error_detail"], json!(error));
    }
}
