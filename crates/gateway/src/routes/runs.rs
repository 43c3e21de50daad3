//! `/v1/runs`: asked for, listed, shown, cancelled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_api::problem::Problem;
use aod_api::runs::{CancelRun, CreateRun, OnDisconnect, RunPage, RunView, TreeNode};
use aod_api::{IDEMPOTENCY_KEY_HEADER, RUN_ID_HEADER, SEQUENCE_HEADER};
use aod_domain::contract::{PROBLEMS_MAX, pointer_part};
use aod_domain::digest::Hasher;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::Directory;
use aod_domain::flow::PRIORITY_MAX;
use aod_domain::handoff::Lineage;
use aod_domain::id::RunId;
use aod_domain::placement::{DEVICES_MAX, Requirements};
use aod_domain::run::{FileEntry, Limits, Retries, Run, TOTAL_SECONDS_DEFAULT};
use aod_domain::spending::{Budget, Cost};
use aod_domain::subject::Label;
use aod_domain::trace::TraceParent;
use aod_ports::program::inherit;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use jiff::SignedDuration;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::context::{Context, Shared};
use crate::files::Files;
use crate::http::access::Principal;
use crate::http::body::{self, Media, media, unsupported};
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;
use crate::http::parameters::Parameters;
use crate::http::prefer;
use crate::launch::{self, Origin, Started, Wanted};
use crate::read_model::Filter;
use crate::reading;
use crate::routes::upload;
use crate::stopping::{self, WaitingCaller};

/// Longest running time that can be asked for, in seconds: a day, as a run lives by default.
pub(super) const TIMEOUT_SECONDS_MAX: u32 = 24 * 60 * 60;

/// Longest time until the end that can be asked for, in seconds: thirty days.
pub(super) const DEADLINE_SECONDS_MAX: u32 = 30 * 24 * 60 * 60;

/// Labels of one run, and the longest of their names and values, in bytes: events are small.
const LABELS_MAX: usize = 32;
const LABEL_BYTES_MAX: usize = 256;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// What a root is asked for with.
#[derive(Debug)]
pub(crate) struct RootRequest {
    pub(crate) wanted: Wanted,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) deadline_seconds: u64,
    /// Who goes first of those that wait for admission.
    pub(crate) priority: i8,
    pub(crate) idempotency_key: Option<String>,
    pub(super) principal: Principal,
    /// The trace that whoever asks tells its own work as.
    pub(super) trace: Option<TraceParent>,
    pub(crate) on_disconnect: OnDisconnect,
    /// Where the arguments stand in the body.
    pub(super) arguments_pointer: &'static str,
}

