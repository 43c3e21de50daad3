//! `/v1/retention`, `/v1/holds` and `/v1/gc`: retention policies, holds and garbage collection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aod_api::problem::Problem;
use aod_api::retention::{
    Collect, CollectionLine, HoldList, HoldView, PolicyList, PolicyView, SetHold, SetPolicy,
};
use aod_api::strict::JSON_BYTES_MAX;
use aod_domain::id::RunId;
use aod_domain::retention::{Event, Hold, Policy, PolicyName, Retention};
use aod_domain::subject;
use aod_services::program::spawn;
use aod_services::retention;
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::background::garbage_collection::{Collector, Progress};
use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::sequence;
use crate::reading;
use crate::routes::runs::run_id;
use crate::streams;

/// Media type of an answer with one JSON value on each line.
const LINES_MEDIA_TYPE: &str = "application/x-ndjson";

/// Time between two progress reports: proxies may close connections that are silent for longer.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Lists retention policies by name.
#[utoipa::path(
    get, path = "/v1/retention", tag = "retention", operation_id = "list_retention_policies",
    responses(
        (status = 200, body = PolicyList, description = "All policies"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(State(context): State<Shared>) -> Result<Json<PolicyList>> {
    let retention = load(&context).await?;
    Ok(Json(PolicyList {
        items: retention.policies.values().map(view).collect(),
    }))
}

fn view(policy: &Policy) -> PolicyView {
    PolicyView {
        name: policy.name.to_string(),
        policy: policy.into(),
    }
}

/// Creates or replaces a retention policy.
///
/// The policy applies from the next garbage collection on, also to trees that have already ended.
#[utoipa::path(
    put, path = "/v1/retention/{name}", tag = "retention", operation_id = "set_retention_policy",
    params(("name" = String, Path, description = "Name of the policy: 1 to 63 characters of a-z, 0-9 and -")),
    request_body = SetPolicy,
    responses(
        (status = 200, body = PolicyView, description = "The stored policy"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn set(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response> {
    let name = policy_name(&name)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let policy = SetPolicy::read(name, &bytes)?;
    let view = Json(view(&policy));
    let requested_by = principal.name;
    let event = Event::PolicySet {
        policy,
        requested_by,
    };
    let (_, sequence) = retention::change(context.runs.writer(), &event).await?;
    Ok(([sequence::header(sequence)], view).into_response())
}

/// Removes a retention policy.
///
/// From now on, garbage collection keeps artifacts to which only this policy applied.
#[utoipa::path(
    delete, path = "/v1/retention/{name}", tag = "retention", operation_id = "remove_retention_policy",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn remove(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Result<Response> {
    let name = policy_name(&name)?;
    let requested_by = principal.name;
    let event = Event::PolicyRemoved { name, requested_by };
    let (_, sequence) = retention::change(context.runs.writer(), &event).await?;
    Ok((StatusCode::NO_CONTENT, [sequence::header(sequence)]).into_response())
}

/// Lists trees with a hold.
#[utoipa::path(
    get, path = "/v1/holds", tag = "retention", operation_id = "list_holds",
    responses(
        (status = 200, body = HoldList, description = "All holds"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn holds(State(context): State<Shared>) -> Result<Json<HoldList>> {
    let holds = load(&context).await?.holds.into_iter();
    let items = holds.map(|(run, hold)| hold_view(run, hold)).collect();
    Ok(Json(HoldList { items }))
}

fn hold_view(run: RunId, hold: Hold) -> HoldView {
    HoldView {
        run,
        reason: hold.reason,
        held_by: hold.held_by,
        held_at: hold.held_at,
    }
}

/// Places a hold on the whole tree of a run.
///
/// Garbage collection keeps all artifacts of the tree, regardless of policies. A hold does not restore deleted
/// artifacts.
#[utoipa::path(
    put, path = "/v1/holds/{run}", tag = "retention", operation_id = "place_hold",
    params(("run" = String, Path)),
    request_body = SetHold,
    responses(
        (status = 200, body = HoldView, description = "The stored hold"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn hold(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> Result<Response> {
    let id = run_id(&run)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let reason = SetHold::read(&bytes)?.reason;
    let log = context.runs.log();
    if log.read(&subject::run_state(id), 0, 1).await?.is_empty() {
        return Err(reading::unknown(id));
    }
    let run = id.root();
    let event = Event::HoldPlaced {
        run,
        reason,
        requested_by: principal.name,
    };
    let (mut retention, sequence) = retention::change(context.runs.writer(), &event).await?;
    let hold = retention.holds.remove(&run).expect("it was just placed");
    let view = hold_view(run, hold);
    Ok(([sequence::header(sequence)], Json(view)).into_response())
}

/// Removes a hold; retention policies apply again.
#[utoipa::path(
    delete, path = "/v1/holds/{run}", tag = "retention", operation_id = "remove_hold",
    params(("run" = String, Path)),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn release(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> Result<Response> {
    let run: RunId = run_id(&run)?.root();
    let requested_by = principal.name;
    let event = Event::HoldRemoved { run, requested_by };
    let (_, sequence) = retention::change(context.runs.writer(), &event).await?;
    Ok((StatusCode::NO_CONTENT, [sequence::header(sequence)]).into_response())
}

/// Deletes artifacts that no event, policy or hold keeps.
///
/// The answer contains a line of JSON for each progress report, and the result in the last line. If the client
/// disconnects, the garbage collection stops soon; artifacts deleted before stay deleted.
#[utoipa::path(
    post, path = "/v1/gc", tag = "retention", operation_id = "collect_garbage",
    request_body(content = Collect, description = "Optional"),
    responses(
        (status = 200, content_type = "application/x-ndjson", body = CollectionLine, description = "Progress and result, one JSON value on each line"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn collect(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response> {
    let is_dry_run = read_collect(request).await?;
    let (lines, receiver) = mpsc::channel(1);
    spawn(async move { run(&context, &principal.name, is_dry_run, &lines).await });
    let lines = ReceiverStream::new(receiver).map(|line| Ok::<_, Infallible>(encoded(&line)));
    let mut response = Body::from_stream(lines).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(LINES_MEDIA_TYPE),
    );
    Ok(response)
}

async fn run(
    context: &Arc<Context>,
    requested_by: &str,
    is_dry_run: bool,
    lines: &mpsc::Sender<CollectionLine>,
) {
    let mut told_at = Instant::now();
    let tell = |progress: Progress| {
        let is_wanted = !lines.is_closed() && !context.shutdown.is_cancelled();
        if told_at.elapsed() < PROGRESS_EVERY {
            return is_wanted;
        }
        told_at = Instant::now();
        let Progress {
            found,
            events,
            removed,
        } = progress;
        let line = CollectionLine::Progress {
            found,
            events,
            removed,
        };
        // A slow client may miss progress reports, but not the result.
        let _ = lines.try_send(line);
        is_wanted
    };
    let collector = Collector {
        context,
        requested_by,
        is_dry_run,
        tell,
        progress: Progress::default(),
    };
    let line = match collector.collect().await {
        Ok(collection) => CollectionLine::Ended(collection),
        Err(error) => CollectionLine::Problem(error.problem().clone()),
    };
    let _ = lines.send(line).await;
}

fn encoded(line: &CollectionLine) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("a line is plain data");
    text.push(b'\n');
    text.into()
}

async fn read_collect(request: Request) -> Result<bool> {
    let bytes = streams::whole(request.into_body().into_data_stream(), JSON_BYTES_MAX).await?;
    Ok(Collect::read(&bytes)?.dry_run)
}

async fn load(context: &Context) -> Result<Retention> {
    Ok(retention::load(context.runs.log().as_ref()).await?)
}

fn policy_name(text: &str) -> Result<PolicyName> {
    text.parse()
        .map_err(|error| Error::malformed(format!("{error}")))
}
