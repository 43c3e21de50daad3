//! Connections: bounded, because every user of the host can open one.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// Maximum number of connections. Docker moves 3 to 5 layers of an image at a time.
const CONNECTIONS_MAX: usize = 64;

/// Maximum time until the header of a request is complete, also on an idle connection.
const HEADER_SECONDS_MAX: u64 = 10;

/// Maximum size of a header, in bytes.
const HEADER_BYTES_MAX: usize = 32 * 1_024;

/// Pause after a failure to accept a connection, for example if the system has no free file handle.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    serve_connection(stream, router).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "the registry cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
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
