//! `/v1/files`: uploads and downloads of files.

use std::ops::Range;

use aod_api::files::{FILE_REFERENCE_PREFIX, UploadedFile};
use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_ports::artifact_store::StoreError;
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::http::access::Principal;
use crate::routes::upload;

/// Uploads the body as a file, for use in later requests.
#[utoipa::path(
    post, path = "/v1/files", tag = "files", operation_id = "upload_file",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, body = UploadedFile, description = "The file is stored"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn upload(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response> {
    // An upload appends an event, so it must respect the space reserved for running trees.
    context.admit_root().await?;
    let stored = upload::store(&context, request.into_body()).await?;
    crate::files::uploaded(&context, &principal, stored).await?;
    let file = UploadedFile {
        file: format!("{FILE_REFERENCE_PREFIX}{}", stored.digest),
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    };
    Ok((StatusCode::CREATED, Json(file)).into_response())
}

/// Downloads a file of the tenant by its digest. Supports `Range` and `If-None-Match`.
#[utoipa::path(
    get, path = "/v1/files/{digest}", tag = "files", operation_id = "download_file",
    params(("digest" = String, Path)),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>, description = "The content of the file"),
        (status = 206, description = "The requested range of the content"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn download(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let digest = digest
        .parse()
        .map_err(|error| Error::new(ErrorCode::UnknownFile, format!("{error}")))?;
    crate::files::check(&context, &principal, digest).await?;
    serve(&context, digest, &headers).await
}

/// The content of an artifact, as the answer to a request with `headers`.
pub(super) async fn serve(
    context: &Context,
    digest: Digest,
    headers: &HeaderMap,
) -> Result<Response> {
    let etag = format!("\"{digest}\"");
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    if text(header::IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|tag| is_tag(tag, &etag)))
    {
        return Ok(with_headers(
            StatusCode::NOT_MODIFIED.into_response(),
            &etag,
        ));
    }
    // The range must not be combined with a different version that the caller has.
    let is_same = text(header::IF_RANGE).is_none_or(|tag| tag.trim() == etag);
    let asked = text(header::RANGE)
        .filter(|_| is_same)
        .and_then(parse_range);
    let range = match asked {
        None => None,
        Some(asked) => Some(resolve_range(context, digest, asked).await?),
    };
    let is_partial = range.is_some();
    let content = match context.ports.artifacts.get_stream(digest, range).await {
        Ok(content) => content,
        Err(error) => return Err(deleted_artifacts::explained(context, error).await),
    };
    let length = content.range.end - content.range.start;
    let mut response = Body::from_stream(content.bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if is_partial {
        let text = format!(
            "bytes {}-{}/{}",
            content.range.start,
            content.range.end - 1,
            content.size_bytes
        );
        headers.insert(
            header::CONTENT_RANGE,
            HeaderValue::from_str(&text).expect("digits are plain"),
        );
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(with_headers(response, &etag))
}

fn is_tag(given: &str, etag: &str) -> bool {
    let given = given.trim();
    given == "*" || given.strip_prefix("W/").unwrap_or(given) == etag
}

fn with_headers(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(etag).expect("digits are plain"),
    );
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // Browsers must never treat a capsule's file as a page of the gateway.
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    response
}

/// One range of bytes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedRange {
    From {
        start: u64,
        end: Option<u64>,
    },
    /// This number of bytes at the end.
    Last(u64),
}

/// Reads `bytes=a-b`; ignores several ranges and malformed ones (RFC 9110).
fn parse_range(text: &str) -> Option<AskedRange> {
    let (start, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (start.trim(), last.trim()) {
        ("", last) => Some(AskedRange::Last(last.parse().ok()?)),
        (start, "") => Some(AskedRange::From {
            start: start.parse().ok()?,
            end: None,
        }),
        (start, last) => {
            let (start, last): (u64, u64) = (start.parse().ok()?, last.parse().ok()?);
            (start <= last).then_some(AskedRange::From {
                start,
                end: Some(last.saturating_add(1)),
            })
        }
    }
}

async fn resolve_range(context: &Context, digest: Digest, asked: AskedRange) -> Result<Range<u64>> {
    Ok(match asked {
        AskedRange::From { start, end } => start..end.unwrap_or(u64::MAX),
        AskedRange::Last(length) => {
            let Some(size) = context.ports.artifacts.size(digest).await? else {
                return Err(
                    deleted_artifacts::explained(context, StoreError::Missing { digest }).await,
                );
            };
            size.saturating_sub(length)..size
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_in_the_rfc() {
        let from = |start, end| Some(AskedRange::From { start, end });
        assert_eq!(parse_range("bytes=0-0"), from(0, Some(1)));
        assert_eq!(parse_range("bytes=5-"), from(5, None));
        assert_eq!(parse_range("bytes=-7"), Some(AskedRange::Last(7)));
        for text in [
            "bytes=7-5",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        assert!(is_tag(" W/\"ab\"", "\"ab\""));
        assert!(is_tag("*", "\"ab\""));
        assert!(!is_tag("\"abc\"", "\"ab\""));
    }
}
