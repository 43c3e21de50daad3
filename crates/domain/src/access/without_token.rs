//! Requests without a token: which of them a gateway accepts, and for which principal.
//!
//! Such a gateway listens only on loopback. That is not enough: a browser lets any page send requests to loopback, any
//! name can resolve to loopback, and a proxy on this host passes on requests of other hosts. [`Sender`] excludes them.

use std::net::IpAddr;

use super::{DEVELOPMENT, Need, Principal, Role, Scope};
use crate::tenant::Tenant;

/// The name in events of clients of agent-on-demand without a token.
pub const AGENT_ON_DEMAND: &str = "agent-on-demand";

/// The requests that a gateway accepts without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutToken {
    /// None.
    Nothing,
    /// Requests of this host to the routes of agent-on-demand compatibility, with the role `run` for the default tenant.
    Compatibility,
    /// All requests of this host, with all rights.
    Everything,
}

/// Why a gateway rejects a request without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenNeeded {
    #[error("expected the header `Authorization: Bearer <token>`")]
    Missing,
    #[error(
        "without tokens, the gateway accepts requests only from this host, not from pages of other sites or from proxies"
    )]
    OtherHost,
}

impl WithoutToken {
    /// The principal of a request without a token to a route with this `need`.
    pub fn admit(self, need: Need, sender: Sender<'_>) -> Result<Principal, TokenNeeded> {
        match self {
            Self::Everything if sender.is_this_host() => Ok(Principal::cluster_admin(DEVELOPMENT)),
            Self::Compatibility if !need.compatibility => Err(TokenNeeded::Missing),
            Self::Compatibility if sender.is_this_host() => Ok(Principal::agent_on_demand()),
            Self::Compatibility | Self::Everything => Err(TokenNeeded::OtherHost),
            Self::Nothing => Err(TokenNeeded::Missing),
        }
    }

    /// Whether a request may show its token: a gateway without tokens accepts no request of another host at all.
    pub fn check_sender(self, sender: Sender<'_>) -> Result<(), TokenNeeded> {
        match self {
            Self::Everything if !sender.is_this_host() => Err(TokenNeeded::OtherHost),
            Self::Nothing | Self::Compatibility | Self::Everything => Ok(()),
        }
    }
}

impl Principal {
    /// A client of agent-on-demand without a token.
    fn agent_on_demand() -> Self {
        Self {
            name: AGENT_ON_DEMAND.to_owned(),
            role: Role::Run,
            scope: Scope::Tenant(Tenant::default()),
        }
    }
}

/// What a request says about its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender<'a> {
    /// The host that the client addressed, with or without a port.
    pub host: Option<&'a str>,
    /// The header `Origin`, which browsers set for a page of another site.
    pub origin: Option<&'a str>,
    /// Whether a proxy says that it passed the request on.
    pub is_forwarded: bool,
}

impl Sender<'_> {
    /// Whether client and page address this host by a name that cannot mean another host, without a proxy.
    pub fn is_this_host(self) -> bool {
        let origin = self.origin.is_none_or(|origin| {
            origin
                .split_once("://")
                .is_some_and(|(_, authority)| is_loopback_name(authority))
        });
        self.host.is_some_and(is_loopback_name) && origin && !self.is_forwarded
    }
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
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Reach;

    const COMPATIBILITY: Need = Need {
        role: Role::Run,
        reach: Reach::Tenant,
        compatibility: true,
    };

    const OTHER: Need = Need {
        compatibility: false,
        ..COMPATIBILITY
    };

    const HERE: Sender<'_> = Sender {
        host: Some("127.0.0.1:8080"),
        origin: None,
        is_forwarded: false,
    };

    fn check(
        rule: WithoutToken,
        need: Need,
        sender: Sender<'_>,
        expected: Result<&str, TokenNeeded>,
    ) {
        let admitted = rule.admit(need, sender).map(|principal| principal.name);
        assert_eq!(admitted, expected.map(str::to_owned), "{rule:?} {sender:?}");
    }

    #[test]
    fn client_without_token_may_only_use_compatibility_routes() {
        use WithoutToken::{Compatibility, Everything, Nothing};
        check(Compatibility, COMPATIBILITY, HERE, Ok(AGENT_ON_DEMAND));
        check(Compatibility, OTHER, HERE, Err(TokenNeeded::Missing));
        check(Everything, COMPATIBILITY, HERE, Ok(DEVELOPMENT));
        check(Everything, OTHER, HERE, Ok(DEVELOPMENT));
        for need in [COMPATIBILITY, OTHER] {
            check(Nothing, need, HERE, Err(TokenNeeded::Missing));
        }
    }

    #[test]
    fn client_without_token_requests_runs_of_default_tenant_only() {
        let admitted = WithoutToken::Compatibility.admit(COMPATIBILITY, HERE);
        let client = admitted.expect("it comes from this host");
        assert_eq!(client.check(COMPATIBILITY), Ok(()));
        assert_eq!(client.scope, Scope::Tenant(Tenant::default()));
        let operate = Need {
            role: Role::Operate,
            ..COMPATIBILITY
        };
        assert!(client.check(operate).is_err());
        let cluster = Need {
            reach: Reach::Cluster,
            ..COMPATIBILITY
        };
        assert!(client.check(cluster).is_err());
        let acme = "acme".parse().expect("a name");
        assert!(client.acting_for(acme).is_err());
    }

    #[test]
    fn only_loopback_names_address_this_host() {
        let addressed = |host| Sender {
            host: Some(host),
            ..HERE
        };
        let own = [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost:1",
            "localhost",
            "[::1]:80",
            "[::1]",
        ];
        for host in own {
            assert!(addressed(host).is_this_host(), "{host}");
        }
        let foreign = [
            "rebound.example:8080",
            "localhost.example",
            "127.0.0.1.example:8080",
            "127.0.0.1:8080@evil.example",
            "192.0.2.1:8080",
            "0.0.0.0:8080",
            "",
        ];
        for host in foreign {
            assert!(!addressed(host).is_this_host(), "{host}");
            check(
                WithoutToken::Compatibility,
                COMPATIBILITY,
                addressed(host),
                Err(TokenNeeded::OtherHost),
            );
        }
        assert!(!Sender { host: None, ..HERE }.is_this_host());
    }

    #[test]
    fn page_of_another_site_and_proxy_are_rejected() {
        let of_page = |origin| Sender {
            origin: Some(origin),
            ..HERE
        };
        for origin in [
            "http://127.0.0.1:8080",
            "http://localhost:3000",
            "https://[::1]",
        ] {
            assert!(of_page(origin).is_this_host(), "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "",
            "file://",
            "http://127.0.0.1.example",
        ] {
            assert!(!of_page(origin).is_this_host(), "{origin}");
        }
        let forwarded = Sender {
            is_forwarded: true,
            ..HERE
        };
        for rule in [WithoutToken::Compatibility, WithoutToken::Everything] {
            check(rule, COMPATIBILITY, forwarded, Err(TokenNeeded::OtherHost));
        }
        let with_token = WithoutToken::Everything.check_sender(forwarded);
        assert_eq!(with_token, Err(TokenNeeded::OtherHost));
    }
}
