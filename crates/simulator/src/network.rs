//! HTTP without connections: requests go to the routers of gateways, answers return piece by piece.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_ports::BoxError;
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use aod_services::program::Program;
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::response::Parts;
use http::{Request, Response};
use tokio::sync::{mpsc, oneshot};
use tower::ServiceExt as _;

use crate::link::Switch;
use crate::world::World;

/// One answer in this number breaks off.
const BROKEN_ONE_IN: u64 = 80;

/// Timeout of a connection. Source: the node's own client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A gateway that listens.
#[derive(Clone)]
pub(crate) struct Listening {
    pub(crate) program: Program,
    pub(crate) router: Router,
    pub(crate) switch: Switch,
}

/// All listeners by address. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<String, Listening>>>);

impl Network {
    pub(crate) fn listen(&self, address: &str, listening: Listening) {
        self.listening().insert(address.to_owned(), listening);
    }

    pub(crate) fn close(&self, address: &str) {
        self.listening().remove(address);
    }

    fn find(&self, address: &str) -> Option<Listening> {
        self.listening().get(address).cloned()
    }

    fn listening(&self) -> MutexGuard<'_, BTreeMap<String, Listening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Network").finish_non_exhaustive()
    }
}

/// One host's route to the gateways.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) network: Network,
    pub(crate) world: World,
    pub(crate) who: String,
    pub(crate) host: Switch,
    /// The token of a user, if any.
    pub(crate) bearer: Option<String>,
}

/// The head of an answer, and its pieces: none marks the end; without it the answer broke off.
type Answer = (Parts, mpsc::UnboundedReceiver<Option<Bytes>>);

#[async_trait]
impl GatewayTransport for Route {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<AnswerBody>, BoxError> {
        let address = request
            .uri()
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default();
        let what = format!("{} {}", request.method(), request.uri().path());
        self.world.pause().await;
        let gateway = self.network.find(&address).ok_or("refused")?;
        if !(self.host.is_on() && gateway.switch.is_on()) {
            tokio::time::sleep(CONNECT_TIMEOUT).await;
            return Err("no connection in time".into());
        }
        self.world.count("request");
        self.world.step(&self.who, &format!("{what} at {address}"));
        let (head, answered) = oneshot::channel();
        // A request belongs to its gateway, and is dropped when its connection breaks.
        tokio::spawn(
            gateway
                .program
                .run(serve(gateway.router.clone(), request, head)),
        );
        let (head, pieces) = answered.await.map_err(|_| "the connection was reset")?;
        self.world.pause().await;
        let pieces = Pieces {
            route: self.clone(),
            gateway: gateway.switch,
            received: pieces,
        };
        let body = stream::unfold(pieces, |mut pieces| async {
            let piece = pieces.next().await?;
            Some((piece, pieces))
        });
        Ok(Response::from_parts(head, body.boxed()))
    }
}

/// Passes `request` to the gateway, and its answer to the client, until the client disconnects.
async fn serve(router: Router, request: Request<Bytes>, head: oneshot::Sender<Answer>) {
    let mut head = head;
    let response = tokio::select! {
        biased;
        () = head.closed() => return,
        response = router.oneshot(request.map(Body::from)) => response,
    };
    let Ok(response) = response;
    let (sender, pieces) = mpsc::unbounded_channel();
    let (parts, body) = response.into_parts();
    if head.send((parts, pieces)).is_err() {
        return;
    }
    let mut body = body.into_data_stream();
    loop {
        let piece = tokio::select! {
            biased;
            () = sender.closed() => return,
            piece = body.next() => piece,
        };
        match piece {
            Some(Ok(piece)) => drop(sender.send(Some(piece))),
            None => return drop(sender.send(None)),
            Some(Err(_)) => return,
        }
    }
}

/// The body of an answer in transfer.
struct Pieces {
    route: Route,
    gateway: Switch,
    received: mpsc::UnboundedReceiver<Option<Bytes>>,
}

impl Pieces {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        let piece = self.received.recv().await;
        if matches!(piece, Some(None)) {
            return None;
        }
        self.route.world.pause().await;
        let is_up = self.route.host.is_on() && self.gateway.is_on();
        let is_broken = self.route.world.strikes("answer broke off", BROKEN_ONE_IN);
        match piece {
            Some(Some(piece)) if is_up && !is_broken => Some(Ok(piece)),
            _ => Some(Err("the connection was reset".into())),
        }
    }
}

#[cfg(test)]
mod tests;
