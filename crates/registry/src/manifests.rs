//! Manifests: the last thing that a push stores, and the first that a pull reads.

use std::sync::Arc;

use aod_domain::capsule::{Image, ImageContent};
use aod_domain::digest::Digest;
use axum::Extension;
use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_TYPE, LOCATION};

use crate::REPOSITORY;
use crate::blobs::{CONTENT_DIGEST, push_of};
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::transfer::{Role, Session};

pub(crate) async fn get(
    Extension(session): Extension<Arc<Session>>,
    Path(reference): Path<String>,
) -> Result<Response> {
    let unknown = || {
        let text = "this transfer has no such manifest";
        Error::new(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", text)
    };
    let Role::Pull(pull) = &session.role else {
        return Err(unknown());
    };
    check_reference(&session, &reference, pull.manifest).map_err(|_| unknown())?;
    let headers = [
        (CONTENT_TYPE, pull.media_type.clone()),
        (CONTENT_DIGEST, format!("sha256:{}", pull.manifest)),
    ];
    Ok((headers, pull.bytes.clone()).into_response())
}

/// Stores the manifest of a push, if the store has all of its parts.
pub(crate) async fn put(
    Extension(session): Extension<Arc<Session>>,
    Path(reference): Path<String>,
    body: Body,
) -> Result<Response> {
    let push = push_of(&session)?;
    let bytes = axum::body::to_bytes(body, MANIFEST_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| {
        Error::wrong_manifest(format!("at most {MANIFEST_BYTES_MAX} bytes are allowed"))
    })?;
    let digest = Digest::of(&bytes);
    check_reference(&session, &reference, digest)?;
    let manifest = Manifest::parse(&bytes).map_err(|error| {
        *push.refusal() = Some(error.clone());
        Error::wrong_manifest(error.to_string())
    })?;
    check_parts(&session, &manifest).await?;
    let whole = stream::iter([Ok(bytes)]).boxed();
    session.artifacts.put_stream(whole).await?;
    *push.pushed() = Some(Image {
        config_digest: format!("sha256:{}", manifest.config.digest),
        content: ImageContent::Layers {
            manifest: digest,
            config: None,
            layers: manifest.layers,
        },
    });
    let headers = [
        (
            LOCATION,
            format!("/v2/{REPOSITORY}/manifests/sha256:{digest}"),
        ),
        (CONTENT_DIGEST, format!("sha256:{digest}")),
    ];
    Ok((StatusCode::CREATED, headers).into_response())
}

/// A transfer has one tag and one manifest.
fn check_reference(session: &Session, reference: &str, digest: Digest) -> Result<()> {
    let is_known = reference == session.tag || reference == format!("sha256:{digest}");
    is_known
        .then_some(())
        .ok_or_else(|| Error::denied("this transfer has another tag"))
}

/// The store must have each part in its size, and keep it until an event names it.
async fn check_parts(session: &Session, manifest: &Manifest) -> Result<()> {
    for blob in manifest.blobs() {
        let found = session.artifacts.renew_intact(blob.digest).await?;
        if found != Some(blob.size_bytes) {
            let found = found.map_or("missing".to_owned(), |size| format!("{size} bytes"));
            let (digest, expected) = (blob.digest, blob.size_bytes);
            let text = format!("sha256:{digest} is {found}, expected {expected} bytes");
            return Err(Error::new(
                StatusCode::NOT_FOUND,
                "MANIFEST_BLOB_UNKNOWN",
                text,
            ));
        }
    }
    Ok(())
}
