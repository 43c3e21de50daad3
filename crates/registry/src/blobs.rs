//! Blobs: layers and configurations.

use std::collections::HashMap;
use std::io::SeekFrom;
use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_ports::clock::{Clock as _, SystemClock};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse as _, Response};
use futures::TryStreamExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use crate::REPOSITORY;
use crate::error::{Error, Result, chain};
use crate::manifest::parse_digest;
use crate::transfer::{Push, Role, Session};
use crate::upload::Upload;

/// Size of the pieces of a blob, in bytes.
const PIECE_BYTES: usize = 256 * 1_024;

pub(crate) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const UPLOAD_ID: HeaderName = HeaderName::from_static("docker-upload-uuid");

/// `HEAD` and `GET` of a blob. A push only learns whether it must send the blob; the store keeps the blob from then on
/// as long as a new one.
pub(crate) async fn get(
    Extension(session): Extension<Arc<Session>>,
    Path(digest): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response> {
    let digest = digest_in(&digest)?;
    match &session.role {
        Role::Push(_) if method == Method::HEAD => {
            let size_bytes = session.artifacts.renew_intact(digest).await?;
            let size_bytes = size_bytes.ok_or_else(|| missing(digest))?;
            Ok(described(digest, size_bytes).into_response())
        }
        Role::Push(_) => Err(Error::denied("a push reads no blobs")),
        Role::Pull(pull) => {
            let size_bytes = *pull.blobs.get(&digest).ok_or_else(|| missing(digest))?;
            if method == Method::HEAD {
                return Ok(described(digest, size_bytes).into_response());
            }
            send(&session, digest, size_bytes, &headers).await
        }
    }
}

fn described(digest: Digest, size_bytes: u64) -> [(HeaderName, String); 3] {
    [
        (CONTENT_LENGTH, size_bytes.to_string()),
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DIGEST, format!("sha256:{digest}")),
    ]
}

fn missing(digest: Digest) -> Error {
    Error::unknown_blob(format!("no blob sha256:{digest} in this transfer"))
}

/// Sends the verified blob, or its rest after an interruption.
async fn send(
    session: &Session,
    digest: Digest,
    size_bytes: u64,
    headers: &HeaderMap,
) -> Result<Response> {
    let stored = session.artifacts.get_file(digest, size_bytes).await?;
    session.count(stored.fetched_bytes());
    let unreadable = |error: std::io::Error| {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", chain(&error))
    };
    let mut file = tokio::fs::File::open(stored.path())
        .await
        .map_err(unreadable)?;
    let range = range_in(headers, size_bytes)?;
    let start = range.unwrap_or(0);
    file.seek(SeekFrom::Start(start))
        .await
        .map_err(unreadable)?;
    let rest = size_bytes - start;
    let pieces = ReaderStream::with_capacity(file.take(rest), PIECE_BYTES);
    // The store keeps the file as long as `stored` exists.
    let pieces = pieces.inspect_ok(move |_| {
        let _ = &stored;
    });
    let mut response = (described(digest, rest), Body::from_stream(pieces)).into_response();
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let text = format!("bytes {start}-{}/{size_bytes}", size_bytes - 1);
        let text = text.parse().expect("digits are a header's value");
        response.headers_mut().insert(CONTENT_RANGE, text);
    }
    Ok(response)
}

/// The start of a range that goes to the end: the only ranges that clients use, to go on after an interruption.
fn range_in(headers: &HeaderMap, size_bytes: u64) -> Result<Option<u64>> {
    let Some(range) = headers.get(RANGE) else {
        return Ok(None);
    };
    let parsed = range.to_str().ok().and_then(|range| {
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        let is_rest = end.is_empty() || end.parse() == Ok(size_bytes.saturating_sub(1));
        start
            .parse()
            .ok()
            .filter(|start| is_rest && *start < size_bytes)
    });
    parsed.map(Some).ok_or_else(|| {
        let text = format!("expected bytes=N- with N below {size_bytes}");
        Error::new(StatusCode::RANGE_NOT_SATISFIABLE, "UNSUPPORTED", text)
    })
}

