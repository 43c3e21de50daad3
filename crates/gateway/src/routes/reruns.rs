//! `/v1/runs/{run}/rerun`: repeats a recorded request.

use std::sync::Arc;

use aod_api::problem::Problem;
use aod_api::runs::{Rerun, RerunRun, RunView};
use aod_api::strict::{Fields, JSON_BYTES_MAX};
use aod_domain::artifacts::named_by_launch;
use aod_domain::digest::{Digest, Hasher};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::Directory;
use aod_domain::handoff::Lineage;
use aod_domain::id::RunId;
use aod_domain::launch::{Checked, Origin, Wanted};
use aod_domain::placement::Requirements;
use aod_domain::rerun::{self, registration};
use aod_domain::run::{FileEntry, Launched, Recompute, Run};
use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use serde_json::{Map, Value};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::files::deleted_artifacts;
use crate::http::access::Principal;
use crate::http::prefer;
use crate::reading;
use crate::routes::runs::{answer, files_of, idempotency_key, root_of_key, run_id, trace_parent};
use crate::runs::launch;
use crate::runs::rerun::{repeatable, way};
use crate::streams;

/// Repeats a run as a new tree, with its recorded image, arguments and files.
///
/// The rerun reuses the recorded results of identical successful calls, except for runs that `from` or `fresh`
/// recomputes. It starts all other calls. A callee is repeated as a root. The answer is that of `POST /v1/runs`.
#[utoipa::path(
    post, path = "/v1/runs/{run}/rerun", tag = "runs", operation_id = "rerun_run",
    params(
        ("run" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`wait=N` in seconds, or `respond-async`"),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key joins the same run"),
    ),
    request_body(content = RerunRun, description = "Optional"),
    responses(
        (status = 200, body = RunView, description = "The run has ended within the waiting time"),
        (status = 202, body = RunView, description = "The request is stored; the run has not ended"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> Result<Response> {
    let id = run_id(&run)?;
    context.admit_root().await?;
    let headers = request.headers().clone();
    let wait = prefer::wait(&headers, context.wait_max());
    let key = idempotency_key(&headers)?;
    let (change, files) = read(Files::Of(&context, &principal), request).await?;
    let of = repeatable(&context, id).await?;
    let recompute = match change.from {
        Some(from) => way(&context, id, from).await?,
        None if change.is_fresh => Recompute::All,
        None => Recompute::Nothing,
    };
    let checked = check(&context, &of, change.arguments, files).await?;
    let checked = checked.with_part(&rerun_digest(id, &recompute));
    let id = match &key {
        Some(key) => root_of_key(&principal, key),
        None => context.ports.clock.fresh_root(),
    };
    let origin = Origin {
        rerun: Some(rerun::begin(&of, recompute)),
        trace: trace_parent(&headers),
        ..origin(&context, &of, &checked, principal.name)
    };
    let started = launch::launch(&context, id, &checked, origin).await?;
    answer(&context, started, wait, None).await
}

/// Reads the optional body strictly, with its files.
async fn read(known: Files<'_>, request: Request) -> Result<(Rerun, Vec<FileEntry>)> {
    let bytes = streams::whole(request.into_body().into_data_stream(), JSON_BYTES_MAX).await?;
    let mut fields = Fields::parse_optional(&bytes)?;
    let files = files_of(known, &mut fields).await?;
    Ok((RerunRun::read(fields)?, files))
}

/// The recorded request with its changes, checked like a new request.
async fn check(
    context: &Context,
    of: &Run,
    changed: Map<String, Value>,
    given: Vec<FileEntry>,
) -> Result<Checked> {
    let Launched {
        payload,
        files,
        placement,
        resources,
        retries,
        limits,
        budget,
        ..
    } = of.launched.event.clone();
    let registration = registration(&of.launched).expect("builds cannot be rerun");
    let is_replaced = |file: &FileEntry| given.iter().any(|given| given.name == file.name);
    let kept: Vec<FileEntry> = files
        .into_iter()
        .filter(|file| !is_replaced(file))
        .collect();
    let needed = Launched {
        files: kept.clone(),
        ..of.launched.event.clone()
    };
    let what = format!("the record of {}", of.id);
    deleted_artifacts::renew(context, &what, named_by_launch(&needed)).await?;
    let Value::Object(mut arguments) = reading::payload(context, &payload).await? else {
        let text = format!("the stored arguments of {} are not an object", of.id);
        return Err(Error::new(ErrorCode::Internal, text));
    };
    for (name, value) in changed {
        match value {
            Value::Null => drop(arguments.remove(&name)),
            value => drop(arguments.insert(name, value)),
        }
    }
    let wanted = Wanted {
        target: registration.event.name.to_string(),
        arguments,
        files: [kept, given].concat(),
        pool: Some(placement.pool),
        requirements: Requirements {
            // Computed for the nodes that are live now.
            size: None,
            ..placement.requirements
        },
        timeout_seconds: Some(resources.timeout_seconds),
        retries,
        limits,
        budget,
    };
    let directory = Directory::Input;
    launch::check(
        context,
        Arc::new(registration),
        &wanted,
        directory,
        "/arguments",
    )
    .await
}

/// The origin of a root with as much time as `of` had.
fn origin(context: &Context, of: &Run, checked: &Checked, requested_by: String) -> Origin {
    Origin {
        tenant: of.launched.event.tenant.clone(),
        parent: None,
        rerun: None,
        reuses: None,
        lineage: Lineage {
            signatures: vec![checked.signature()],
        },
        budget: of.launched.event.budget,
        deadline: context.ports.clock.now() + of.total_as_root(),
        requested_by,
        trace: None,
        labels: of.launched.event.labels.clone(),
        priority: priority(of),
        shared: Vec::new(),
        near: None,
    }
}

fn priority(of: &Run) -> i8 {
    let admission = of.launched.event.admission.as_deref();
    admission.map_or(0, |admission| admission.priority)
}

/// Digest of the rerun and its recomputed runs: identical requests for a rerun have the same one.
fn rerun_digest(of: RunId, recompute: &Recompute) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(of.token().as_bytes());
    hasher.field(&serde_json::to_vec(recompute).expect("ids are plain data"));
    hasher.finish()
}
