//! The HTTP side of the proxy: requests of a capsule's HTTP client, and their answers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use aod_api::problem::Problem;
use aod_domain::egress::Host;
use aod_domain::error_code::ErrorCode;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::{Egress, Place, Reached};
use crate::lock::lock;
use crate::problem;

/// Characters of a refusal in the status line, the only part that many clients show.
const REASON_LENGTH_MAX: usize = 240;

/// Names of the channel in a container: a request with one of them as its absolute URI is not for the proxy.
const OWN_HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// A request for the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A tunnel.
    Connect,
    /// A plain HTTP request, which the proxy would send itself.
    Plain,
}

/// Whether `request` is for the proxy; none if it is for the channel.
pub(crate) fn target<B>(request: &Request<B>) -> Option<Target> {
    if request.method() == Method::CONNECT {
        return Some(Target::Connect);
    }
    let authority = request.uri().authority()?;
    let is_own = OWN_HOSTS.contains(&authority.host());
    (!is_own).then_some(Target::Plain)
}

/// Holds the tunnel of a connection until HTTP has ended on it.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<(Reached, OnUpgrade)>>>);

impl Slot {
    /// Carries the tunnel, if any, to its end.
    pub(crate) async fn carry(self) {
        let taken = lock(&self.0).take();
        if let Some((reached, upgrade)) = taken {
            let inside = upgrade.await.ok().map(TokioIo::new);
            reached.carry(inside).await;
        }
    }
}

/// Answers a request to the proxy. An accepted tunnel waits in `slot`.
pub(crate) async fn answer(
    egress: Arc<Egress>,
    target: Target,
    request: Request<Incoming>,
    slot: Slot,
) -> Result<Response<Body>, Infallible> {
    let asked_for = request.uri().to_string();
    let answered = match target {
        Target::Plain => Err(plain(&egress, &request).await),
        Target::Connect => connect(&egress, &request).await,
    };
    Ok(match answered {
        Ok(reached) => {
            let waiting = Some((reached, hyper::upgrade::on(request)));
            *lock(&slot.0) = waiting;
            Response::new(Body::empty())
        }
        Err(problem) => refused(&problem, asked_for),
    })
}

async fn connect<B>(egress: &Arc<Egress>, request: &Request<B>) -> Result<Reached, Box<Problem>> {
    let authority = request.uri().authority();
    let named = authority.and_then(|authority| Some((authority.host(), authority.port_u16()?)));
    let is_bare = authority.is_some_and(|authority| !authority.as_str().contains('@'));
    let Some((host, port)) = named.filter(|(_, port)| is_bare && *port > 0) else {
        let found = request.uri().to_string();
        let text = format!("expected CONNECT host:port, found {found:?}");
        return Err(Box::new(Problem::new(ErrorCode::RequestMalformed, text)));
    };
    match Host::parse(host) {
        Ok(host) => egress.reach(Place { host, port }).await,
        Err(error) => {
            let problem = Problem::new(ErrorCode::EgressRefused, error.to_string());
            egress.refused(host, Some(port), &problem).await;
            Err(Box::new(problem))
        }
    }
}

async fn plain<B>(egress: &Egress, request: &Request<B>) -> Box<Problem> {
    let authority = request.uri().authority();
    let host = authority.map_or("", |authority| authority.host());
    let text = format!(
        "the proxy of a capsule supports CONNECT only, not {} {}; use https://",
        request.method(),
        request.uri()
    );
    let problem = Problem::new(ErrorCode::EgressRefused, text);
    let port = authority.and_then(Authority::port_u16);
    egress.refused(host, port, &problem).await;
    Box::new(problem)
}

/// A refusal with its reason in the status line: clients do not show the body of a refused tunnel.
fn refused(refusal: &Problem, asked_for: String) -> Response<Body> {
    let reason = format!("{}: {}", refusal.code, refusal.detail);
    let reason: String = reason.chars().take(REASON_LENGTH_MAX).collect();
    let mut response = problem::completed(problem::response(refusal), asked_for);
    if let Ok(reason) = ReasonPhrase::try_from(reason.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    response
}
