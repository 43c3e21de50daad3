//! The artifact store: in memory and shared; each program's connection to it may fail.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_ports::BoxError;
use aod_ports::artifact_store::{
    ArtifactStore, Content, Incoming, Listed, Listing, LocalFile, Removal, StoreError, Stored,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::broker::Broker;
use crate::clock;
use crate::link::Link;
use crate::world::World;

/// One operation in this number finds the store unavailable.
const UNAVAILABLE_ONE_IN: u64 = 150;

/// One transfer in this number is slow; then its delay, in milliseconds.
const HANGS_ONE_IN: u64 = 100;
const HANG_MILLISECONDS_MAX: u64 = 20_000;

/// The stored artifacts. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    world: World,
    /// With the time of the last put or renewal.
    objects: Arc<Mutex<BTreeMap<Digest, (Bytes, Timestamp)>>>,
}

impl Objects {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            objects: Arc::default(),
        }
    }

    pub(crate) fn get(&self, digest: Digest) -> Option<Bytes> {
        self.lock().get(&digest).map(|(bytes, _)| bytes.clone())
    }

    pub(crate) fn put(&self, bytes: Bytes) -> Stored {
        let stored = Stored {
            digest: Digest::of(&bytes),
            size_bytes: bytes.len() as u64,
        };
        self.lock().insert(stored.digest, (bytes, self.now()));
        stored
    }

    fn renew(&self, digest: Digest) -> Option<u64> {
        let now = self.now();
        let mut objects = self.lock();
        let (bytes, renewed_at) = objects.get_mut(&digest)?;
        *renewed_at = now;
        Some(bytes.len() as u64)
    }

    fn list(&self) -> Vec<Listed> {
        let listed = |(&digest, (bytes, renewed_at)): (&Digest, &(Bytes, Timestamp))| Listed {
            digest,
            size_bytes: bytes.len() as u64,
            renewed_at: *renewed_at,
        };
        self.lock().iter().map(listed).collect()
    }

    fn remove(&self, digest: Digest, before: Timestamp) -> Removal {
        let mut objects = self.lock();
        match objects.get(&digest) {
            None => Removal::Missing,
            Some((_, renewed_at)) if *renewed_at >= before => Removal::Young,
            Some(_) => {
                objects.remove(&digest);
                Removal::Removed
            }
        }
    }

    /// The store's own clock, which is exact.
    fn now(&self) -> Timestamp {
        clock::after(self.world.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, (Bytes, Timestamp)>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct SimulatedStore {
    pub(crate) objects: Objects,
    /// Checks every removal.
    pub(crate) broker: Broker,
    pub(crate) link: Link,
    /// Directory of artifacts that are requested as files.
    pub(crate) directory: PathBuf,
}

impl SimulatedStore {
    async fn reach(&self, what: &'static str) -> Result<(), StoreError> {
        let world = &self.link.world;
        world.count(what);
        let is_away = world.strikes("store unavailable", UNAVAILABLE_ONE_IN);
        if self.link.patiently().await.is_err() || is_away {
            return Err(StoreError::Unavailable {
                place: "the store".into(),
                source: "no answer".into(),
            });
        }
        Ok(())
    }

    async fn put(&self, bytes: Bytes) -> Result<Stored, StoreError> {
        self.reach("put").await?;
        self.hang("put hung").await;
        Ok(self.objects.put(bytes))
    }

    /// Sometimes the bytes arrive so slowly that the caller may have stopped waiting.
    async fn hang(&self, kind: &'static str) {
        let world = &self.link.world;
        if world.strikes(kind, HANGS_ONE_IN) {
            let milliseconds = world.below(HANG_MILLISECONDS_MAX);
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
    }

    fn find(&self, digest: Digest) -> Result<Bytes, StoreError> {
        self.objects
            .get(digest)
            .ok_or(StoreError::Missing { digest })
    }
}

fn unreadable(source: impl Into<BoxError>) -> StoreError {
    StoreError::Source {
        source: source.into(),
    }
}

#[async_trait]
impl ArtifactStore for SimulatedStore {
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError> {
        let pieces: Vec<Bytes> = bytes.try_collect().await.map_err(unreadable)?;
        self.put(pieces.concat().into()).await
    }

    async fn put_reader(&self, mut reader: Box<dyn Read + Send>) -> Result<Stored, StoreError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(unreadable)?;
        self.put(bytes.into()).await
    }

    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError> {
        let bytes = std::fs::read(path).map_err(unreadable)?;
        if known.is_some_and(|known| known.size_bytes != bytes.len() as u64) {
            return Err(unreadable("the file has another size"));
        }
        let stored = self.put(bytes.into()).await?;
        std::fs::remove_file(path).map_err(unreadable)?;
        Ok(stored)
    }

    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        self.reach("get").await?;
        let bytes = self.find(digest)?;
        let size_bytes = bytes.len() as u64;
        let range = match range {
            None => 0..size_bytes,
            Some(asked) if asked.start < asked.end.min(size_bytes) => {
                asked.start..asked.end.min(size_bytes)
            }
            Some(Range { start, end }) => {
                return Err(StoreError::OutOfRange {
                    digest,
                    size_bytes,
                    start,
                    end,
                });
            }
        };
        let index = |place: u64| usize::try_from(place).expect("simulated artifacts are small");
        let piece = bytes.slice(index(range.start)..index(range.end));
        Ok(Content {
            size_bytes,
            range,
            bytes: stream::iter([Ok(piece)]).boxed(),
        })
    }

    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError> {
        self.reach("get").await?;
        self.hang("get hung").await;
        let bytes = self.find(digest)?;
        let found_bytes = bytes.len() as u64;
        if found_bytes != size_bytes {
            let found = format!("it has {found_bytes} bytes");
            return Err(StoreError::Corrupt { digest, found });
        }
        let path = self.directory.join(digest.to_string().replace(':', "-"));
        if !path.exists() {
            std::fs::write(&path, &bytes).map_err(unreadable)?;
            let read_only = std::fs::Permissions::from_mode(0o444);
            std::fs::set_permissions(&path, read_only).map_err(unreadable)?;
        }
        Ok(LocalFile::new(path, Stored { digest, size_bytes }, ()))
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.reach("size").await?;
        Ok(self.objects.get(digest).map(|bytes| bytes.len() as u64))
    }

    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.reach("renew").await?;
        Ok(self.objects.renew(digest))
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.reach("list").await?;
        Ok(stream::iter(self.objects.list().into_iter().map(Ok)).boxed())
    }

    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError> {
        self.reach("remove artifact").await?;
        let removal = self.objects.remove(digest, before);
        if removal == Removal::Removed {
            self.broker.removed(digest);
        }
        Ok(removal)
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        Ok(None)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.reach("check").await
    }

    fn spool_directory(&self) -> &Path {
        &self.directory
    }
}

#[cfg(test)]
mod tests;
