//! The gateway's parsers of foreign bytes, public only for the fuzz targets.

use std::io::Cursor;

use aod_api::compatibility::{Execute, Handoff};
use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_api::problem::{Problem, ProblemItem};
use aod_api::runs::{CreateRun, GivenFile, OnDisconnect, RequirementsView, RetriesView};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::ArtifactStore;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::capsules::registration::package::Package;
use crate::error::Error;
use crate::files::Files;
use crate::routes::{compatibility, runs, upload};
use aod_domain::access::Principal;

/// Reads the body of `POST /v1/runs` and writes the parsed request as a body again.
pub async fn create_run(
    artifacts: &dyn ArtifactStore,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<CreateRun, Box<Problem>> {
    let principal = Principal::cluster_admin("fuzzing");
    let request = runs::read_request(Files::All(artifacts), headers, body, Vec::new(), principal)
        .await
        .map_err(|error| problem(&error))?;
    let run = request.run;
    let wanted = run.wanted;
    let requires = RequirementsView::from(&wanted.requirements);
    let given = |file: FileEntry| GivenFile {
        name: file.name.to_string(),
        file: format!("{FILE_REFERENCE_PREFIX}{}", file.digest),
    };
    Ok(CreateRun {
        capsule: wanted.target,
        arguments: wanted.arguments,
        files: wanted.files.into_iter().map(given).collect(),
        labels: run.terms.labels,
        pool: wanted.pool.map(|pool| pool.to_string()),
        require: requires.attributes,
        devices: requires.devices,
        timeout_seconds: wanted.timeout_seconds,
        retries: RetriesView {
            capsule: wanted.retries.capsule,
            time: wanted.retries.time,
        },
        limits: wanted.limits.into(),
        budget: wanted.budget.into(),
        deadline_seconds: Some(run.terms.deadline_seconds),
        priority: Some(run.terms.priority),
        on_disconnect: if run.terms.is_cancelled_on_disconnect {
            OnDisconnect::Cancel
        } else {
            OnDisconnect::Detach
        },
    })
}

/// A multipart body: its part `request`, and its files.
pub async fn multipart(
    artifacts: &dyn ArtifactStore,
    upload_bytes_max: u64,
    request: Request<Body>,
) -> Result<(Bytes, Vec<FileEntry>), Box<Problem>> {
    let received = upload::multipart(artifacts, upload_bytes_max, request).await;
    received
        .map(|received| (received.request, received.files))
        .map_err(|error| problem(&error))
}

/// The body of agent-on-demand's `POST /execute`.
pub fn execute(body: &[u8]) -> Result<Execute, Box<Problem>> {
    compatibility::read(body, Execute::read).map_err(|error| problem(&error))
}

/// The body of agent-on-demand's `POST /handoff`: target and arguments.
pub fn handoff(body: &[u8]) -> Result<(String, Map<String, Value>), Box<Problem>> {
    let read = compatibility::read(body, Handoff::read).map_err(|error| problem(&error))?;
    Ok((read.target, read.args))
}

/// The `schema.json` of a packed capsule directory.
pub fn package(archive: &[u8]) -> Result<Bytes, Vec<ProblemItem>> {
    Package::read_archive(Cursor::new(archive)).map(|package| package.schema_json)
}

fn problem(error: &Error) -> Box<Problem> {
    Box::new(error.problem().clone())
}
