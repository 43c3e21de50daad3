//! The address and headers of a request, and the parts of an answer that the node forwards.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use futures::{StreamExt as _, stream};

use super::format::Way;
use super::meter::Meter;
use super::settings::{Format, Provider};
use super::settlement::Settlement;

/// The source of an answer: `provider` if forwarded, otherwise `platform`.
pub(crate) const SOURCE_HEADER: HeaderName = HeaderName::from_static("aod-source");

/// Maximum size of a forwarded refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Headers of a capsule that the node forwards; other headers could select who pays, or bypass checks.
const PASSED_HEADERS: [&str; 4] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "user-agent",
];

/// Headers of an answer that the node drops: they concern one connection, or only the operator.
const DROPPED_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "keep-alive",
    "openai-organization",
    "openai-project",
    "proxy-authenticate",
    "set-cookie",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn mark(response: &mut Response, source: &'static str) {
    let headers = response.headers_mut();
    headers.insert(SOURCE_HEADER, HeaderValue::from_static(source));
}

/// The URL for a request. OpenAI's base URL ends with the version that paths begin with.
pub(super) fn address(provider: &Provider, path: &str, query: Option<&str>) -> String {
    let base = &provider.base_url;
    let path = match path.strip_prefix("v1/") {
        Some(rest) if base.ends_with("/v1") => rest,
        _ => path,
    };
    // The only parameter that changes the framing of an answer and not its content.
    let is_events = provider.format == Format::Google
        && query.is_some_and(|query| query.split('&').any(|parameter| parameter == "alt=sse"));
    let query = if is_events { "?alt=sse" } else { "" };
    format!("{base}/{path}{query}")
}

/// The headers for the provider, with the operator's key instead of the capsule's.
pub(super) fn headers_for(format: Format, given: &HeaderMap, key: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in PASSED_HEADERS {
        if let Some(value) = given.get(name) {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    let (name, value) = match format {
        Format::OpenAi => (
            header::AUTHORIZATION,
            key.map(|key| format!("Bearer {key}")),
        ),
        Format::Anthropic => (HeaderName::from_static("x-api-key"), key.map(str::to_owned)),
        Format::Google => (
            HeaderName::from_static("x-goog-api-key"),
            key.map(str::to_owned),
        ),
    };
    if let Some(mut value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Forwards the answer while it arrives, and settles the call at its end.
pub(super) async fn pass_on(
    answer: reqwest::Response,
    way: Way,
    mut settlement: Settlement,
    key: Option<&str>,
) -> Response {
    let status = answer.status();
    let mut headers = answer.headers().clone();
    for name in DROPPED_HEADERS {
        headers.remove(name);
    }
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let is_answer = status.is_success();
    let meter = is_answer.then(|| Meter::new(way, content_type));
    settlement.head(status.as_u16(), meter);
    let body = if is_answer {
        metered(answer, settlement)
    } else {
        let body = without(&beginning(answer).await, key);
        settlement.read(&body);
        settlement.refused();
        Body::from(body)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    mark(&mut response, "provider");
    response
}

fn metered(answer: reqwest::Response, settlement: Settlement) -> Body {
    let state = Some((answer.bytes_stream(), settlement));
    Body::from_stream(stream::unfold(state, |state| async move {
        let (mut bytes, mut settlement) = state?;
        match bytes.next().await {
            Some(Ok(piece)) => {
                settlement.read(&piece);
                Some((Ok(piece), Some((bytes, settlement))))
            }
            // Dropping the settlement settles the call as broken off.
            Some(Err(error)) => Some((Err(error.without_url()), None)),
            None => {
                settlement.whole();
                None
            }
        }
    }))
}

/// The beginning of a refusal: twice the forwarded size, so that no key is split at the end.
async fn beginning(answer: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    let mut bytes = answer.bytes_stream();
    while let Some(Ok(piece)) = bytes.next().await {
        body.extend_from_slice(&piece);
        if body.len() >= 2 * REFUSAL_BYTES_MAX {
            break;
        }
    }
    body
}

/// The forwarded part of a refusal, without the key, which some providers repeat.
fn without(body: &[u8], key: Option<&str>) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    let mut passed = match key {
        Some(key) => text.replace(key, "***").into_bytes(),
        None => text.into_owned().into_bytes(),
    };
    passed.truncate(REFUSAL_BYTES_MAX);
    passed
}
