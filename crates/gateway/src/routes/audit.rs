//! `/v1/runs/{run}/bundle` and `/v1/seal-key`: for the verification of a tree without this cluster.

use std::sync::Arc;

use aod_api::audit::{SealKeyView, TREE_HEADER};
use aod_api::problem::Problem;
use aod_domain::subject;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use crate::context::Shared;
use crate::error::Result;
use crate::reading;
use crate::routes::runs::run_id;

/// Exports the whole tree of a run with its files as a bundle, for `aod audit verify`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/bundle", tag = "audit", operation_id = "get_bundle",
    params(("run" = String, Path)),
    responses(
        (
            status = 200, content_type = "application/x-tar", body = Vec<u8>, description = "The bundle",
            headers(("Aod-Tree" = String, description = "Id of the root of the tree")),
        ),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn bundle(
    State(context): State<Shared>,
    Path(run): Path<String>,
) -> Result<Response> {
    let id = run_id(&run)?;
    let log = context.runs.log();
    if log.read(&subject::run_state(id), 0, 1).await?.is_empty() {
        return Err(reading::unknown(id));
    }
    let root = id.root();
    let artifacts = Arc::clone(&context.ports.artifacts);
    let bytes = aod_audit::export(Arc::clone(log), artifacts, root);
    let mut response = Body::from_stream(bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-tar"),
    );
    let root = HeaderValue::from_str(&root.to_string()).expect("ids are plain");
    headers.insert(TREE_HEADER, root);
    Ok(response)
}

/// Shows the public key of this gateway's seals.
#[utoipa::path(
    get, path = "/v1/seal-key", tag = "audit", operation_id = "get_seal_key",
    responses(
        (status = 200, body = SealKeyView, description = "The public key"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn seal_key(State(context): State<Shared>) -> Json<SealKeyView> {
    let public_key = context.config.seal_key.public_key().to_string();
    Json(SealKeyView { public_key })
}
