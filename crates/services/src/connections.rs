//! Accepts a bounded number of TCP connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// Maximum size of the headers of a request with its first line, in bytes. A server reads ahead, and may accept headers of
/// twice this size that arrive together.
pub const HEADER_BYTES_MAX: usize = 32 * 1024;

/// Pause after a failure to accept a connection, for example if the system has no free file handle.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Passes each connection to `serve`, at most `connections_max` at a time: a connection counts until its permit is
/// dropped. Runs until it is dropped.
pub async fn accept(
    listener: TcpListener,
    connections_max: usize,
    mut serve: impl FnMut(TcpStream, OwnedSemaphorePermit),
) {
    let room = Arc::new(Semaphore::new(connections_max));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => serve(stream, permit),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
