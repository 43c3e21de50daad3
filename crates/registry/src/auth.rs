//! Finds the transfer of a request by its user name, and checks its secret.

use std::sync::Arc;

use aod_domain::digest::Digest;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::Sessions;
use crate::error::{Error, Failure, Result};

/// Maximum length of the header with the credentials, in bytes: ours have about 150.
const HEADER_LENGTH_MAX: usize = 1_024;

/// The answer to the question whether this is a registry.
pub(crate) async fn welcome() -> &'static str {
    "{}"
}

pub(crate) async fn check(
    State(sessions): State<Sessions>,
    mut request: Request,
    next: Next,
) -> Result<Response> {
    let (name, secret) = credentials(request.headers()).ok_or_else(Error::unauthorized)?;
    let session = sessions.lock().get(&name).cloned();
    let session = session.ok_or_else(Error::unauthorized)?;
    if !session.secret.is_same_secret(&Digest::of(secret)) {
        return Err(Error::unauthorized());
    }
    session.mark_used();
    request.extensions_mut().insert(Arc::clone(&session));
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        failure.report(&session);
    }
    Ok(response)
}

/// Name and secret of HTTP's basic authentication.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let encoded = header.strip_prefix("Basic ")?;
    if encoded.len() > HEADER_LENGTH_MAX {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, secret) = text.split_once(':')?;
    Some((name.to_owned(), secret.to_owned()))
}
