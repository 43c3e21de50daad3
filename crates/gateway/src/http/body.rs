//! Bodies of requests: small ones as a whole, large ones as a stream, both bounded.

use aod_domain::error_code::ErrorCode;
use aod_ports::BoxError;
use aod_ports::artifact_store::Incoming;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use thiserror::Error;

use crate::http::error::{ApiError, ApiResult};

/// Largest JSON body, in bytes: four times the largest payload, since text may be escaped and
/// indented.
pub(crate) const JSON_BYTES_MAX: u64 = 1 << 20;

/// More bytes than are taken.
#[derive(Debug, Error)]
#[error("more than {bytes_max} bytes were sent")]
pub(crate) struct TooLarge {
    bytes_max: u64,
}

/// What a request sends, by its `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Multipart,
    Other,
}

/// The media type of the body, without its parameters.
pub(crate) fn media(headers: &HeaderMap) -> Media {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Media::Json,
        "multipart/form-data" => Media::Multipart,
        _ if essence.starts_with("application/") && essence.ends_with("+json") => Media::Json,
        _ => Media::Other,
    }
}

/// The refusal of a body of another type than `expected`.
pub(crate) fn unsupported(expected: &str) -> ApiError {
    ApiError::malformed(format!("the header `Content-Type` must be {expected}"))
        .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// The whole of a JSON body.
pub(crate) async fn json(headers: &HeaderMap, body: Body) -> ApiResult<Bytes> {
    match media(headers) {
        Media::Json => whole(body.into_data_stream(), JSON_BYTES_MAX).await,
        Media::Multipart | Media::Other => Err(unsupported("application/json")),
    }
}

/// All bytes of `stream`, at most `bytes_max`.
pub(crate) async fn whole<E: Into<BoxError>>(
    mut stream: impl Stream<Item = Result<Bytes, E>> + Unpin,
    bytes_max: u64,
) -> ApiResult<Bytes> {
    let mut all = BytesMut::new();
    while let Some(bytes) = stream.next().await {
        let bytes =
            bytes.map_err(|error| ApiError::malformed("the body broke off").because(error))?;
        if (all.len() + bytes.len()) as u64 > bytes_max {
            return Err(ApiError::new(
                ErrorCode::PayloadTooLarge,
                TooLarge { bytes_max }.to_string(),
            ));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
}

/// `stream`, ending with [`TooLarge`] after `bytes_max`.
pub(crate) fn limited<'a, E: Into<BoxError>>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'a,
    bytes_max: u64,
) -> Incoming<'a> {
    let mut total = 0_u64;
    let counted = stream.map(move |bytes| {
        let bytes = bytes.map_err(Into::into)?;
        total += bytes.len() as u64;
        if total > bytes_max {
            Err(TooLarge { bytes_max }.into())
        } else {
            Ok(bytes)
        }
    });
    counted.boxed()
}
