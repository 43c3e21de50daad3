//! `/v1/runs/{run}/rerun`: what is recorded, asked for again.

use std::sync::Arc;

use aod_api::problem::Problem;
use aod_api::runs::{RerunRun, RunView};
use aod_domain::artifacts::named_by;
use aod_domain::digest::{Digest, Hasher};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::Directory;
use aod_domain::handoff::Lineage;
use aod_domain::id::RunId;
use aod_domain::placement::Requirements;
use aod_domain::rerun::{self, registration};
use aod_domain::run::{Anew, Event, FileEntry, Launched, Run};
use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use serde_json::{Map, Value};

use crate::context::{Context, Shared};
use crate::files::Files;
use crate::gone;
use crate::http::access::Principal;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;
use crate::http::prefer;
use crate::launch::{self, Checked, Origin, Wanted};
use crate::reading;
use crate::rerun::{repeatable, way};
use crate::routes::runs::{answer, files_of, idempotency_key, root_of_key, run_id, trace_parent};

/// What is to differ from what is recorded.
struct Change {
    arguments: Map<String, Value>,
    files: Vec<FileEntry>,
    from: Option<RunId>,
    is_fresh: bool,
}

/// Asks for a run again, as another tree: with its recorded image, arguments and files.
///
/// Recorded results of calls that are the same are taken over, unless `from` or `fresh` say otherwise;
/// what did not succeed, or is called with something else, is started. A run that somebody called is
/// repeated as a root. Answers as `POST /v1/runs` does.
#[utoipa::path(
    post, path = "/v1/runs/{run}/rerun", tag = "runs",
    params(
        ("run" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`wait=N` in seconds, or `respond-async`"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and request is the same run"),
    ),
    request_body(content = RerunRun, description = "May be left out"),
    responses(
        (status = 200, body = RunView, description = "Ended while it was waited for"),
        (status = 202, body = RunView, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let id = run_id(&run)?;
    context.admit_root().await?;
    let headers = request.headers().clone();
    let wait = prefer::wait(&headers, context.wait_max());
    let key = idempotency_key(&headers)?;
    let change = read(Files::Of(&context, &principal), request).await?;
    let of = repeatable(&context, id).await?;
    let anew = match change.from {
        Some(from) => way(&context, id, from).await?,
        None if change.is_fresh => Anew::All,
        None => Anew::Nothing,
    };
    let checked = check(&context, &of, change).await?;
    let checked = checked.for_rerun(&rerun_digest(id, &anew));
    let id = match &key {
        Some(key) => root_of_key(&principal, key),
        None => context.ports.clock.fresh_root(),
    };
    let origin = Origin {
        rerun: Some(rerun::begin(&of, anew)),
        trace: trace_parent(&headers),
        ..origin(&context, &of, &checked, principal.name)
    };
    let started = launch::launch(&context, id, &checked, origin).await?;
    answer(&context, started, wait, None).await
}

/// Reads the body strictly; none is as an empty one.
async fn read(known: Files<'_>, request: Request) -> ApiResult<Change> {
    let bytes = body::whole(request.into_body().into_data_stream(), body::JSON_BYTES_MAX).await?;
    let bytes = if bytes.is_empty() {
        b"{}".as_slice()
    } else {
        &bytes
    };
    let mut fields = Fields::parse(bytes)?;
    let arguments = fields.object("arguments").unwrap_or_default();
    let files = files_of(known, &mut fields).await?;
    let is_fresh = match fields.take("fresh") {
        None => false,
        Some(Value::Bool(is_fresh)) => is_fresh,
        Some(other) => {
            fields.error("/fresh", format!("{other} given; expected true or false"));
            false
        }
    };
    let from = fields
        .text("from")
        .and_then(|text| match text.parse::<RunId>() {
            Ok(from) => Some(from),
            Err(error) => {
                fields.error("/from", error.to_string());
                None
            }
        });
    if from.is_some() && is_fresh {
        fields.error("/from", "everything is started anew by `fresh` already");
    }
    fields.finish()?;
    Ok(Change {
        arguments,
        files,
        from,
        is_fresh,
    })
}

/// The recorded request with its changes, checked as one that is asked for the first time.
async fn check(context: &Context, of: &Run, change: Change) -> ApiResult<Checked> {
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
    let registration = registration(&of.launched).expect("builds are not repeated");
    let is_replaced = |file: &FileEntry| change.files.iter().any(|given| given.name == file.name);
    let kept: Vec<FileEntry> = files
        .into_iter()
        .filter(|file| !is_replaced(file))
        .collect();
    let needed = Event::Launched(Box::new(Launched {
        files: kept.clone(),
        ..of.launched.event.clone()
    }));
    let what = format!("what is recorded of {}", of.id);
    gone::renew(context, &what, named_by(&needed)).await?;
    let Value::Object(mut arguments) = reading::payload(context, &payload).await? else {
        let text = format!("the arguments of {} are no object", of.id);
        return Err(ApiError::new(ErrorCode::Internal, text));
    };
    for (name, value) in change.arguments {
        match value {
            Value::Null => drop(arguments.remove(&name)),
            value => drop(arguments.insert(name, value)),
        }
    }
    let wanted = Wanted {
        target: registration.event.name.to_string(),
        arguments,
        files: [kept, change.files].concat(),
        label: Some(placement.label),
        requirements: Requirements {
            // Which nodes there are now decides anew.
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

/// As a root with as much time as it had.
fn origin(context: &Context, of: &Run, checked: &Checked, requested_by: String) -> Origin {
    Origin {
        tenant: of.launched.event.tenant.clone(),
        parent: None,
        rerun: None,
        reuses: None,
        lineage: Lineage {
            signatures: vec![checked.signature],
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

/// What makes two requests for a rerun the same, beside what is asked for.
fn rerun_digest(of: RunId, anew: &Anew) -> Digest {
    let mut hasher = Hasher::new();
    hasher.field(of.token().as_bytes());
    hasher.field(&serde_json::to_vec(anew).expect("ids are plain data"));
    hasher.finish()
}
