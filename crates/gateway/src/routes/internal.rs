//! Between nodes and gateways: a run calls a capsule, lists the capsules that it may call, and cancels a call.
//!
//! A node speaks for a run with the token of the run's current lease, and for no other run.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aod_api::RUN_ID_HEADER;
use aod_api::internal::{
    CALL_MEDIA_TYPE, CallLine, CallRequest, CancelCall, Target, Targets, WHITE_SPACE_SECONDS,
};
use aod_api::problem::ProblemItem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::handoff::speaks_for;
use aod_domain::json::{self, Unreadable};
use aod_domain::run::Run;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde::de::DeserializeOwned;

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::bearer;
use crate::http::body;
use crate::parameters::Parameters;
use crate::reading;
use crate::routes::runs::run_id;
use crate::runs::calls;
use crate::runs::launch::Started;
use crate::runs::result_waiters::RunEnd;
use crate::runs::stopping;

/// A run calls a capsule: answers with the callee's id immediately, and with its result at the end.
pub(super) async fn call(
    State(context): State<Shared>,
    Path(run): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response> {
    let bytes = body::json(&headers, request.into_body()).await?;
    let request: CallRequest = read(&bytes)?;
    let caller = caller(&context, &run, request.attempt, &headers).await?;
    let callee = calls::call(&context, &caller, request).await?;
    Ok(answer(context, callee))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    json::read(bytes).map_err(|error| match error {
        Unreadable::Malformed(error) => Error::malformed(format!("the body is malformed: {error}")),
        Unreadable::Numbers(problems) => {
            let errors = problems
                .iter()
                .map(|problem| ProblemItem::within("", problem));
            Error::malformed("the body has invalid fields").with_errors(errors.collect())
        }
    })
}

/// The run that a node speaks for: the node holds the lease of `attempt`, and sends its token. What this gateway has
/// heard of a run suffices to accept the token, but only the log suffices to reject it.
async fn caller(context: &Context, run: &str, attempt: u32, headers: &HeaderMap) -> Result<Run> {
    let token = Digest::of(bearer(headers)?);
    match context.waiters.known(run_id(run)?) {
        Some(known) if speaks_for(&known, attempt, &token) => Ok(known),
        _ => caller_by_log(context, run, attempt, headers).await,
    }
}

/// As [`caller`], but always by the log.
async fn caller_by_log(
    context: &Context,
    run: &str,
    attempt: u32,
    headers: &HeaderMap,
) -> Result<Run> {
    let token = Digest::of(bearer(headers)?);
    let run = context.runs.load(run_id(run)?).await?;
    run.filter(|run| speaks_for(run, attempt, &token))
        .ok_or_else(|| {
            let text = "the token does not belong to the current attempt of the run";
            Error::new(ErrorCode::Unauthorized, text)
        })
}

/// How far an answer is.
enum Progress {
    Accepted(Box<Started>),
    Waiting(Pin<Box<dyn Future<Output = Option<RunEnd>> + Send>>),
    Over,
}

/// The lines of the answer: one immediately, white space while the callee runs, one at the end. If the gateway stops
/// before, the last line is missing, and the node asks another gateway.
fn answer(context: Shared, callee: Started) -> Response {
    let id = callee.run.id;
    let lines = stream::unfold(Progress::Accepted(Box::new(callee)), move |progress| {
        let context = Arc::clone(&context);
        async move {
            match progress {
                Progress::Accepted(callee) => {
                    let wait = async move { callee.end(context.runs.log().as_ref(), None).await };
                    Some((
                        line(&CallLine::Accepted { run_id: id }),
                        Progress::Waiting(Box::pin(wait)),
                    ))
                }
                Progress::Waiting(mut wait) => tokio::select! {
                    biased;
                    end = &mut wait => {
                        let end = end?;
                        let ended = CallLine::Ended { ended: Box::new(end.ended.event.clone()), hash: end.ended.hash };
                        Some((line(&ended), Progress::Over))
                    }
                    () = tokio::time::sleep(Duration::from_secs(WHITE_SPACE_SECONDS)) => {
                        Some((Bytes::from_static(b"\n"), Progress::Waiting(wait)))
                    }
                },
                Progress::Over => None,
            }
        }
    });
    let mut response = Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(CALL_MEDIA_TYPE),
    );
    headers.insert(
        RUN_ID_HEADER,
        HeaderValue::from_str(&id.to_string()).expect("an id is a plain word"),
    );
    response
}

fn line(line: &CallLine) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("a line is plain data");
    text.push(b'\n');
    text.into()
}

/// The capsules that a run may call, with their schemas.
pub(super) async fn targets(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Targets>> {
    let mut parameters = Parameters::of(&uri)?;
    let attempt = parameters
        .value("attempt", "the number of the attempt")
        .unwrap_or_default();
    parameters.finish()?;
    let caller = caller(&context, &run, attempt, &headers).await?;
    let mut targets = Vec::new();
    for registered in calls::targets(&context, &caller) {
        let registration = &registered.event;
        let schema = context.capsules.schema(registration).await?;
        targets.push(Target {
            name: registration.name.clone(),
            title: registration.title.clone(),
            aliases: registration.aliases.clone(),
            description: registration.description.clone(),
            schema: schema.document.clone(),
            content: registration.content,
            image: registration.image.config_digest.clone(),
        });
    }
    Ok(Json(Targets { targets }))
}

/// A run cancels a call: the callee ends, with everything below it.
pub(super) async fn cancel(
    State(context): State<Shared>,
    Path((run, child)): Path<(String, String)>,
    headers: HeaderMap,
    request: Request,
) -> Result<StatusCode> {
    let bytes = body::json(&headers, request.into_body()).await?;
    let request: CancelCall = read(&bytes)?;
    // A superseded attempt must not end what the next attempt waits for.
    let caller = caller_by_log(&context, &run, request.attempt, &headers).await?;
    let child = run_id(&child)?;
    let callee = context.runs.load(child).await?;
    let callee = callee.ok_or_else(|| reading::unknown(child))?;
    let parent = callee.launched.event.parent.as_ref();
    if parent.is_none_or(|parent| parent.run != caller.id) {
        return Err(reading::unknown(child));
    }
    if callee.ended().is_none() {
        match stopping::cancel(&context, child, &caller.id.to_string(), &request.reason).await {
            // The callee ended by itself in the meantime.
            Err(Error::RunEnded(_)) => (),
            other => drop(other?),
        }
    }
    Ok(StatusCode::NO_CONTENT)
}
