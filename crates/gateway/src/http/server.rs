//! Connections: HTTP/1.1 with limits for headers and connections, and a graceful shutdown.

use std::sync::Arc;
use std::time::Duration;

use aod_api::CONNECTION_IDLE_SECONDS_MAX;
use aod_services::connections::{HEADER_BYTES_MAX, accept};
use aod_services::program::inherit;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tls::Tls;

/// Maximum number of connections: every waiting caller holds one, and each takes some ten KiB.
const CONNECTIONS_MAX: usize = 16_384;

/// Serves `router` on `listener` until `shutdown`, with TLS if configured; `tasks` counts the connections.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    shutdown: CancellationToken,
    tasks: TaskTracker,
) {
    let accepting = accept(listener, CONNECTIONS_MAX, |stream, permit| {
        let connection = serve_connection(stream, tls.clone(), router.clone(), shutdown.clone());
        tasks.spawn(inherit(async move {
            connection.await;
            drop(permit);
        }));
    });
    shutdown.run_until_cancelled(accepting).await;
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    router: Router,
    shutdown: CancellationToken,
) {
    // Answers are small, and callers wait for them: disable Nagle's algorithm.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection closed immediately");
        return;
    }
    let Some(tls) = tls else {
        return serve_requests(stream, router, shutdown).await;
    };
    let agreed = tokio::select! {
        biased;
        agreed = tls.accept(stream) => agreed,
        () = shutdown.cancelled() => None,
    };
    if let Some(stream) = agreed {
        serve_requests(stream, router, shutdown).await;
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    shutdown: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(CONNECTION_IDLE_SECONDS_MAX))
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}
