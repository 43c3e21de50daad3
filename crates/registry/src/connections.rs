//! Connections: bounded, because every user of the host can open one.

use std::time::Duration;

use aod_services::connections::{HEADER_BYTES_MAX, accept};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

/// Maximum number of connections. Docker moves 3 to 5 layers of an image at a time.
const CONNECTIONS_MAX: usize = 64;

/// Maximum time until the header of a request is complete, also on an idle connection.
const HEADER_SECONDS_MAX: u64 = 10;

/// Serves `router` until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    accept(listener, CONNECTIONS_MAX, |stream, permit| {
        let router = router.clone();
        tokio::spawn(async move {
            serve_connection(stream, router).await;
            drop(permit);
        });
    })
    .await;
}

async fn serve_connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADER_SECONDS_MAX))
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        debug!(%error, "a connection to the registry failed");
    }
}
