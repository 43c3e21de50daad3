//! An object store with a spool and a cache: a put sends and caches the file; a get fetches the artifact
//! once, from another node that has it or from the store, verifies and caches it.

mod download;
mod memory;
mod neighbors;
mod removal;
mod upload;

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_ports::artifact_store::{
    ArtifactStore, Content, Incoming, Limited, Listing, LocalFile, RENEWED_AFTER, Removal,
    StoreError, Stored,
};
use aod_ports::peers::Peers;
use async_trait::async_trait;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::neighbors::Neighbors;
use crate::cache::{Cache, Pinned, Reservation};
use crate::error::from_object_store;
use crate::shelf::{check_size, relative};
use crate::spool::{self, Spool, Spooled, blocking};
use crate::{CacheConfig, OpenError, stream};

/// Maximum number of concurrent fetches of large files, each with up to 4 MiB in flight; more are not
/// faster on one link.
const LARGE_FETCHES_MAX: usize = 4;

/// Maximum number of concurrent fetches of small files, which do not wait for large ones.
const SMALL_FETCHES_MAX: usize = 16;

/// Minimum size of a large file, in bytes.
const LARGE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// Artifacts in an object store.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    remote: Arc<Remote>,
    /// The underlying store, if it has a size limit.
    limited: Option<Arc<dyn Limited>>,
    neighbors: Option<Arc<Neighbors>>,
    /// Serves other nodes.
    serving: Option<JoinHandle<()>>,
}

/// State that the store shares with fetches, which outlive their first caller.
#[derive(Debug)]
struct Remote {
    store: Arc<dyn ObjectStore>,
    /// A client of the same store that repeats no request.
    removing: Arc<dyn ObjectStore>,
    /// Age from which on a put renews an existing artifact.
    renewed_after: Duration,
    /// Name of the store in errors.
    place: String,
    spool: Arc<Spool>,
    cache: Arc<Cache>,
    upload_memory: memory::Memory,
    /// Digests of damaged objects, which the next put overwrites.
    damaged: upload::Damaged,
    large_fetches: Semaphore,
    small_fetches: Semaphore,
    fetches: Mutex<HashMap<Digest, Fetch>>,
}

/// A fetch in progress, shared by its callers.
type Fetch = Shared<BoxFuture<'static, Result<Arc<Pinned>, Arc<StoreError>>>>;

impl RemoteStore {
    /// `removing` is a client of the same store that repeats no request.
    pub(crate) fn open(
        store: Arc<dyn ObjectStore>,
        removing: Arc<dyn ObjectStore>,
        limited: Option<Arc<dyn Limited>>,
        config: &CacheConfig,
    ) -> Result<Self, OpenError> {
        let directory = &config.directory;
        let cache = Cache::open(directory, config.bytes_max)?;
        let spool =
            Spool::open(&directory.join("spool")).map_err(|source| OpenError::Directory {
                path: directory.clone(),
                source,
            })?;
        let remote = Remote {
            place: store.to_string(),
            store,
            removing,
            renewed_after: RENEWED_AFTER,
            spool: Arc::new(spool),
            cache,
            upload_memory: memory::Memory::default(),
            damaged: upload::Damaged::default(),
            large_fetches: Semaphore::new(LARGE_FETCHES_MAX),
            small_fetches: Semaphore::new(SMALL_FETCHES_MAX),
            fetches: Mutex::default(),
        };
        Ok(Self {
            remote: Arc::new(remote),
            limited,
            neighbors: None,
            serving: None,
        })
    }

