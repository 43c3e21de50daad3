//! A proxy between two programs that records every byte in both directions, like a network tap.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Bytes per read.
const PIECE_BYTES: usize = 16 * 1024;

/// The destination of connections, once it is known.
type Target = Arc<Mutex<Option<SocketAddr>>>;

/// Everything that was transferred.
type Tape = Arc<Mutex<Vec<u8>>>;

/// Forwards connections, and records them; ends with the value.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    target: Target,
    tape: Tape,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Listens on a free port; rejects connections before [`lead_to`](Self::lead_to).
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (target, tape) = (Target::default(), Tape::default());
        let task = tokio::spawn(pass_on(listener, Arc::clone(&target), Arc::clone(&tape)));
        Self {
            address,
            target,
            tape,
            task,
        }
    }

    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of transferred bytes.
    pub fn size_bytes(&self) -> usize {
        self.tape
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether `text` was transferred.
    pub fn heard(&self, text: &str) -> bool {
        let tape = self.tape.lock().unwrap_or_else(PoisonError::into_inner);
        tape.windows(text.len())
            .any(|window| window == text.as_bytes())
    }
}

async fn pass_on(listener: TcpListener, target: Target, tape: Tape) {
    while let Ok((near, _)) = listener.accept().await {
        let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(target) = target else { continue };
        let Ok(far) = TcpStream::connect(target).await else {
            continue;
        };
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        tokio::spawn(record(near_read, far_write, Arc::clone(&tape)));
        tokio::spawn(record(far_read, near_write, Arc::clone(&tape)));
    }
}

async fn record(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, tape: Tape) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(size @ 1..) = from.read(&mut piece).await {
        let said = &piece[..size];
        tape.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(said);
        if to.write_all(said).await.is_err() {
            return;
        }
    }
}
