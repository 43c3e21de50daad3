//! The agent-on-demand compatibility routes, for unchanged agent-on-demand clients.
//!
//! The status is 200 with `success`, and `error` is a text; a malformed body gets 422, and a failure of the gateway its
//! own status.

use aod_api::compatibility::{Answer, CapsulePlace, Capsules, Execute, Handoff};
use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_api::problem::{Problem, ProblemItem};
use aod_api::runs::{ErrorView, NewRun, RunResult};
use aod_api::strict::{self, Fields};
use aod_domain::contract;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::file_name::Directory;
use aod_domain::run::error_text;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::http::access::Principal;
use crate::http::body;
use crate::reading;
use crate::routes::runs::{RootRequest, launch_root};
use crate::routes::upload;

/// Runs a capsule and waits for its result.
#[utoipa::path(
    post, path = "/execute", tag = "compatibility", operation_id = "compatibility_execute",
    request_body = Execute,
    responses((status = 200, body = Answer, description = "The result, or an error with `success: false`"), (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM)),
)]
pub(super) async fn execute(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Json<Answer>> {
    let Execute {
        capsule: target,
        input: arguments,
        files: named,
    } = read(&whole(request).await?, Execute::read)?;
    let known = Files::Of(&context, &principal);
    let mut files = Vec::new();
    for (name, reference) in named.unwrap_or_default() {
        match upload::uploaded(known, &name, &reference, &format!("/files/{name}")).await? {
            Ok(file) => files.push(file),
            Err(error) => {
                let rejection = Error::new(ErrorCode::FileRefused, error.message.clone())
                    .with_errors(vec![error]);
                return Ok(Json(refused(&rejection)));
            }
        }
    }
    let new = NewRun::of(target, arguments, files);
    run(&context, new, principal, "/input").await
}

/// Runs a capsule as a root and waits for its result.
#[utoipa::path(
    post, path = "/handoff", tag = "compatibility", operation_id = "compatibility_handoff",
    request_body = Handoff,
    responses((status = 200, body = Answer, description = "The result, or an error with `success: false`"), (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM)),
)]
pub(super) async fn handoff(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Json<Answer>> {
    let Handoff { target, args, .. } = read(&whole(request).await?, Handoff::read)?;
    let new = NewRun::of(target, args, Vec::new());
    run(&context, new, principal, "/args").await
}

async fn whole(request: Request) -> Result<Bytes> {
    let headers = request.headers().clone();
    body::json(&headers, request.into_body()).await
}

/// Reads a body. A malformed one gets 422, as clients of agent-on-demand expect.
pub(crate) fn read<T>(bytes: &[u8], read: impl FnOnce(Fields) -> strict::Result<T>) -> Result<T> {
    let read = Fields::parse(bytes).and_then(read).map_err(Error::from);
    read.map_err(|error| error.with_status(StatusCode::UNPROCESSABLE_ENTITY))
}

async fn run(
    context: &Context,
    run: NewRun,
    principal: Principal,
    arguments_pointer: &'static str,
) -> Result<Json<Answer>> {
    let outside = contract::host_paths(&run.wanted.arguments, Directory::Input);
    if !outside.is_empty() {
        let within = |problem| ProblemItem::within(arguments_pointer, problem);
        let rejection = Error::new(
            ErrorCode::FileRefused,
            "the arguments name a path of a host",
        );
        let rejection = rejection.with_errors(outside.iter().map(within).collect());
        return Ok(Json(refused(&rejection)));
    }
    context.admit_root().await?;
    let request = RootRequest {
        run,
        idempotency_key: None,
        principal,
        trace: None,
        arguments_pointer,
    };
    let started = match launch_root(context, request).await {
        Ok(started) => started,
        Err(error) if error.problem().status < 500 => return Ok(Json(refused(&error))),
        Err(error) => return Err(error),
    };
    let run = started.run.clone();
    let end = started.end(context.runs.log().as_ref(), None).await;
    let end = end.ok_or_else(|| {
        Error::new(
            ErrorCode::BrokerUnavailable,
            "the gateway is stopping: retry the request",
        )
    })?;
    Ok(Json(answer(
        reading::result(context, &run, &end.ended).await?,
    )))
}

fn answer(result: RunResult) -> Answer {
    let error = result.error.as_ref();
    Answer {
        success: result.success,
        output: result.output.filter(|_| result.success),
        files: result
            .files
            .iter()
            .map(|file| file.name.to_string())
            .collect(),
        error: error.map(|error| error_text(&error.message, error.detail.as_ref())),
        session_id: Some(result.id.to_string()),
        error_detail: result.error,
    }
}

/// An error in the format of agent-on-demand.
fn refused(error: &Error) -> Answer {
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

/// Lists registered capsules.
#[utoipa::path(
    get, path = "/capsules", tag = "compatibility", operation_id = "compatibility_list_capsules",
    responses((status = 200, body = Capsules, description = "All capsules of the tenant"), (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM)),
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

/// Shows the schema of a capsule.
#[utoipa::path(
    get, path = "/capsules/{name}/schema", tag = "compatibility", operation_id = "compatibility_get_schema",
    params(("name" = String, Path)),
    responses(
        (status = 200, body = Object, description = "The schema: `{\"input\": …, \"output\": …}`"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn schema(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
) -> Result<Json<Value>> {
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
