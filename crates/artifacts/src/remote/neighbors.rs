//! Fetches artifacts from other nodes instead of from the store, and serves other nodes from the cache.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::id::NodeId;
use aod_domain::peers::{
    Answer, PIECE_BYTES_MAX, Patience, SHARED_BYTES_MIN, Source, Standing, source,
};
use aod_ports::BoxError;
use aod_ports::artifact_store::StoreError;
use aod_ports::peers::{Holder, Peers, Piece};
use aod_services::error::chain;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::Remote;
use crate::cache::Cache;
use crate::shelf::describe;
use crate::spool::{Spooled, blocking};

/// Maximum number of pieces in flight for one artifact: 2 MiB hide a round trip of 20 ms on a link of 100 MB/s.
const PIECES_IN_FLIGHT: usize = 4;

/// Pause before the next request to a node that is not ready.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a request may take to read the cache. The first request for a file of an earlier process hashes the whole
/// file; meanwhile other requests wait.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of reads of the cache for other nodes, with those that outlive their requests.
const READS_MAX: usize = 8;

/// The other nodes, and what this node reports to them.
#[derive(Debug)]
pub(super) struct Neighbors {
    peers: Arc<dyn Peers>,
    cache: Arc<Cache>,
    ongoing: Mutex<HashMap<Digest, Ongoing>>,
    reads: Arc<Semaphore>,
}

/// A fetch of this node, as other nodes may know it.
#[derive(Debug)]
enum Ongoing {
    /// The lowest id of the nodes that have asked for the same artifact meanwhile.
    Asking { rival: Option<NodeId> },
    /// From the store, with the number of received bytes.
    Fetching(Arc<AtomicU64>),
}

/// A fetch that other nodes know until the value is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    neighbors: Arc<Neighbors>,
    digest: Digest,
}

/// Why a fetch from a node failed.
enum Failed {
    Node(BoxError),
    /// The spool: another node does not help.
    Spool(StoreError),
}

impl Remote {
    /// Fetches a whole artifact of `size_bytes`, from another node or from the store. After a fetch from the store,
    /// other nodes wait as long as the returned turn exists.
    pub(super) async fn obtain(
        self: &Arc<Self>,
        digest: Digest,
        size_bytes: u64,
        neighbors: Option<&Arc<Neighbors>>,
    ) -> Result<(Spooled, Option<Turn>), StoreError> {
        let received: Arc<AtomicU64> = Arc::default();
        let is_shared = |_: &&Arc<Neighbors>| size_bytes >= SHARED_BYTES_MIN;
        let Some(neighbors) = neighbors.filter(is_shared) else {
            let spooled = self.download(digest, size_bytes, &received).await?;
            return Ok((spooled, None));
        };
        let mut failed = BTreeSet::new();
        let turn = loop {
            let turn = neighbors.begin(digest);
            let Source::Node(node) = turn.choose(&failed, &received).await else {
                break turn;
            };
            drop(turn);
            let fetched = self.fetch_from(&*neighbors.peers, node, digest, size_bytes);
            match fetched.await {
                Ok(spooled) => {
                    tracing::debug!(%digest, %node, size_bytes, "fetched an artifact from a node");
                    return Ok((spooled, None));
                }
                Err(Failed::Spool(error)) => return Err(error),
                Err(Failed::Node(error)) => {
                    let error = chain(&*error);
                    tracing::info!(%digest, %node, error, "cannot fetch an artifact from a node");
                    failed.insert(node);
                }
            }
        };
        let spooled = self.download(digest, size_bytes, &received).await?;
        Ok((spooled, Some(turn)))
    }

    /// Fetches from `node`, after it has the artifact.
    async fn fetch_from(
        &self,
        peers: &dyn Peers,
        node: NodeId,
        digest: Digest,
        size_bytes: u64,
    ) -> Result<Spooled, Failed> {
        let piece = |start: u64| {
            let end = size_bytes.min(start + PIECE_BYTES_MAX);
            wait_for_piece(peers, node, digest, size_bytes, start..end)
        };
        let mut writer = self.spool.writer();
        let first = piece(0).await.map_err(Failed::Node)?;
        writer.write(first).await.map_err(Failed::Spool)?;
        let rest = (1..size_bytes.div_ceil(PIECE_BYTES_MAX)).map(|number| number * PIECE_BYTES_MAX);
        let mut pieces = stream::iter(rest).map(piece).buffered(PIECES_IN_FLIGHT);
        while let Some(bytes) = pieces.try_next().await.map_err(Failed::Node)? {
            writer.write(bytes).await.map_err(Failed::Spool)?;
        }
        let spooled = writer.finish().await.map_err(Failed::Spool)?;
        if spooled.stored.digest == digest {
            return Ok(spooled);
        }
        Err(Failed::Node(describe(spooled.stored).into()))
    }
}

