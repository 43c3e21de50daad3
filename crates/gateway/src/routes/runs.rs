//! `/v1/runs`: creates, lists, shows and cancels runs.

use std::sync::Arc;
use std::time::Duration;

use aod_api::problem::Problem;
use aod_api::runs::{CancelRun, CreateRun, GivenFile, NewRun, RunPage, RunView, TreeNode};
use aod_api::strict::{self, Fields, JSON_BYTES_MAX};
use aod_api::{IDEMPOTENCY_KEY_HEADER, RUN_ID_HEADER, SEQUENCE_HEADER};
use aod_domain::digest::Hasher;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::Directory;
use aod_domain::handoff::Lineage;
use aod_domain::id::RunId;
use aod_domain::launch::Origin;
use aod_domain::run::{FileEntry, Run};
use aod_domain::trace::TraceParent;
use aod_services::program::inherit;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use jiff::SignedDuration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::http::access::Principal;
use crate::http::body::{self, Media, media, unsupported};
use crate::http::prefer;
use crate::parameters::Parameters;
use crate::read_model::Filter;
use crate::reading;
use crate::routes::upload;
use crate::runs::launch::{self, Started};
use crate::runs::stopping::{self, WaitingCaller};
use crate::streams;

/// A request for a root.
#[derive(Debug)]
pub(crate) struct RootRequest {
    pub(crate) run: NewRun,
    pub(crate) idempotency_key: Option<String>,
    pub(super) principal: Principal,
    /// The trace of the caller.
    pub(super) trace: Option<TraceParent>,
    /// Pointer to the arguments in the body.
    pub(super) arguments_pointer: &'static str,
}

/// Creates a run.
///
/// The gateway answers 202 as soon as the request is stored. With `Prefer: wait=N`, it answers 200 if the run ends
/// within that time.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "create_run",
    request_body(content = CreateRun, description = "JSON, or multipart/form-data with this JSON as part `request` and one part for each file, with the name by which the arguments refer to the file"),
    params(
        ("Prefer" = Option<String>, Header, description = "`wait=N` in seconds, or `respond-async`"),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key joins the same run"),
    ),
    responses(
        (status = 200, body = RunView, description = "The run has ended within the waiting time"),
        (status = 202, body = RunView, description = "The request is stored; the run has not ended"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response> {
    context.admit_root().await?;
    let headers = request.headers().clone();
    let artifacts = context.ports.artifacts.as_ref();
    let (bytes, files) = match media(&headers) {
        Media::Json => (body::json(&headers, request.into_body()).await?, Vec::new()),
        Media::Multipart => {
            let received =
                upload::multipart(artifacts, context.config.upload_bytes_max, request).await?;
            (received.request, received.files)
        }
        Media::Other => return Err(unsupported("application/json or multipart/form-data")),
    };
    let wait = prefer::wait(&headers, context.wait_max());
    let known = Files::Of(&context, &principal);
    let request = read_request(known, &headers, &bytes, files, principal.clone()).await?;
    let (started, caller) = match (wait, request.run.terms.is_cancelled_on_disconnect) {
        (Some(_), true) => launch_for_caller(&context, request).await?,
        _ => (launch_root(&context, request).await?, None),
    };
    answer(&context, started, wait, caller).await
}

/// The run, with its result if it ends within `wait`.
pub(super) async fn answer(
    context: &Context,
    started: Started,
    wait: Option<Duration>,
    caller: Option<WaitingCaller>,
) -> Result<Response> {
    let run = started.run.clone();
    let until = wait.map(|wait| Instant::now() + wait);
    let end = match until {
        Some(_) => started.end(context.runs.log().as_ref(), until).await,
        None => None,
    };
    if let Some(caller) = caller {
        caller.was_answered();
    }
    let (status, view) = match end {
        Some(end) => (
            StatusCode::OK,
            reading::view_of_end(context, run.id, &end).await?,
        ),
        None => (
            StatusCode::ACCEPTED,
            reading::view_of(context, run.clone()).await?,
        ),
    };
    let mut response = (status, Json(view)).into_response();
    put_headers(&mut response, &run);
    Ok(response)
}

/// Launches a root that is cancelled if its caller disconnects, also while the launch is being stored.
async fn launch_for_caller(
    context: &Shared,
    request: RootRequest,
) -> Result<(Started, Option<WaitingCaller>)> {
    let (sender, launched) = oneshot::channel();
    let shared = Arc::clone(context);
    context.tasks.spawn(inherit(async move {
        let caller = request.principal.name.clone();
        let launched = launch_root(&shared, request).await.map(|started| {
            let caller = WaitingCaller::new(&shared, started.run.id, caller);
            (started, Some(caller))
        });
        // If the caller has disconnected, this drops the waiting caller, which cancels the run.
        drop(sender.send(launched));
    }));
    let ending = |_| {
        Error::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is stopping: retry the request",
        )
    };
    launched.await.map_err(ending)?
}

/// Adds the headers with the URL of the run, its id, and the sequence of its last event.
pub(super) fn put_headers(response: &mut Response, run: &Run) {
    let text =
        |text: String| HeaderValue::from_str(&text).expect("ids and numbers are plain words");
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, text(format!("/v1/runs/{}", run.id)));
    headers.insert(RUN_ID_HEADER, text(run.id.to_string()));
    headers.insert(SEQUENCE_HEADER, text(run.last.sequence.to_string()));
}

