//! Bodies of requests: their media types, and JSON.

use std::time::Duration;

use aod_api::strict::JSON_BYTES_MAX;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use crate::error::{Error, Result};
use crate::streams::whole;

/// How long a client may send nothing before the end of a body.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Kind of a body, by its `Content-Type`.
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

/// The error for a body of another type than `expected`.
pub(crate) fn unsupported(expected: &str) -> Error {
    Error::malformed(format!("the header `Content-Type` must be {expected}"))
        .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// `request` with a body that fails if the client is silent for [`SILENCE_MAX`].
///
/// # Errors
/// The body is encoded: the gateway would store the encoded bytes.
pub(crate) fn accept(request: Request) -> Result<Request> {
    let encoding = request.headers().get(header::CONTENT_ENCODING);
    let encoding = encoding.map_or("", |value| value.to_str().unwrap_or("unreadable").trim());
    if encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") {
        return Ok(request.map(|body| arriving(body, SILENCE_MAX)));
    }
    let text = format!(
        "the header `Content-Encoding` is {encoding:.80?}; expected none: send the body without an encoding"
    );
    Err(Error::malformed(text).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// `body`, which fails if no bytes arrive for `silence_max`.
fn arriving(body: Body, silence_max: Duration) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let pieces = stream::unfold(body.into_data_stream(), move |mut pieces| async move {
        let piece = tokio::time::timeout(silence_max, pieces.next()).await;
        let piece = piece.unwrap_or_else(|elapsed| Some(Err(axum::Error::new(elapsed))));
        Some((piece?, pieces))
    });
    Body::from_stream(pieces)
}

/// A whole JSON body.
pub(crate) async fn json(headers: &HeaderMap, body: Body) -> Result<Bytes> {
    match media(headers) {
        Media::Json => whole(body.into_data_stream(), JSON_BYTES_MAX).await,
        Media::Multipart | Media::Other => Err(unsupported("application/json")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn silent_body_fails() {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        let body = Body::from_stream(first.chain(stream::pending()));
        let body = arriving(body, Duration::from_millis(10));
        let error = whole(body.into_data_stream(), JSON_BYTES_MAX)
            .await
            .unwrap_err();
        assert_eq!(error.details().code.as_str(), "request_malformed");
        let text = &error.details().detail;
        assert!(text.contains("before the end of the body"), "{text}");
    }
}
