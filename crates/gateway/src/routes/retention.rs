//! `/v1/retention`, `/v1/holds`, `/v1/gc`: what is kept for how long, what is held, and what goes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aod_api::SEQUENCE_HEADER;
use aod_api::problem::Problem;
use aod_api::retention::{
    Collect, CollectionLine, HoldList, HoldView, PolicyList, PolicyView, SetHold, SetPolicy,
};
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::retention::{
    CAPSULES_MAX, Event, HOLDS_MAX, Keep, LABELS_MAX, POLICIES_MAX, Policy, PolicyName,
    REASON_LENGTH_MAX, Retention, TENANTS_MAX,
};
use aod_domain::run::Outcome;
use aod_domain::subject;
use aod_domain::tenant::Tenant;
use aod_ports::program::spawn;
use aod_ports::retention;
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::collecting::{Collector, Progress};
use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;
use crate::reading;
use crate::routes::runs::run_id;

/// The media type of an answer that comes line by line.
const LINES_MEDIA_TYPE: &str = "application/x-ndjson";

/// How often it is told how far a collection is: connections that are silent for longer may be cut.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Lists the policies, by their names.
#[utoipa::path(
    get, path = "/v1/retention", tag = "retention",
    responses(
        (status = 200, body = PolicyList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(context): State<Shared>) -> ApiResult<Json<PolicyList>> {
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

/// Makes a policy, or puts it in the place of the one of this name. It counts from the next collection on, also
/// for trees that have ended before.
#[utoipa::path(
    put, path = "/v1/retention/{name}", tag = "retention",
    params(("name" = String, Path, description = "1 to 63 of a-z, 0-9 and -")),
    request_body = SetPolicy,
    responses(
        (status = 200, body = PolicyView, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn set(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let name = policy_name(&name)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let policy = read(name, &bytes)?;
    let policies = load(&context).await?.policies;
    if policies.len() >= POLICIES_MAX && !policies.contains_key(&policy.name) {
        let text = format!("there are {POLICIES_MAX} policies, and may not be more");
        return Err(ApiError::malformed(text));
    }
    let view = Json(view(&policy));
    let requested_by = principal.name;
    let event = Event::PolicySet {
        policy,
        requested_by,
    };
    let sequence = retention::lay_down(&context.runs, event).await?;
    Ok(([sequence_header(sequence)], view).into_response())
}

/// Removes a policy. What only it let go stays from now on.
#[utoipa::path(
    delete, path = "/v1/retention/{name}", tag = "retention",
    params(("name" = String, Path)),
    responses(
        (status = 204, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn remove(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let name = policy_name(&name)?;
    if !load(&context).await?.policies.contains_key(&name) {
        let text = format!("there is no policy {name}");
        return Err(ApiError::new(ErrorCode::UnknownPolicy, text));
    }
    let requested_by = principal.name;
    let event = Event::PolicyRemoved { name, requested_by };
    let sequence = retention::lay_down(&context.runs, event).await?;
    Ok((StatusCode::NO_CONTENT, [sequence_header(sequence)]).into_response())
}

/// Lists the trees that are held.
#[utoipa::path(
    get, path = "/v1/holds", tag = "retention",
    responses(
        (status = 200, body = HoldList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn holds(State(context): State<Shared>) -> ApiResult<Json<HoldList>> {
    let holds = load(&context).await?.holds.into_iter();
    let items = holds.map(|(run, hold)| HoldView {
        run,
        reason: hold.reason,
        held_by: hold.held_by,
        held_at: hold.held_at,
    });
    Ok(Json(HoldList {
        items: items.collect(),
    }))
}

/// Holds the whole tree that a run belongs to: whatever policies say, nothing that it names is collected. What
/// was collected before is not brought back.
#[utoipa::path(
    put, path = "/v1/holds/{run}", tag = "retention",
    params(("run" = String, Path)),
    request_body = SetHold,
    responses(
        (status = 200, body = HoldView, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn hold(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let id = run_id(&run)?;
    let headers = request.headers().clone();
    let bytes = body::json(&headers, request.into_body()).await?;
    let mut fields = Fields::parse(&bytes)?;
    let reason = fields.required_text("reason");
    if reason.chars().count() > REASON_LENGTH_MAX {
        let text = format!("expected at most {REASON_LENGTH_MAX} characters");
        fields.error("/reason", text);
    }
    fields.finish()?;
    let log = context.runs.log();
    if log.read(&subject::run_state(id), 0, 1).await?.is_empty() {
        return Err(reading::unknown(id));
    }
    let (run, holds) = (id.root(), load(&context).await?.holds);
    if holds.len() >= HOLDS_MAX && !holds.contains_key(&run) {
        let text = format!("{HOLDS_MAX} trees are held, and may not be more");
        return Err(ApiError::malformed(text));
    }
    let event = Event::Held {
        run,
        reason: reason.clone(),
        requested_by: principal.name.clone(),
    };
    let sequence = retention::lay_down(&context.runs, event).await?;
    let view = HoldView {
        run,
        reason,
        held_by: principal.name,
        held_at: context.ports.clock.now(),
    };
    Ok(([sequence_header(sequence)], Json(view)).into_response())
}

/// Lets a tree go again: from now on policies count.
#[utoipa::path(
    delete, path = "/v1/holds/{run}", tag = "retention",
    params(("run" = String, Path)),
    responses(
        (status = 204, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn release(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> ApiResult<Response> {
    let run: RunId = run_id(&run)?.root();
    if !load(&context).await?.holds.contains_key(&run) {
        let text = format!("the tree of {run} is not held");
        return Err(ApiError::new(ErrorCode::UnknownHold, text));
    }
    let requested_by = principal.name;
    let event = Event::HoldRemoved { run, requested_by };
    let sequence = retention::lay_down(&context.runs, event).await?;
    Ok((StatusCode::NO_CONTENT, [sequence_header(sequence)]).into_response())
}

/// Collects what nothing names or keeps any more, and tells how far it is, a line of JSON each time; the last
/// line says what came of it. It stops soon after the connection breaks off; what was collected until then is gone.
#[utoipa::path(
    post, path = "/v1/gc", tag = "retention",
    request_body(content = Collect, description = "May be left out"),
    responses(
        (status = 200, content_type = "application/x-ndjson", body = CollectionLine),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn collect(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
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
        // Whoever does not read as fast as that misses nothing that lasts.
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

async fn read_collect(request: Request) -> ApiResult<bool> {
    let bytes = body::whole(request.into_body().into_data_stream(), body::JSON_BYTES_MAX).await?;
    if bytes.is_empty() {
        return Ok(false);
    }
    let mut fields = Fields::parse(&bytes)?;
    let is_dry_run = fields.flag("dry_run");
    fields.finish()?;
    Ok(is_dry_run)
}

async fn load(context: &Context) -> ApiResult<Retention> {
    Ok(retention::load(context.runs.log().as_ref()).await?)
}

fn sequence_header(sequence: u64) -> (&'static str, HeaderValue) {
    (SEQUENCE_HEADER, HeaderValue::from(sequence))
}

fn policy_name(text: &str) -> ApiResult<PolicyName> {
    text.parse()
        .map_err(|error| ApiError::malformed(format!("{error}")))
}

/// Reads the body strictly.
fn read(name: PolicyName, bytes: &[u8]) -> ApiResult<Policy> {
    let mut fields = Fields::parse(bytes)?;
    let policy = Policy {
        name,
        for_tenants: fields.words::<Tenant>("for_tenants", TENANTS_MAX),
        for_capsules: fields.words::<CapsuleName>("for_capsules", CAPSULES_MAX),
        for_labels: fields.texts("for_labels"),
        for_outcomes: read_outcomes(&mut fields),
        logs: read_keep(&mut fields, "logs"),
        files: read_keep(&mut fields, "files"),
        capsules: read_keep(&mut fields, "capsules"),
    };
    if policy.for_labels.len() > LABELS_MAX {
        fields.error("/for_labels", format!("expected at most {LABELS_MAX}"));
    }
    fields.finish()?;
    if policy.logs.is_none() && policy.files.is_none() && policy.capsules.is_none() {
        let text = "a policy states a time for at least one of logs, files, capsules";
        return Err(ApiError::malformed(text));
    }
    Ok(policy)
}

fn read_outcomes(fields: &mut Fields) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (index, value) in fields.list("for_outcomes").into_iter().enumerate() {
        match serde_json::from_value(value.clone()) {
            Ok(outcome) if !outcomes.contains(&outcome) => outcomes.push(outcome),
            Ok(_) => fields.error(format!("/for_outcomes/{index}"), "given twice"),
            Err(_) => {
                let text = format!(
                    "{value} given; expected one of succeeded, failed, timed_out, cancelled"
                );
                fields.error(format!("/for_outcomes/{index}"), text);
            }
        }
    }
    outcomes
}

fn read_keep(fields: &mut Fields, key: &'static str) -> Option<Keep> {
    let value: Value = fields.take(key)?;
    match value.as_str().map(str::parse) {
        Some(Ok(keep)) => return Some(keep),
        Some(Err(error)) => fields.error(format!("/{key}"), format!("{error}")),
        None => fields.error(
            format!("/{key}"),
            format!("{value} given; expected a text like 30d"),
        ),
    }
    None
}