/// Reads the body strictly; `files` are those of the same request.
pub(crate) async fn read_request(
    known: Files<'_>,
    headers: &HeaderMap,
    bytes: &[u8],
    mut files: Vec<FileEntry>,
    principal: Principal,
) -> Result<RootRequest> {
    let mut fields = Fields::parse(bytes)?;
    files.extend(files_of(known, &mut fields).await?);
    Ok(RootRequest {
        run: CreateRun::read(fields, files)?,
        idempotency_key: idempotency_key(headers)?,
        principal,
        trace: trace_parent(headers),
        arguments_pointer: "/arguments",
    })
}

/// Finds the uploaded files of a request.
pub(super) async fn files_of(known: Files<'_>, fields: &mut Fields) -> Result<Vec<FileEntry>> {
    let mut files = Vec::new();
    for (index, given) in GivenFile::read_all(fields) {
        let pointer = format!("/files/{index}");
        match upload::uploaded(known, &given.name, &given.file, &pointer).await? {
            Ok(file) => files.push(file),
            Err(error) => fields.error(error.pointer, error.message),
        }
    }
    Ok(files)
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let value = headers.get(IDEMPOTENCY_KEY_HEADER);
    let key = value.map(|value| strict::idempotency_key(value.as_bytes()));
    key.transpose().map_err(Error::malformed)
}

/// Checks and stores the launch of a root.
pub(super) async fn launch_root(context: &Context, request: RootRequest) -> Result<Started> {
    let tenant = request.principal.tenant();
    let NewRun { wanted, terms } = request.run;
    let registration = context.capsules.get(&tenant, &wanted.target).await?;
    let pointer = request.arguments_pointer;
    let checked = launch::check(context, registration, &wanted, Directory::Input, pointer).await?;
    let checked = checked.with_part(&terms.digest());
    let id = match &request.idempotency_key {
        Some(key) => root_of_key(&request.principal, key),
        None => context.ports.clock.fresh_root(),
    };
    let until_deadline = SignedDuration::from_secs(terms.deadline_seconds.into());
    let origin = Origin {
        tenant,
        parent: None,
        rerun: None,
        reuses: None,
        lineage: Lineage {
            signatures: vec![checked.signature()],
        },
        budget: wanted.budget,
        deadline: context.ports.clock.now() + until_deadline,
        requested_by: request.principal.name,
        trace: request.trace,
        labels: terms.labels,
        priority: terms.priority,
        shared: Vec::new(),
        near: None,
    };
    launch::launch(context, id, &checked, origin).await
}

/// Ignores an invalid header. Source: W3C Trace Context, 2.2.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