/// Asks for a run.
///
/// Answers 202 as soon as the request is stored, or with `Prefer: wait=N` 200 if the run ends
/// within that time.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs",
    request_body(content = CreateRun, description = "As JSON, or as multipart/form-data with a part `request` of this JSON and a part for each file, named as the arguments refer to it"),
    params(
        ("Prefer" = Option<String>, Header, description = "`wait=N` in seconds, or `respond-async`"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and request is the same run"),
    ),
    responses(
        (status = 200, body = RunView, description = "Ended while it was waited for"),
        (status = 202, body = RunView, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
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
    let (started, caller) = match (wait, request.on_disconnect) {
        (Some(_), OnDisconnect::Cancel) => launch_for_caller(&context, request).await?,
        _ => (launch_root(&context, request).await?, None),
    };
    answer(&context, started, wait, caller).await
}

/// The run as it is, or as it ended within `wait`.
pub(super) async fn answer(
    context: &Context,
    started: Started,
    wait: Option<Duration>,
    caller: Option<WaitingCaller>,
) -> ApiResult<Response> {
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

/// Launches a root that ends with its caller, also if that goes away while the launch is being stored.
async fn launch_for_caller(
    context: &Shared,
    request: RootRequest,
) -> ApiResult<(Started, Option<WaitingCaller>)> {
    let (sender, launched) = oneshot::channel();
    let shared = Arc::clone(context);
    context.tasks.spawn(inherit(async move {
        let caller = request.principal.name.clone();
        let launched = launch_root(&shared, request).await.map(|started| {
            let caller = WaitingCaller::new(&shared, started.run.id, caller);
            (started, Some(caller))
        });
        // If nobody takes it, the caller is gone, and is dropped here.
        drop(sender.send(launched));
    }));
    let ending = |_| ApiError::new(ErrorCode::BrokerUnavailable, "the gateway is ending");
    launched.await.map_err(ending)?
}

/// Where the run is, and at which sequence its launch.
pub(super) fn put_headers(response: &mut Response, run: &Run) {
    let text =
        |text: String| HeaderValue::from_str(&text).expect("ids and numbers are plain words");
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, text(format!("/v1/runs/{}", run.id)));
    headers.insert(RUN_ID_HEADER, text(run.id.to_string()));
    headers.insert(SEQUENCE_HEADER, text(run.last.sequence.to_string()));
}

/// Reads the body strictly; `files` came along with it.
pub(crate) async fn read_request(
    known: Files<'_>,
    headers: &HeaderMap,
    bytes: &[u8],
    mut files: Vec<FileEntry>,
    principal: Principal,
) -> ApiResult<RootRequest> {
    let mut fields = Fields::parse(bytes)?;
    let target = fields.required_text("capsule");
    let arguments = fields.object("arguments").unwrap_or_default();
    files.extend(files_of(known, &mut fields).await?);
    let labels = fields.texts("labels");
    let fits = |text: &String| text.len() <= LABEL_BYTES_MAX;
    if labels.len() > LABELS_MAX || !labels.iter().all(|(name, value)| fits(name) && fits(value)) {
        let message =
            format!("expected at most {LABELS_MAX} labels of at most {LABEL_BYTES_MAX} bytes each");
        fields.error("/labels", message);
    }
    let label = read_label(&mut fields);
    let requirements = read_requirements(&mut fields);
    let timeout_seconds = fields.number("timeout_seconds", 1, TIMEOUT_SECONDS_MAX);
    let retries = read_retries(&mut fields);
    let limits = read_limits(&mut fields);
    let deadline_seconds = fields.number("deadline_seconds", 1, DEADLINE_SECONDS_MAX);
    let priority = read_priority(&mut fields);
    let on_disconnect = read_on_disconnect(&mut fields);
    let budget = read_budget(&mut fields);
    fields.finish()?;
    Ok(RootRequest {
        wanted: Wanted {
            target,
            arguments,
            files,
            label,
            requirements,
            timeout_seconds,
            retries,
            limits,
            budget,
        },
        labels,
        deadline_seconds: deadline_seconds.map_or(TOTAL_SECONDS_DEFAULT, u64::from),
        priority,
        idempotency_key: idempotency_key(headers)?,
        principal,
        trace: trace_parent(headers),
        on_disconnect,
        arguments_pointer: "/arguments",
    })
}

/// Files that were uploaded before.
pub(super) async fn files_of(known: Files<'_>, fields: &mut Fields) -> ApiResult<Vec<FileEntry>> {
    let mut files = Vec::new();
    for (index, given) in fields.list("files").iter().enumerate() {
        let text = |key: &str| given.get(key).and_then(Value::as_str).unwrap_or_default();
        let pointer = format!("/files/{index}");
        match upload::uploaded(known, text("name"), text("file"), &pointer).await? {
            Ok(file) => files.push(file),
            Err(error) => fields.error(error.pointer, error.message),
        }
    }
    Ok(files)
}

fn read_priority(fields: &mut Fields) -> i8 {
    let Some(given) = fields.take("priority") else {
        return 0;
    };
    let number = given.as_i64().and_then(|number| i8::try_from(number).ok());
    let is_allowed = |number: &i8| (-PRIORITY_MAX..=PRIORITY_MAX).contains(number);
    number.filter(is_allowed).unwrap_or_else(|| {
        let message = format!(
            "{given} given; expected a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
        );
        fields.error("/priority", message);
        0
    })
}

fn read_budget(fields: &mut Fields) -> Budget {
    let mut given = fields.object("budget").unwrap_or_default();
    let tokens = given.remove("tokens").filter(|value| !value.is_null());
    let cost = given.remove("cost_usd").filter(|value| !value.is_null());
    let budget = Budget {
        tokens_max: tokens.as_ref().and_then(Value::as_u64),
        cost_max: cost
            .as_ref()
            .and_then(Value::as_f64)
            .and_then(Cost::from_dollars),
    };
    if tokens.is_some() && budget.tokens_max.is_none() {
        fields.error("/budget/tokens", "expected a whole number");
    }
    if cost.is_some() && budget.cost_max.is_none() {
        fields.error("/budget/cost_usd", "expected dollars from 0 to 1000000");
    }
    for key in given.keys().take(PROBLEMS_MAX) {
        let pointer = format!("/budget/{}", pointer_part(key));
        fields.error(pointer, "no such field; there are tokens, cost_usd");
    }
    budget
}

fn read_label(fields: &mut Fields) -> Option<Label> {
    match fields.text("label")?.parse() {
        Ok(label) => Some(label),
        Err(error) => {
            fields.error("/label", error.to_string());
            None
        }
    }
}

fn read_requirements(fields: &mut Fields) -> Requirements {
    let mut requirements = Requirements::default();
    for (index, given) in fields.list("require").iter().enumerate() {
        let text = given.as_str().unwrap_or_default();
        match text.parse() {
            Ok(requirement) => drop(requirements.attributes.insert(requirement)),
            Err(error) => fields.error(format!("/require/{index}"), error.to_string()),
        }
    }
    for (name, count) in fields.object("devices").unwrap_or_default() {
        let pointer = format!("/devices/{}", pointer_part(&name));
        let number = count.as_u64().and_then(|count| u16::try_from(count).ok());
        match (name.parse(), number) {
            (Err(error), _) => fields.error(pointer, format!("{error}")),
            (Ok(name), Some(count)) if (1..=DEVICES_MAX).contains(&count) => {
                requirements.devices.insert(name, count);
            }
            (Ok(_), _) => {
                let message =
                    format!("{count} given; expected a whole number from 1 to {DEVICES_MAX}");
                fields.error(pointer, message);
            }
        }
    }
    requirements
}

fn read_on_disconnect(fields: &mut Fields) -> OnDisconnect {
    match fields.text("on_disconnect").as_deref() {
        None | Some("detach") => OnDisconnect::Detach,
        Some("cancel") => OnDisconnect::Cancel,
        Some(other) => {
            let shown: String = other.chars().take(80).collect();
            let message = format!("{shown:?} given; expected detach or cancel");
            fields.error("/on_disconnect", message);
            OnDisconnect::Detach
        }
    }
}

fn read_retries(fields: &mut Fields) -> Retries {
    let given = fields.object("retries").unwrap_or_default();
    Retries::read(&given).unwrap_or_else(|errors| {
        for (pointer, message) in errors {
            fields.error(format!("/retries{pointer}"), message);
        }
        Retries::default()
    })
}

fn read_limits(fields: &mut Fields) -> Limits {
    let given = fields.object("limits").unwrap_or_default();
    Limits::read(&given).unwrap_or_else(|errors| {
        for (pointer, message) in errors {
            fields.error(format!("/limits{pointer}"), message);
        }
        Limits::default()
    })
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY_HEADER) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let detail = format!(
                "the header `Idempotency-Key` must have 1 to {KEY_BYTES_MAX} characters of ASCII"
            );
            Err(ApiError::malformed(detail))
        }
    }
}

