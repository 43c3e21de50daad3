//! Two tenants on one cluster: each user belongs to one of them, and sees nothing of the other tenant's runs.

use std::time::Duration;

use aod_domain::access::{Event, Role, Token};
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::id::TokenId;
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, Guard};
use aod_ports::gateways::GatewayTransport as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{Request, StatusCode};
use serde_json::Value;
use uuid::Uuid;

use crate::cluster::{Cluster, GATEWAYS};
use crate::network::Route;
use crate::plan::Plan;

/// Maximum wait for an answer of the other tenant's user.
const PATIENCE: Duration = Duration::from_secs(10);

/// The requests about a run that the other tenant's user tries.
const WAYS: [(&str, &str); 6] = [
    ("GET", ""),
    ("GET", "/result"),
    ("GET", "/tree"),
    ("GET", "/events"),
    ("POST", "/cancel"),
    ("POST", "/rerun"),
];

/// One of the two tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum One {
    First,
    Second,
}

pub(crate) const BOTH: [One; 2] = [One::First, One::Second];

/// The tenant of the plan with `number`.
pub(crate) const fn of(number: u64) -> One {
    if number.is_multiple_of(2) {
        One::First
    } else {
        One::Second
    }
}

impl One {
    const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    pub(crate) fn name(self) -> Tenant {
        let name = match self {
            Self::First => "first",
            Self::Second => "second",
        };
        name.parse().expect("the name of a tenant")
    }

    pub(crate) fn token(self) -> String {
        format!("the token of {}", self.name())
    }

    /// The token of its user, which an administrator created before the first request.
    pub(crate) fn issued(self, header: Header) -> Append {
        let token = Token {
            id: TokenId::new(Uuid::from_u128(self as u128)),
            name: "person".parse().expect("the name of a token"),
            tenant: Some(self.name()),
            role: Role::Run,
            sha256: Digest::of(self.token()),
            expires_at: None,
            requested_by: "simulator".into(),
        };
        let event = Event::Issued(token);
        let (subject, about) = (event.subject(), event.token().to_string());
        let event = CloudEvent::new(header, about, None, event);
        Append::of(subject, Guard::None, &event).expect("a small event")
    }
}

/// Requests the run of `view`, the answer to `plan`, as the other tenant's user.
pub(crate) async fn read_across(cluster: &Cluster, plan: &Plan, view: &Value) {
    if !cluster.has_tenants {
        return;
    }
    let own = of(plan.number);
    if view["tenant"] != own.name().as_str() {
        let text = format!("{} of {own:?} belongs to {}", view["id"], view["tenant"]);
        cluster.world.violation(text);
    }
    let stranger = Route {
        bearer: Some(own.other().token()),
        ..cluster.route_of(&format!("stranger-{}", plan.number), plan.number)
    };
    let run = view["id"].as_str().unwrap_or_default();
    let gateway = cluster.world.below(GATEWAYS as u64);
    for (method, way) in WAYS {
        let url = format!("http://gateway-{gateway}/v1/runs/{run}{way}");
        // A gateway that does not answer reveals nothing.
        let Ok(Some((status, text))) =
            tokio::time::timeout(PATIENCE, ask(&stranger, method, &url)).await
        else {
            continue;
        };
        cluster.world.count("read by other tenant");
        let is_hidden = status == StatusCode::NOT_FOUND || status.is_server_error();
        if !is_hidden {
            let text = format!("{method} {url} by the other tenant: {status} {text}");
            cluster.world.violation(text);
        }
    }
    let url = format!("http://gateway-{gateway}/v1/runs?limit=500");
    let listed = tokio::time::timeout(PATIENCE, ask(&stranger, "GET", &url)).await;
    if let Ok(Some((StatusCode::OK, text))) = listed
        && text.contains(run)
    {
        let text = format!("{run} is in the list of the other tenant");
        cluster.world.violation(text);
    }
}

async fn ask(route: &Route, method: &str, url: &str) -> Option<(StatusCode, String)> {
    let bearer = route.bearer.as_deref().unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {bearer}"))
        .body(Bytes::new())
        .ok()?;
    let response = route.send(request).await.ok()?;
    let status = response.status();
    let pieces: Vec<Bytes> = response.into_body().try_collect().await.ok()?;
    Some((
        status,
        String::from_utf8_lossy(&pieces.concat()).into_owned(),
    ))
}
