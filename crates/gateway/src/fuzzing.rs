//! Where foreign bytes enter a gateway, opened for the fuzz targets and for nobody else. Nothing is
//! decided here.

use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_api::original::Execute;
use aod_api::problem::{Problem, ProblemItem};
use aod_api::runs::{CreateRun, GivenFile, RequirementsView, RetriesView};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::ArtifactStore;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::files::Files;
use crate::http::access::Principal;
use crate::http::error::ApiError;
use crate::registration::package::Package;
use crate::routes::{original, runs, upload};

/// The body of `POST /v1/runs`, read, with what may stand in it spelt out again.
pub async fn create_run(
    artifacts: &dyn ArtifactStore,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<CreateRun, Box<Problem>> {
    let principal = Principal::cluster_admin("somebody");
    let request = runs::read_request(Files::All(artifacts), headers, body, Vec::new(), principal)
        .await
        .map_err(|error| problem(&error))?;
    let wanted = request.wanted;
    let requires = RequirementsView::from(&wanted.requirements);
    let given = |file: FileEntry| GivenFile {
        name: file.name.to_string(),
        file: format!("{FILE_REFERENCE_PREFIX}{}", file.digest),
    };
    Ok(CreateRun {
        capsule: wanted.target,
        arguments: wanted.arguments,
        files: wanted.files.into_iter().map(given).collect(),
        labels: request.labels,
        label: wanted.label.map(|label| label.to_string()),
        require: requires.attributes,
        devices: requires.devices,
        timeout_seconds: wanted.timeout_seconds,
        retries: RetriesView {
            capsule: wanted.retries.capsule,
            time: wanted.retries.time,
        },
        limits: wanted.limits.into(),
        budget: wanted.budget.into(),
        deadline_seconds: u32::try_from(request.deadline_seconds).ok(),
        priority: Some(request.priority),
        on_disconnect: request.on_disconnect,
    })
}

/// A multipart body: its part `request`, and the files that came with it.
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

/// The body of the original's `POST /execute`.
pub fn execute(body: &[u8]) -> Result<Execute, Box<Problem>> {
    original::read_execute(body).map_err(|error| problem(&error))
}

/// The body of the original's `POST /handoff`: who is called, and with what.
pub fn handoff(body: &[u8]) -> Result<(String, Map<String, Value>), Box<Problem>> {
    original::read_handoff(body).map_err(|error| problem(&error))
}

/// A capsule's packed directory: the `schema.json` in it.
pub fn package(archive: &[u8]) -> Result<Bytes, Vec<ProblemItem>> {
    Package::read_archive(archive).map(|package| package.schema_json)
}

fn problem(error: &ApiError) -> Box<Problem> {
    Box::new(error.problem().clone())
}