/// Checks and stores the launch of a root.
pub(super) async fn launch_root(context: &Context, request: RootRequest) -> ApiResult<Started> {
    let tenant = request.principal.tenant();
    let registration = context
        .capsules
        .get(&tenant, &request.wanted.target)
        .await?;
    let pointer = request.arguments_pointer;
    let checked = launch::check(
        context,
        registration,
        &request.wanted,
        Directory::Input,
        pointer,
    )
    .await?;
    let id = match &request.idempotency_key {
        Some(key) => root_of_key(&request.principal, key),
        None => context.ports.clock.fresh_root(),
    };
    let seconds =
        i64::try_from(request.deadline_seconds).unwrap_or(i64::from(DEADLINE_SECONDS_MAX));
    let origin = Origin {
        tenant,
        parent: None,
        rerun: None,
        reuses: None,
        lineage: Lineage {
            signatures: vec![checked.signature],
        },
        budget: request.wanted.budget,
        deadline: context.ports.clock.now() + SignedDuration::from_secs(seconds),
        requested_by: request.principal.name,
        trace: request.trace,
        labels: request.labels,
        priority: request.priority,
        shared: Vec::new(),
        near: None,
    };
    launch::launch(context, id, &checked, origin).await
}

/// A place that cannot be read is as none. Source: W3C Trace Context, 2.2.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