    /// The same store and cache, which fetches from `peers`, and serves them as long as the value exists.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub(crate) fn among(&self, peers: Arc<dyn Peers>) -> Self {
        let neighbors = Neighbors::new(peers, Arc::clone(&self.remote.cache));
        Self {
            remote: Arc::clone(&self.remote),
            limited: self.limited.clone(),
            neighbors: Some(Arc::clone(&neighbors)),
            serving: Some(tokio::spawn(neighbors.serve())),
        }
    }

    /// Sends a file, then caches it: the copy saves a later get, but never the put.
    async fn store(&self, spooled: Spooled) -> Result<Stored, StoreError> {
        self.remote.send(&spooled).await?;
        let remote = Arc::clone(&self.remote);
        blocking(move || {
            let kept = remote.cache.insert(&spooled, None);
            match kept {
                // The caller's file is on another file system.
                Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                    spool::discard(&spooled)?;
                }
                kept => {
                    drop(kept.map_err(|error| StoreError::from_io(&remote.cache.place(), error))?);
                }
            }
            Ok(spooled.stored)
        })
        .await
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

#[async_trait]
impl ArtifactStore for RemoteStore {
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError> {
        let spooled = self.remote.spool.write_stream(bytes).await?;
        self.store(spooled).await
    }

    async fn put_reader(&self, mut reader: Box<dyn Read + Send>) -> Result<Stored, StoreError> {
        let spool = Arc::clone(&self.remote.spool);
        let spooled = blocking(move || spool.write_reader(&mut reader)).await?;
        self.store(spooled).await
    }

    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError> {
        let path: PathBuf = path.to_owned();
        let given = blocking(move || spool::adopt(&path, known)).await?;
        self.store(given).await
    }

    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        match self.remote.cached(digest).await? {
            Some(pinned) => {
                let path = pinned.path.clone();
                let place = self.remote.cache.place();
                let opened = blocking(move || std::fs::File::open(path)).await;
                let file = opened.map_err(|error| StoreError::from_io(&place, error))?;
                stream::of_file(file, place, pinned.stored, range.as_ref(), pinned)
            }
            None => self.remote.stream(digest, range).await,
        }
    }

    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError> {
        if let Some(pinned) = self.remote.cached(digest).await? {
            check_size(pinned.stored, size_bytes)?;
            return Ok(LocalFile::new(pinned.path.clone(), pinned.stored, pinned));
        }
        let fetched = self.remote.fetch(digest, self.neighbors.as_ref()).await;
        let pinned = fetched.map_err(|error| again(&error))?;
        check_size(pinned.stored, size_bytes)?;
        let file = LocalFile::new(pinned.path.clone(), pinned.stored, pinned);
        Ok(file.fetched())
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.remote.size(digest).await
    }

    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.remote.renewed(digest).await
    }

    async fn renew_intact(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        if self.remote.damaged.contains(digest) {
            return Ok(None);
        }
        self.remote.renewed(digest).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.remote.list().await
    }

    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError> {
        self.remote.remove(digest, before).await
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        let Some(limited) = &self.limited else {
            return Ok(None);
        };
        let space = limited.space().await;
        space.map(Some).map_err(|source| StoreError::Unavailable {
            place: self.remote.place.clone(),
            source,
        })
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.remote.check().await
    }

    fn spool_directory(&self) -> &Path {
        self.remote.spool.directory()
    }
}

impl Remote {
    async fn cached(&self, digest: Digest) -> Result<Option<Pinned>, StoreError> {
        let cache = Arc::clone(&self.cache);
        blocking(move || cache.get(digest)).await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        match self.store.head(&object_path(digest)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(from_object_store(&self.place, digest, error)),
        }
    }

    /// Reads without caching, for callers that pass the bytes on.
    async fn stream(
        self: &Arc<Self>,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        let mut options = GetOptions::default();
        if let Some(range) = &range {
            // The store's own error for a range beyond the end does not contain the size.
            let size_bytes = self
                .size(digest)
                .await?
                .ok_or(StoreError::Missing { digest })?;
            let within = stream::resolve(Stored { digest, size_bytes }, Some(range))?;
            options.range = Some(GetRange::Bounded(within));
        }
        let remote = Arc::clone(self);
        let sort = move |error| from_object_store(&remote.place, digest, error);
        let got = self
            .store
            .get_opts(&object_path(digest), options)
            .await
            .map_err(&sort)?;
        let (size_bytes, within) = (got.meta.size, got.range.clone());
        let bytes = got
            .into_stream()
            .map(move |piece| piece.map_err(&sort))
            .boxed();
        let bytes = match range {
            Some(_) => bytes,
            None => self.noticing(digest, stream::verified(bytes, digest)),
        };
        Ok(Content {
            size_bytes,
            range: within,
            bytes,
        })
    }