/// One piece; waits for a node that makes progress.
async fn wait_for_piece(
    peers: &dyn Peers,
    node: NodeId,
    digest: Digest,
    size_bytes: u64,
    range: Range<u64>,
) -> Result<Bytes, BoxError> {
    let begun = Instant::now();
    let mut patience = Patience::begin(Duration::ZERO);
    loop {
        match peers.piece(node, digest, range.clone()).await? {
            Piece::Bytes(bytes) if bytes.len() as u64 == range.end - range.start => {
                return Ok(bytes);
            }
            Piece::Bytes(bytes) => {
                let found = bytes.len();
                return Err(format!("a piece has {found} bytes, expected {range:?}").into());
            }
            Piece::Missing => return Err("the node does not have the artifact".into()),
            // No node has fetched more than the whole artifact, so that the wait has an end.
            Piece::Wait { fetched_bytes }
                if patience.lasts(begun.elapsed(), fetched_bytes.min(size_bytes)) =>
            {
                sleep(PAUSE).await;
            }
            Piece::Wait { .. } => return Err("the node makes no progress".into()),
        }
    }
}

impl Neighbors {
    pub(super) fn new(peers: Arc<dyn Peers>, cache: Arc<Cache>) -> Arc<Self> {
        let ongoing = Mutex::default();
        Arc::new(Self {
            peers,
            cache,
            ongoing,
            reads: Arc::new(Semaphore::new(READS_MAX)),
        })
    }

    /// Serves other nodes until the future is dropped.
    pub(super) async fn serve(self: Arc<Self>) {
        let peers = Arc::clone(&self.peers);
        peers.serve(self).await;
    }

    fn begin(self: &Arc<Self>, digest: Digest) -> Turn {
        self.lock().insert(digest, Ongoing::Asking { rival: None });
        Turn {
            neighbors: Arc::clone(self),
            digest,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Ongoing>> {
        self.ongoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Holder for Neighbors {
    fn standing(&self, digest: Digest, asker: NodeId) -> Option<Standing> {
        match self.lock().get_mut(&digest) {
            Some(Ongoing::Fetching(_)) => Some(Standing::Fetching),
            Some(Ongoing::Asking { rival }) => {
                *rival = Some(rival.map_or(asker, |lowest| lowest.min(asker)));
                Some(Standing::Asking)
            }
            None => self.cache.holds(digest).then_some(Standing::Whole),
        }
    }

    async fn piece(&self, digest: Digest, range: Range<u64>) -> Piece {
        let fetched_bytes = match self.lock().get(&digest) {
            Some(Ongoing::Fetching(received)) => Some(received.load(Ordering::Relaxed)),
            Some(Ongoing::Asking { .. }) => Some(0),
            None => None,
        };
        if let Some(fetched_bytes) = fetched_bytes {
            return Piece::Wait { fetched_bytes };
        }
        let Ok(place) = Arc::clone(&self.reads).try_acquire_owned() else {
            return Piece::Wait { fetched_bytes: 0 };
        };
        let cache = Arc::clone(&self.cache);
        let reading = blocking(move || {
            let _place = place;
            read(&cache, digest, range)
        });
        match timeout(READ_WITHIN, reading).await {
            Ok(Ok(Some(bytes))) => Piece::Bytes(bytes),
            Ok(Ok(None)) => Piece::Missing,
            Ok(Err(error)) => {
                tracing::warn!(%digest, error = chain(&error), "cannot serve an artifact to a node");
                Piece::Missing
            }
            Err(_) => Piece::Wait { fetched_bytes: 0 },
        }
    }
}

impl Turn {
    /// Asks the other nodes. If the choice is the store, other nodes wait for this one from now on.
    async fn choose(&self, failed: &BTreeSet<NodeId>, received: &Arc<AtomicU64>) -> Source {
        let (peers, digest) = (&self.neighbors.peers, self.digest);
        let me = peers.me();
        let is_enough = |answers: &[Answer]| source(me, answers, failed, false).is_some();
        let asked = peers.ask(digest, &is_enough).await;
        let mut answers = asked.unwrap_or_else(|error| {
            let error = chain(&*error);
            tracing::warn!(%digest, error, "cannot ask other nodes for an artifact");
            Vec::new()
        });
        let mut ongoing = self.neighbors.lock();
        if let Some(&Ongoing::Asking { rival: Some(node) }) = ongoing.get(&digest) {
            let standing = Standing::Asking;
            answers.push(Answer { node, standing });
        }
        let chosen = source(me, &answers, failed, true).unwrap_or(Source::Store);
        if chosen == Source::Store {
            ongoing.insert(digest, Ongoing::Fetching(Arc::clone(received)));
        }
        chosen
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.neighbors.lock().remove(&self.digest);
    }
}

/// A part of a cached file, none if the file or a byte of the range does not exist. Blocks.
fn read(
    cache: &Arc<Cache>,
    digest: Digest,
    range: Range<u64>,
) -> Result<Option<Bytes>, StoreError> {
    let Some(pinned) = cache.get(digest)? else {
        return Ok(None);
    };
    if range.is_empty() || range.end > pinned.stored.size_bytes {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    File::open(&pinned.path)
        .and_then(|file| file.read_exact_at(&mut bytes, range.start))
        .map_err(|error| StoreError::from_io(&cache.place(), error))?;
    Ok(Some(bytes.into()))
}

#[cfg(test)]
mod tests;