/// The root for a key. A key is unique for a token name and a tenant, because two callers may choose the same key.
pub(super) fn root_of_key(principal: &Principal, key: &str) -> RunId {
    let mut hasher = Hasher::new();
    hasher.field(b"root");
    hasher.field(principal.name.as_bytes());
    hasher.field(key.as_bytes());
    let tenant = principal.tenant();
    if !tenant.is_default() {
        hasher.field(tenant.as_str().as_bytes());
    }
    RunId::root_of_key(&hasher.finish())
}

/// Lists runs, latest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(
        ("id" = Option<String>, Query, description = "Only runs whose id begins with this text"),
        ("state" = Option<Vec<String>>, Query, description = "Only runs in this state (repeatable)"),
        ("capsule" = Option<String>, Query, description = "Only runs of the capsule with this name"),
        ("label" = Option<Vec<String>>, Query, description = "Only runs with the label `name=value` (repeatable; all must match)"),
        ("text" = Option<String>, Query, description = "Only runs whose arguments or errors contain all these words"),
        ("since" = Option<String>, Query, description = "Only runs requested since this time (RFC 3339)"),
        ("until" = Option<String>, Query, description = "Only runs requested before this time (RFC 3339)"),
        ("roots" = Option<bool>, Query, description = "Only roots"),
        ("tenant" = Option<String>, Query, description = "Only runs of this tenant"),
        ("limit" = Option<u32>, Query, description = "Maximum number of items, from 1 to 500; default: 50"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("at_least" = Option<u64>, Query, description = "Wait until the list contains the event with this sequence"),
    ),
    responses(
        (status = 200, body = RunPage, description = "A page of runs"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
) -> Result<Json<RunPage>> {
    let mut parameters = Parameters::of(&uri)?;
    let filter = Filter::read(&mut parameters, &principal);
    let page = parameters.page();
    parameters.finish()?;
    let lists = &context.read_model;
    match page.at_least {
        0 => lists.catch_up(context.runs.log().as_ref()).await,
        at_least => lists.wait_for(at_least).await?,
    }
    Ok(Json(lists.page(filter, page.cursor, page.limit).await?))
}

/// Shows a run.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", operation_id = "get_run",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = RunView, description = "The run"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> Result<Json<RunView>> {
    Ok(Json(reading::view(&context, run_id(&run)?).await?))
}

/// Shows a run with all runs below it.
#[utoipa::path(
    get, path = "/v1/runs/{run}/tree", tag = "runs", operation_id = "get_tree",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = TreeNode, description = "The run with all runs below it"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn tree(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> Result<Json<TreeNode>> {
    Ok(Json(reading::tree(&context, run_id(&run)?).await?))
}

/// Cancels a run and its callees.
///
/// Queued runs end immediately, leased runs as soon as their node has ended them.
#[utoipa::path(
    post, path = "/v1/runs/{run}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("run" = String, Path)),
    request_body(content = CancelRun, description = "Optional"),
    responses(
        (status = 202, body = RunView, description = "The cancel request is stored"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn cancel(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> Result<Response> {
    let id = run_id(&run)?;
    let reason = cancel_reason(request).await?;
    let run = stopping::cancel(&context, id, &principal.name, &reason).await?;
    let view = reading::view_of(&context, run.clone()).await?;
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    put_headers(&mut response, &run);
    Ok(response)
}

async fn cancel_reason(request: Request) -> Result<String> {
    let bytes = streams::whole(request.into_body().into_data_stream(), JSON_BYTES_MAX).await?;
    Ok(CancelRun::read(&bytes)?.reason)
}

/// The run id in a path; an invalid id counts as unknown.
pub(super) fn run_id(text: &str) -> Result<RunId> {
    text.parse()
        .map_err(|error| Error::new(ErrorCode::UnknownRun, format!("{error}")))
}

/// `?wait=` in seconds, at most `wait_max`.
pub(super) fn wait_parameter(parameters: &mut Parameters, wait_max: Duration) -> Option<Duration> {
    let seconds: u64 = parameters.value("wait", "a number of seconds")?;
    Some(Duration::from_secs(seconds).min(wait_max))
}