    /// The current fetch of `digest`, or a new one. It continues without callers.
    fn fetch(self: &Arc<Self>, digest: Digest, neighbors: Option<&Arc<Neighbors>>) -> Fetch {
        let begin = || {
            let (remote, neighbors) = (Arc::clone(self), neighbors.cloned());
            let task = tokio::spawn(async move {
                let outcome = remote.fetch_alone(digest, neighbors.as_ref()).await;
                remote.lock_fetches().remove(&digest);
                outcome.map(Arc::new).map_err(Arc::new)
            });
            task.map(|ended| ended.expect("a fetch does not panic"))
                .boxed()
                .shared()
        };
        self.lock_fetches()
            .entry(digest)
            .or_insert_with(begin)
            .clone()
    }

    fn lock_fetches(&self) -> MutexGuard<'_, HashMap<Digest, Fetch>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch_alone(
        self: &Arc<Self>,
        digest: Digest,
        neighbors: Option<&Arc<Neighbors>>,
    ) -> Result<Pinned, StoreError> {
        // A caller that came when the last fetch ended could not share it.
        if let Some(pinned) = self.cached(digest).await? {
            return Ok(pinned);
        }
        let size_bytes = self
            .size(digest)
            .await?
            .ok_or(StoreError::Missing { digest })?;
        let slots = match size_bytes {
            LARGE_BYTES_MIN.. => &self.large_fetches,
            _ => &self.small_fetches,
        };
        let _slot = slots
            .acquire()
            .await
            .expect("the semaphores are never closed");
        let cache = Arc::clone(&self.cache);
        let reservation: Reservation = blocking(move || cache.reserve(size_bytes)).await;
        let (spooled, _turn) = self.obtain(digest, size_bytes, neighbors).await?;
        let cache = Arc::clone(&self.cache);
        blocking(move || {
            let inserted = cache.insert(&spooled, Some(reservation));
            inserted.map_err(|error| StoreError::from_io(&cache.place(), error))
        })
        .await
    }
}

/// The path of an artifact in the store.
fn object_path(digest: Digest) -> object_store::path::Path {
    relative(digest).into()
}

/// A copy of a shared fetch's error for one caller.
fn again(error: &Arc<StoreError>) -> StoreError {
    let source = || Box::new(SharedError(Arc::clone(error)));
    match &**error {
        StoreError::Missing { digest } => StoreError::Missing { digest: *digest },
        StoreError::Corrupt { digest, found } => StoreError::Corrupt {
            digest: *digest,
            found: found.clone(),
        },
        &StoreError::OutOfRange {
            digest,
            size_bytes,
            start,
            end,
        } => StoreError::OutOfRange {
            digest,
            size_bytes,
            start,
            end,
        },
        StoreError::Source { .. } => StoreError::Source { source: source() },
        StoreError::NoRoom { place, .. } => StoreError::NoRoom {
            place: place.clone(),
            source: source(),
        },
        StoreError::Refused { place, .. } => StoreError::Refused {
            place: place.clone(),
            source: source(),
        },
        StoreError::Unavailable { place, .. } => StoreError::Unavailable {
            place: place.clone(),
            source: source(),
        },
    }
}

/// The cause of an error that several callers received.
#[derive(Debug)]
struct SharedError(Arc<StoreError>);

impl SharedError {
    fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

impl std::fmt::Display for SharedError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cause() {
            Some(cause) => std::fmt::Display::fmt(cause, formatter),
            None => formatter.write_str("the shared fetch failed"),
        }
    }
}

impl std::error::Error for SharedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().and_then(std::error::Error::source)
    }
}
