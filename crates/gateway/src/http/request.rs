//! The outermost layer: gives every request an id, counts it, accepts or refuses its body, and writes the body of
//! problems.

use std::time::Instant;

use aod_api::REQUEST_ID_HEADER;
use aod_api::problem::Problem;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::context::Shared;
use crate::http::body;

/// Maximum length of an id that a caller supplies, in bytes; logs contain it.
const REQUEST_ID_LENGTH_MAX: usize = 64;

pub(crate) async fn layer(State(context): State<Shared>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let request_id = given_id(&request)
        .unwrap_or_else(|| format!("request_{}", context.ports.clock.fresh_uuid().simple()));
    let path = aod_api::problem::instance(request.uri().path(), request.uri());
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", MatchedPath::as_str)
        .to_owned();

    let mut response = match body::accept(request) {
        Ok(request) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };

    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance.clone_from(&path);
        problem.request_id.clone_from(&request_id);
        *response.body_mut() =
            Body::from(serde_json::to_vec(&problem).expect("a problem is plain data"));
    }
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, value);
    }
    let status = response.status().as_u16();
    context
        .metrics
        .observe_request(&method, &route, status, began.elapsed());
    tracing::debug!(request_id, %method, path, status, "request completed");
    response
}

/// The id that the caller supplied, if it is a plain word.
fn given_id(request: &Request) -> Option<String> {
    let text = request.headers().get(REQUEST_ID_HEADER)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    ((1..=REQUEST_ID_LENGTH_MAX).contains(&text.len()) && text.bytes().all(is_plain))
        .then(|| text.to_owned())
}