/// A key belongs to whoever gave it, and to the tenant that they gave it for: two people may choose the same.
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

/// Lists runs, the latest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs",
    params(
        ("state" = Option<Vec<String>>, Query, description = "One or several states"),
        ("capsule" = Option<String>, Query, description = "Name of a capsule"),
        ("label" = Option<Vec<String>>, Query, description = "`name=value`, all of which must be there"),
        ("text" = Option<String>, Query, description = "Words that occur in arguments or errors"),
        ("roots" = Option<bool>, Query, description = "Only runs that nobody called"),
        ("tenant" = Option<String>, Query, description = "Only runs of this tenant"),
        ("limit" = Option<u32>, Query, description = "1 to 500, 50 unless given"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("at_least" = Option<u64>, Query, description = "Waits until the list contains this sequence"),
    ),
    responses(
        (status = 200, body = RunPage),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
) -> ApiResult<Json<RunPage>> {
    let mut parameters = Parameters::of(&uri)?;
    let filter = Filter::read(&mut parameters, &principal);
    let page = parameters.page();
    parameters.finish()?;
    let lists = &context.read_model;
    lists.wait_for(page.at_least).await?;
    Ok(Json(lists.page(filter, page.cursor, page.limit).await?))
}

/// Shows one run, as the log has it.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = RunView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn show(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> ApiResult<Json<RunView>> {
    Ok(Json(reading::view(&context, run_id(&run)?).await?))
}

/// Shows a run with everything that it called, directly or not.
#[utoipa::path(
    get, path = "/v1/runs/{run}/tree", tag = "runs",
    params(("run" = String, Path)),
    responses(
        (status = 200, body = TreeNode),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn tree(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> ApiResult<Json<TreeNode>> {
    Ok(Json(reading::tree(&context, run_id(&run)?).await?))
}

/// Asks for a run to be ended, with everything that it called.
///
/// Queued runs end at once; others when their node has ended them.
#[utoipa::path(
    post, path = "/v1/runs/{run}/cancel", tag = "runs",
    params(("run" = String, Path)),
    request_body(content = CancelRun, description = "May be left out"),
    responses(
        (status = 202, body = RunView),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn cancel(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let id = run_id(&run)?;
    let reason = cancel_reason(request).await?;
    let run = stopping::cancel(&context, id, &principal.name, &reason).await?;
    let view = reading::view_of(&context, run.clone()).await?;
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    put_headers(&mut response, &run);
    Ok(response)
}

async fn cancel_reason(request: Request) -> ApiResult<String> {
    let bytes = body::whole(request.into_body().into_data_stream(), body::JSON_BYTES_MAX).await?;
    if bytes.is_empty() {
        return Ok(String::new());
    }
    let mut fields = Fields::parse(&bytes)?;
    let reason = fields.text("reason").unwrap_or_default();
    fields.finish()?;
    Ok(reason.chars().take(1_000).collect())
}

/// The id in a path; what is none cannot be known.
pub(super) fn run_id(text: &str) -> ApiResult<RunId> {
    text.parse()
        .map_err(|error| ApiError::new(ErrorCode::UnknownRun, format!("{error}")))
}

/// `?wait=` in seconds, bounded.
pub(super) fn wait_parameter(parameters: &mut Parameters, wait_max: Duration) -> Option<Duration> {
    let seconds: u64 = parameters.value("wait", "a number of seconds")?;
    Some(Duration::from_secs(seconds).min(wait_max))
}
