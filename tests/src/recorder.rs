//! Stands between two programs and keeps every byte that goes either way, as whoever taps a network would.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Bytes read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Where connections are passed on to, once that is known.
type Target = Arc<Mutex<Option<SocketAddr>>>;

/// Everything that was said.
type Tape = Arc<Mutex<Vec<u8>>>;

/// Passes connections on, and records them; it ends with the value.
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
    /// Listens on a port of its own; connections before [`lead_to`](Self::lead_to) are refused.
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

    /// How many bytes were said.
    pub fn size_bytes(&self) -> usize {
        self.tape
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether `text` was said.
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
