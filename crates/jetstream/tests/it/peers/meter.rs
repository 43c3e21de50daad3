//! A relay in front of a server, which counts the bytes of the server and can hold them back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Answers below this size are not held back: sizes of artifacts.
const HELD_BYTES_MIN: usize = 4 * 1024;

pub(crate) struct Meter {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    allowed: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Meter {
    /// Passes on connections to `server`.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Arc::<AtomicU64>::default();
        let (allowed, limit) = watch::channel(u64::MAX);
        let counted = Arc::clone(&sent);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(server).await.unwrap();
                tokio::spawn(pass_on(near, far, Arc::clone(&counted), limit.clone()));
            }
        });
        Self {
            address,
            sent,
            allowed,
            task,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that clients have received from the server.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Holds back what the server sends beyond `bytes`, except for small answers.
    pub(crate) fn allow(&self, bytes: u64) {
        self.allowed.send_replace(bytes);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends with either side.
async fn pass_on(
    near: TcpStream,
    far: TcpStream,
    sent: Arc<AtomicU64>,
    mut limit: watch::Receiver<u64>,
) {
    let (mut from_client, mut to_client) = near.into_split();
    let (mut from_server, mut to_server) = far.into_split();
    let requests = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let is_allowed =
                |limit: &u64| count < HELD_BYTES_MIN || sent.load(Ordering::Relaxed) <= *limit;
            if limit.wait_for(is_allowed).await.is_err() {
                return;
            }
            sent.fetch_add(count as u64, Ordering::Relaxed);
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => (),
        () = answers => (),
    }
}