/// Begins an upload; with `digest`, the body is the whole blob; with `mount`, an existing blob needs no upload.
pub(crate) async fn begin(
    Extension(session): Extension<Arc<Session>>,
    Query(query): Query<HashMap<String, String>>,
    body: Body,
) -> Result<Response> {
    let push = push_of(&session)?;
    if let Some(mounted) = query.get("mount") {
        let digest = digest_in(mounted)?;
        if session.artifacts.renew(digest).await?.is_some() {
            return Ok(created(digest));
        }
    }
    let mut upload = Upload::create(session.artifacts.as_ref())?;
    if let Some(digest) = query.get("digest") {
        let digest = digest_in(digest)?;
        upload.append(body).await?;
        session.count(upload.store(session.artifacts.as_ref(), digest).await?);
        return Ok(created(digest));
    }
    let id = SystemClock.fresh_uuid();
    if !push.begin(id, upload) {
        let text = "too many unfinished uploads in one push";
        return Err(Error::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TOOMANYREQUESTS",
            text,
        ));
    }
    Ok(received(StatusCode::ACCEPTED, id, 0))
}

/// The number of received bytes.
pub(crate) async fn status(
    Extension(session): Extension<Arc<Session>>,
    Path(upload): Path<String>,
) -> Result<Response> {
    let id = upload_id(&upload)?;
    let size_bytes = push_of(&session)?.received(id);
    let size_bytes = size_bytes.ok_or_else(Error::unknown_upload)?;
    Ok(received(StatusCode::NO_CONTENT, id, size_bytes))
}

/// Appends to an upload. After a failure, the upload is gone, and the client begins a new one.
pub(crate) async fn append(
    Extension(session): Extension<Arc<Session>>,
    Path(upload): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let id = upload_id(&upload)?;
    let push = push_of(&session)?;
    let mut upload = push.take(id).ok_or_else(Error::unknown_upload)?;
    check_start(&headers, upload.size_bytes())?;
    upload.append(body).await?;
    let size_bytes = upload.size_bytes();
    push.put_back(id, upload);
    Ok(received(StatusCode::ACCEPTED, id, size_bytes))
}

/// A piece that names its range must continue the upload.
fn check_start(headers: &HeaderMap, size_bytes: u64) -> Result<()> {
    let Some(range) = headers.get(CONTENT_RANGE) else {
        return Ok(());
    };
    let start = range
        .to_str()
        .ok()
        .and_then(|range| range.split_once('-')?.0.parse::<u64>().ok());
    if start == Some(size_bytes) {
        return Ok(());
    }
    let text = format!("expected a range from {size_bytes}");
    Err(Error::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "BLOB_UPLOAD_INVALID",
        text,
    ))
}

/// Stores an upload under `digest`.
pub(crate) async fn finish(
    Extension(session): Extension<Arc<Session>>,
    Path(upload): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    body: Body,
) -> Result<Response> {
    let id = upload_id(&upload)?;
    let push = push_of(&session)?;
    let mut upload = push.take(id).ok_or_else(Error::unknown_upload)?;
    let digest = query.get("digest").map_or("", String::as_str);
    let digest = digest_in(digest)?;
    upload.append(body).await?;
    session.count(upload.store(session.artifacts.as_ref(), digest).await?);
    Ok(created(digest))
}

pub(crate) async fn cancel(
    Extension(session): Extension<Arc<Session>>,
    Path(upload): Path<String>,
) -> Result<StatusCode> {
    let upload = push_of(&session)?.take(upload_id(&upload)?);
    upload.ok_or_else(Error::unknown_upload)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn push_of(session: &Session) -> Result<&Push> {
    match &session.role {
        Role::Push(push) => Ok(push),
        Role::Pull(_) => Err(Error::denied("a pull stores nothing")),
    }
}

fn digest_in(text: &str) -> Result<Digest> {
    parse_digest(text).ok_or_else(|| {
        let found: String = text.chars().take(80).collect();
        Error::wrong_digest(format!(
            "expected sha256: with 64 lower-case digits, not {found:?}"
        ))
    })
}

fn upload_id(text: &str) -> Result<Uuid> {
    text.parse().map_err(|_| Error::unknown_upload())
}

fn received(status: StatusCode, id: Uuid, size_bytes: u64) -> Response {
    let headers = [
        (LOCATION, format!("/v2/{REPOSITORY}/blobs/uploads/{id}")),
        (RANGE, format!("0-{}", size_bytes.saturating_sub(1))),
        (UPLOAD_ID, id.to_string()),
    ];
    (status, headers).into_response()
}

fn created(digest: Digest) -> Response {
    let headers = [
        (LOCATION, format!("/v2/{REPOSITORY}/blobs/sha256:{digest}")),
        (CONTENT_DIGEST, format!("sha256:{digest}")),
    ];
    (StatusCode::CREATED, headers).into_response()
}
