//! Who asks: bearer tokens for people; without them only pages of this very host, for development.

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::config::Access;
use crate::context::Shared;
use crate::http::error::ApiError;

/// Who a run says has asked for it, when there are no tokens.
const DEVELOPMENT_PRINCIPAL: &str = "development";

/// Whoever asks, as runs name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(pub(crate) String);

/// Lets a request through when its bearer may use the gateway.
pub(crate) async fn layer(
    State(context): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    match principal(&context.config.access, request.headers(), request.uri()) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

fn principal(access: &Access, headers: &HeaderMap, uri: &Uri) -> Result<Principal, ApiError> {
    match access {
        Access::Development if comes_from_this_host(headers, uri) => {
            Ok(Principal(DEVELOPMENT_PRINCIPAL.into()))
        }
        Access::Development => {
            let detail =
                "without tokens only this host itself may ask, and no page of another site";
            Err(ApiError::new(ErrorCode::Unauthorized, detail).with_status(StatusCode::FORBIDDEN))
        }
        Access::Tokens(tokens) => {
            let given = Digest::of(bearer(headers)?);
            // Every token is compared, so that the time does not tell which one is near.
            let found = tokens.iter().fold(None, |found, token| {
                if is_same(&token.sha256, &given) {
                    Some(token)
                } else {
                    found
                }
            });
            let principal = found.map(|token| Principal(token.principal.clone()));
            principal.ok_or_else(|| {
                ApiError::new(ErrorCode::Unauthorized, "the token is not known here")
            })
        }
    }
}

/// The text after `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // Two of them would let whoever stands in between choose.
    let only = given.next().filter(|_| given.next().is_none());
    let text = only.and_then(|value| value.to_str().ok());
    text.and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| {
            ApiError::new(
                ErrorCode::Unauthorized,
                "expected the header `Authorization: Bearer <token>`",
            )
        })
}

/// Compares in a time that does not depend on where two digests differ.
pub(crate) fn is_same(one: &Digest, other: &Digest) -> bool {
    let difference = one
        .as_bytes()
        .iter()
        .zip(other.as_bytes())
        .fold(0, |sum, (one, other)| sum | (one ^ other));
    std::hint::black_box(difference) == 0
}

/// Browsers let any page send requests to loopback, and any name may be made to mean loopback:
/// both show in these headers.
fn comes_from_this_host(headers: &HeaderMap, uri: &Uri) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let host = text(header::HOST)
        .or(uri.host())
        .is_some_and(is_loopback_name);
    let origin = text(header::ORIGIN).is_none_or(|origin| {
        origin
            .split_once("://")
            .is_some_and(|(_, authority)| is_loopback_name(authority))
    });
    host && origin
}

/// Whether `authority`, a host with or without a port, is this host in every name service.
fn is_loopback_name(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn check(access: &Access, pairs: &[(&'static str, &'static str)], expected: Result<&str, u16>) {
        let found = principal(access, &headers(pairs), &Uri::from_static("/v1/runs"));
        let found = found
            .map(|principal| principal.0)
            .map_err(|error| error.problem().status);
        assert_eq!(found, expected.map(str::to_owned));
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let token = Token {
            principal: "ada".into(),
            sha256: Digest::of("secret"),
        };
        let access = Access::Tokens(vec![token]);
        check(&access, &[("authorization", "Bearer secret")], Ok("ada"));
        check(&access, &[("authorization", "Bearer Secret")], Err(401));
        check(&access, &[("authorization", "Basic secret")], Err(401));
        check(&access, &[], Err(401));
        check(
            &access,
            &[
                ("authorization", "Bearer secret"),
                ("authorization", "Bearer x"),
            ],
            Err(401),
        );
    }

    #[test]
    fn without_tokens_no_foreign_page_may_ask() {
        let access = Access::Development;
        for host in ["127.0.0.1:8700", "localhost:1", "[::1]:80", "localhost"] {
            check(&access, &[("host", host)], Ok("development"));
        }
        check(&access, &[("host", "rebound.example:8700")], Err(403));
        check(
            &access,
            &[("host", "127.0.0.1:1"), ("origin", "http://evil.example")],
            Err(403),
        );
        check(
            &access,
            &[("host", "127.0.0.1:1"), ("origin", "null")],
            Err(403),
        );
        check(
            &access,
            &[("host", "127.0.0.1:1"), ("origin", "http://127.0.0.1:1")],
            Ok("development"),
        );
    }
}
