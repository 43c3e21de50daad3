//! The private channel of a run: HTTP on a Unix socket that only its container has.
//!
//! The socket identifies the run; nothing in a request does. The channel serves calls of capsules, models and egress.
//! Capsules cannot reach the API of the gateways.

mod answer;
pub(crate) mod request;
mod routes;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aod_services::connections::HEADER_BYTES_MAX;
use aod_services::program::spawn;
use axum::Router;
use axum::http::Request;
use futures::future::Either;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub(crate) use self::routes::Channel;
use self::routes::ROUTES;
use crate::egress::proxy::{self, Slot};

/// Concurrent connections.
const CONNECTIONS_MAX: usize = 64;

/// How long a client may take to send its headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves `channel` to all clients until `stop`.
pub(crate) fn serve(
    listener: std::os::unix::net::UnixListener,
    channel: Channel,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    // Built for the first connection: most capsules make no calls.
    let state = channel.clone();
    let router = LazyLock::new(move || ROUTES.clone().with_state(state));
    spawn(stop.clone().run_until_cancelled_owned(async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (router, stop) = (Router::clone(&router), stop.clone());
                    let channel = channel.clone();
                    spawn(async move {
                        let slot = Slot::default();
                        let served = connection(stream, router, channel, slot.clone());
                        stop.run_until_cancelled(served).await;
                        // A tunnel is noted when it closes, even after the end of the run.
                        slot.carry().await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    debug!(%error, "a connection of a capsule was not accepted");
                    // Out of descriptors: other connections must close first.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }));
    Ok(())
}

/// Serves one connection until it closes.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    channel: Channel,
    slot: Slot,
) {
    let Channel { calls, egress, .. } = channel;
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let serving = calls.activity.serve();
        let answer = match proxy::target(&request) {
            None => Either::Left(router.call(request)),
            Some(target) => {
                let egress = Arc::clone(&egress);
                Either::Right(proxy::answer(egress, target, request, slot.clone()))
            }
        };
        async move {
            let answer = answer.await;
            drop(serving);
            answer
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%error, "a connection of a capsule broke");
    }
}

/// Serves one connection as [`serve`] does, over any stream.
#[cfg(feature = "fuzzing")]
pub(crate) async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    channel: Channel,
) {
    let router = ROUTES.clone().with_state(channel.clone());
    let slot = Slot::default();
    connection(stream, router, channel, slot.clone()).await;
    slot.carry().await;
}
