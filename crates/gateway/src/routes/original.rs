//! The routes of the original implementation, so that its clients work unchanged.
//!
//! They get 200 with `success`, `error` a text; only a malformed body is 422, and what is wrong
//! with us is a status of its own.

use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_api::original::{
    Answer, CapsulePlace, Capsules, Execute, Handoff, VisualizerEdge, VisualizerNode,
    VisualizerState,
};
use aod_api::problem::Problem;
use aod_api::runs::{ErrorView, OnDisconnect, RunResult, RunState, RunSummary};
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::placement::Requirements;
use aod_domain::run::{Limits, Retries, TOTAL_SECONDS_DEFAULT};
use aod_domain::spending::Budget;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

use crate::context::{Context, Shared};
use crate::files::Files;
use crate::http::access::Principal;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;
use crate::launch::Wanted;
use crate::reading;
use crate::routes::runs::{RootRequest, launch_root};
use crate::routes::upload;

/// Runs that the view of the visualizer shows.
const VISUALIZED_RUNS_MAX: usize = 500;

/// Runs a capsule and waits for its result.
#[utoipa::path(
    post, path = "/execute", tag = "original",
    request_body = Execute,
    responses((status = 200, body = Answer), (status = "default", body = Problem, content_type = "application/problem+json")),
)]
pub(super) async fn execute(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Json<Answer>> {
    let Execute {
        capsule: target,
        input: arguments,
        files: named,
    } = read_execute(&whole(request).await?)?;
    let known = Files::Of(&context, &principal);
    let mut files = Vec::new();
    for (name, reference) in named.unwrap_or_default() {
        match upload::uploaded(known, &name, &reference, &format!("/files/{name}")).await? {
            Ok(file) => files.push(file),
            Err(error) => {
                let refusal = ApiError::new(ErrorCode::FileRefused, error.message.clone())
                    .with_errors(vec![error]);
                return Ok(Json(refused(&refusal)));
            }
        }
    }
    let wanted = Wanted {
        target,
        arguments,
        files,
        label: None,
        requirements: Requirements::default(),
        timeout_seconds: None,
        retries: Retries::default(),
        limits: Limits::default(),
        budget: Budget::default(),
    };
    run(&context, wanted, principal, "/input").await
}

/// Runs a capsule as a root, since whoever asks from outside is no run, and waits for its result.
#[utoipa::path(
    post, path = "/handoff", tag = "original",
    request_body = Handoff,
    responses((status = 200, body = Answer), (status = "default", body = Problem, content_type = "application/problem+json")),
)]
pub(super) async fn handoff(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Json<Answer>> {
    let (target, arguments) = read_handoff(&whole(request).await?)?;
    let wanted = Wanted {
        target,
        arguments,
        files: Vec::new(),
        label: None,
        requirements: Requirements::default(),
        timeout_seconds: None,
        retries: Retries::default(),
        limits: Limits::default(),
        budget: Budget::default(),
    };
    run(&context, wanted, principal, "/args").await
}

async fn whole(request: Request) -> ApiResult<Bytes> {
    let headers = request.headers().clone();
    body::json(&headers, request.into_body()).await
}

/// Reads the body of `POST /execute`; unknown fields are ignored.
pub(crate) fn read_execute(bytes: &[u8]) -> ApiResult<Execute> {
    let mut fields = Fields::parse(bytes).map_err(unprocessable)?;
    let execute = Execute {
        capsule: fields.required_text("capsule"),
        input: fields.object("input").unwrap_or_default(),
        files: Some(fields.texts("files")),
    };
    fields.finish_known().map_err(unprocessable)?;
    Ok(execute)
}

/// Reads the body of `POST /handoff`: who is called, and with what; unknown fields are ignored.
pub(crate) fn read_handoff(bytes: &[u8]) -> ApiResult<(String, Map<String, Value>)> {
    let mut fields = Fields::parse(bytes).map_err(unprocessable)?;
    let target = fields.required_text("target");
    let arguments = fields.object("args").unwrap_or_default();
    fields.finish_known().map_err(unprocessable)?;
    Ok((target, arguments))
}

fn unprocessable(error: ApiError) -> ApiError {
    error.with_status(StatusCode::UNPROCESSABLE_ENTITY)
}

async fn run(
    context: &Context,
    wanted: Wanted,
    principal: Principal,
    arguments_pointer: &'static str,
) -> ApiResult<Json<Answer>> {
    context.admit_root().await?;
    let request = RootRequest {
        wanted,
        labels: BTreeMap::new(),
        deadline_seconds: TOTAL_SECONDS_DEFAULT,
        priority: 0,
        idempotency_key: None,
        principal,
        trace: None,
        on_disconnect: OnDisconnect::Detach,
        arguments_pointer,
    };
    let started = match launch_root(context, request).await {
        Ok(started) => started,
        Err(error) if error.problem().status < 500 => return Ok(Json(refused(&error))),
        Err(error) => return Err(error),
    };
    let run = started.run.clone();
    let end = started.end(context.runs.log().as_ref(), None).await;
    let end =
        end.ok_or_else(|| ApiError::new(ErrorCode::BrokerUnavailable, "the gateway is ending"))?;
    Ok(Json(answer(
        reading::result(context, &run, &end.ended).await?,
    )))
}

fn answer(result: RunResult) -> Answer {
    Answer {
        success: result.success,
        output: result.output.filter(|_| result.success),
        files: result
            .files
            .iter()
            .map(|file| file.name.to_string())
            .collect(),
        error: result.error.as_ref().map(|error| error.message.clone()),
        session_id: Some(result.id.to_string()),
        error_detail: result.error,
    }
}

/// A refusal in the original's words.
fn refused(error: &ApiError) -> Answer {
    let problem = error.problem();
    let places = problem
        .errors
        .iter()
        .map(|item| format!("{} {}", item.pointer, item.message));
    let text = std::iter::once(problem.detail.clone())
        .chain(places)
        .collect::<Vec<_>>()
        .join("; ");
    let detail = ErrorView {
        code: problem.code.clone(),
        message: problem.detail.clone(),
        detail: (!problem.errors.is_empty()).then(|| json!({"errors": problem.errors})),
        retryable: false,
        source: ErrorSource::Caller,
    };
    Answer {
        success: false,
        output: None,
        files: Vec::new(),
        error: Some(text),
        session_id: None,
        error_detail: Some(detail),
    }
}

/// Lists the capsules.
#[utoipa::path(
    get, path = "/capsules", tag = "original",
    responses((status = 200, body = Capsules), (status = "default", body = Problem, content_type = "application/problem+json")),
)]
pub(super) async fn capsules(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> Json<Capsules> {
    let place = |registration: &aod_domain::capsule::Registration| CapsulePlace {
        path: format!("{FILE_REFERENCE_PREFIX}{}", registration.content),
        image: registration.image.config_digest.clone(),
    };
    let all = context.capsules.all(&principal.tenant());
    let capsules = all
        .iter()
        .map(|capsule| (capsule.event.name.to_string(), place(&capsule.event)))
        .collect();
    Json(Capsules { capsules })
}

/// The schema of a capsule.
#[utoipa::path(
    get, path = "/capsules/{name}/schema", tag = "original",
    params(("name" = String, Path)),
    responses(
        (status = 200, body = Object, description = "`{\"input\": …, \"output\": …}`"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn schema(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> ApiResult<Json<Value>> {
    let registered = context.capsules.get(&principal.tenant(), &name).await?;
    Ok(Json(
        context
            .capsules
            .schema(&registered.event)
            .await?
            .document
            .clone(),
    ))
}

/// The latest runs and who called whom.
#[utoipa::path(
    get, path = "/visualizer/state", tag = "original",
    responses((status = 200, body = VisualizerState), (status = "default", body = Problem, content_type = "application/problem+json")),
)]
pub(super) async fn visualizer(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<VisualizerState>> {
    let lists = &context.read_model;
    let runs = lists.latest(&principal, VISUALIZED_RUNS_MAX).await?;
    let names: HashMap<_, _> = runs
        .iter()
        .map(|run| (run.id, run.capsule.clone()))
        .collect();
    let edges = runs
        .iter()
        .filter_map(|run| edge(run, names.get(&run.parent?)?))
        .collect();
    let timestamp = context.ports.clock.now().to_string();
    Ok(Json(VisualizerState {
        nodes: runs.iter().map(node).collect(),
        edges,
        timestamp,
    }))
}

fn node(run: &RunSummary) -> VisualizerNode {
    let status = match run.state {
        RunState::Succeeded => "completed",
        state if state.is_ended() => "failed",
        _ => "running",
    };
    VisualizerNode {
        id: run.id.to_string(),
        capsule_name: run.capsule.clone(),
        status: status.to_owned(),
        start_time: run.requested_at.to_string(),
        container_id: None,
        parent_session_id: run.parent.map(|parent| parent.to_string()),
    }
}

fn edge(run: &RunSummary, caller_capsule: &str) -> Option<VisualizerEdge> {
    Some(VisualizerEdge {
        from: run.parent?.to_string(),
        to: run.id.to_string(),
        caller_capsule: caller_capsule.to_owned(),
        target_capsule: run.capsule.clone(),
        timestamp: run.requested_at.to_string(),
        success: run
            .state
            .is_ended()
            .then_some(run.state == RunState::Succeeded),
    })
}
