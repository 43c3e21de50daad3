//! Connections: HTTP/1.1 with limits for headers and connections, and a graceful shutdown.

use std::sync::Arc;
use std::time::Duration;

use aod_api::CONNECTION_IDLE_SECONDS_MAX;
use aod_services::program::inherit;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tls::Tls;

/// Maximum size of the headers of a request with its first line, in bytes. The server reads ahead, and may accept
/// headers of twice this size that arrive together.
const HEADER_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of connections: every waiting caller holds one, and each takes some ten KiB.
const CONNECTIONS_MAX: usize = 16_384;

/// Pause after a failure to accept a connection, for example if the system has no free file handle.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown`, with TLS if configured; `tasks` counts the connections.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    shutdown: CancellationToken,
    tasks: TaskTracker,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&room).acquire_owned() => permit.expect("the semaphore is never closed"),
            () = shutdown.cancelled() => return,
        };
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection =
                    serve_connection(stream, tls.clone(), router.clone(), shutdown.clone());
                tasks.spawn(inherit(async move {
                    connection.await;
                    drop(permit);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
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
