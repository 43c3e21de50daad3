//! Access control: bearer tokens; without tokens, only this host, for development. Each route is registered with the
//! role that it needs. Runs of another tenant do not exist for the caller.

use aod_api::TENANT_HEADER;
use aod_domain::access::{Need, Sender, TokenNeeded};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::subject::{self, Subject};
use aod_domain::tenant::Tenant;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, Uri, header};
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
    let principal = principal(access, find, need, headers, &asked.uri)?;
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
    need: Need,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Principal> {
    let (rule, sender) = (access.without_token(), sender(headers, uri));
    if !headers.contains_key(header::AUTHORIZATION) {
        return Ok(rule.admit(need, sender)?);
    }
    rule.check_sender(sender)?;
    let given = Digest::of(bearer(headers)?);
    // Compare every token: the duration must not depend on the token.
    let configured = access.tokens().iter().fold(None, |found, token| {
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
        .ok_or_else(|| TokenNeeded::Missing.into())
}

/// The headers in which a proxy names the client.
const FORWARDING_HEADERS: [&str; 5] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
];

/// What a request says about its sender.
fn sender<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Sender<'a> {
    let text = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    Sender {
        host: text(header::HOST).or(uri.host()),
        origin: text(header::ORIGIN),
        is_forwarded: FORWARDING_HEADERS
            .iter()
            .any(|&name| headers.contains_key(name)),
    }
}

#[cfg(test)]
mod tests {
    use aod_domain::access::{Reach, Role};

    use super::*;
    use crate::config::Token;

    const NEED: Need = Need {
        role: Role::Run,
        reach: Reach::Tenant,
        compatibility: true,
    };

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
        let found = principal(access, issued, NEED, &headers(pairs), &uri);
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
    fn gateway_open_to_agent_on_demand_still_checks_tokens() {
        let token = Token {
            principal: "ada".into(),
            sha256: Digest::of("secret"),
        };
        let access = Access::TokensOrAgentOnDemand(vec![token]);
        let here = ("host", "127.0.0.1:1");
        check(&access, &[here], Ok("agent-on-demand"));
        check(
            &access,
            &[here, ("authorization", "Bearer secret")],
            Ok("ada"),
        );
        check(
            &access,
            &[here, ("authorization", "Bearer other")],
            Err(401),
        );
        check(&access, &[here, ("authorization", "")], Err(401));
        check(&access, &[("host", "rebound.example:1")], Err(403));
        check(
            &access,
            &[here, ("origin", "http://evil.example")],
            Err(403),
        );
        for name in FORWARDING_HEADERS {
            check(&access, &[here, (name, "192.0.2.1")], Err(403));
        }
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
