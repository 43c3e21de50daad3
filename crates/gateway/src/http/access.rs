//! Access control: bearer tokens; without tokens, only this host, for development. Each route is registered with the
//! role that it needs. Runs of another tenant do not exist for the caller.

use aod_api::TENANT_HEADER;
use aod_domain::access::{self, Need};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::subject::{self, Subject};
use aod_domain::tenant::Tenant;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

pub(crate) use aod_domain::access::Principal;

use crate::config::Access;
use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::reading;

/// Passes a request on if its token may use the route, and if the runs in its path belong to the token's tenant.
pub(crate) async fn layer(
    State((context, need)): State<(Shared, Need)>,
    path: MatchedPath,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let asked = Asked {
        uri: request.uri().clone(),
        headers: request.headers().clone(),
        path: path.as_str(),
        parameters: &parameters,
    };
    match admit(&context, need, &asked).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// A request without its body.
struct Asked<'a> {
    uri: Uri,
    headers: HeaderMap,
    /// As registered.
    path: &'a str,
    parameters: &'a RawPathParams,
}

async fn admit(context: &Context, need: Need, asked: &Asked<'_>) -> Result<Principal> {
    let headers = &asked.headers;
    let (access, tokens) = (&context.config.access, &context.tokens);
    let now = context.ports.clock.now();
    let find = |sha256: &Digest| tokens.find(sha256, now);
    let principal = principal(access, find, headers, &asked.uri)?;
    let principal = principal.check(need).map(|()| principal)?;
    let principal = match asked_tenant(headers)? {
        Some(tenant) => principal.acting_for(tenant)?,
        None => principal,
    };
    for (name, value) in asked.parameters {
        if matches!(name, "run" | "other") && !sees(context, &principal, value).await? {
            return Err(not_there(asked.path, value));
        }
    }
    Ok(principal)
}

/// The tenant in the header `Aod-Tenant`.
fn asked_tenant(headers: &HeaderMap) -> Result<Option<Tenant>> {
    let Some(given) = headers.get(TENANT_HEADER) else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or_default();
    let read = text
        .parse()
        .map_err(|error| Error::malformed(format!("`Aod-Tenant`: {error}")));
    read.map(Some)
}

/// Whether `principal` may know of the run `id`. The route itself rejects malformed ids, and unknown ids of principals
/// that see all tenants.
async fn sees(context: &Context, principal: &Principal, id: &str) -> Result<bool> {
    let (Some(own), Ok(run)) = (principal.scope.tenant(), id.parse::<RunId>()) else {
        return Ok(true);
    };
    if let Some(known) = context.waiters.known(run) {
        return Ok(known.launched.event.tenant == *own);
    }
    let log = context.runs.log();
    let first = log.read(&subject::run_state(run), 0, 1).await?;
    let tenant = first
        .first()
        .and_then(|first| Subject::tenant_of(&first.subject));
    Ok(tenant.as_ref() == Some(own))
}

/// The same error as for a run that does not exist.
fn not_there(path: &str, id: &str) -> Error {
    let code = if path.starts_with("/v1/deadletters") {
        ErrorCode::UnknownDeadLetter
    } else {
        ErrorCode::UnknownRun
    };
    Error::new(code, reading::unknown_text(id))
}

fn principal(
    access: &Access,
    find: impl Fn(&Digest) -> Option<Principal>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Principal> {
    let configured = match access {
        Access::Development if !comes_from_this_host(headers, uri) => {
            let detail = "without tokens, the gateway accepts requests only from this host, not from pages of other sites";
            let error = Error::new(ErrorCode::Unauthorized, detail);
            return Err(error.with_status(StatusCode::FORBIDDEN));
        }
        Access::Development if !headers.contains_key(header::AUTHORIZATION) => {
            return Ok(Principal::cluster_admin(access::DEVELOPMENT));
        }
        Access::Development => &[][..],
        Access::Tokens(tokens) => tokens,
    };
    let given = Digest::of(bearer(headers)?);
    // Compare every token: the duration must not depend on the token.
    let configured = configured.iter().fold(None, |found, token| {
        if token.sha256.is_same_secret(&given) {
            Some(Principal::cluster_admin(&token.principal))
        } else {
            found
        }
    });
    configured.or_else(|| find(&given)).ok_or_else(|| {
        Error::new(
            ErrorCode::Unauthorized,
            "the token is unknown, expired or revoked: create one with `aod tokens create`",
        )
    })
}

/// The text after `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // With two headers, a proxy could use another one than the gateway.
    let only = given.next().filter(|_| given.next().is_none());
    let text = only.and_then(|value| value.to_str().ok());
    text.and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| {
            Error::new(
                ErrorCode::Unauthorized,
                "expected the header `Authorization: Bearer <token>`",
            )
        })
}

/// Checks `Host` and `Origin`: browsers let any page send requests to loopback, and any name can resolve to loopback.
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

/// Whether `authority`, a host with or without a port, always means this host.
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
        let issued = |sha256: &Digest| {
            (*sha256 == Digest::of("issued")).then(|| Principal::cluster_admin("issued"))
        };
        let uri = Uri::from_static("/v1/runs");
        let found = principal(access, issued, &headers(pairs), &uri);
        let found = found
            .map(|principal| principal.name)
            .map_err(|error| error.problem().status);
        assert_eq!(found, expected.map(str::to_owned));
    }

    #[test]
    fn token_is_identified_by_its_hash() {
        let token = Token {
            principal: "ada".into(),
            sha256: Digest::of("secret"),
        };
        let access = Access::Tokens(vec![token]);
        check(&access, &[("authorization", "Bearer secret")], Ok("ada"));
        check(&access, &[("authorization", "Bearer issued")], Ok("issued"));
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
    fn gateway_without_tokens_rejects_foreign_pages() {
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
        let here = ("host", "127.0.0.1:1");
        check(
            &access,
            &[here, ("authorization", "Bearer issued")],
            Ok("issued"),
        );
        check(
            &access,
            &[here, ("authorization", "Bearer other")],
            Err(401),
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
