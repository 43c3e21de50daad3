//! The artifact store: in memory, shared; each program's way to it may fail.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_ports::BoxError;
use aod_ports::artifact_store::{ArtifactStore, Content, Incoming, LocalFile, StoreError, Stored};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::link::Link;

/// One operation in so many finds the store not answering.
const UNAVAILABLE_ONE_IN: u64 = 150;

/// One file in so many comes or goes slowly, and how slowly, in milliseconds.
const HANGS_ONE_IN: u64 = 100;
const HANG_MILLISECONDS_MAX: u64 = 20_000;

/// What is stored. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Arc<Mutex<BTreeMap<Digest, Bytes>>>);

impl Objects {
    pub(crate) fn get(&self, digest: Digest) -> Option<Bytes> {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.get(&digest).cloned()
    }

    pub(crate) fn put(&self, bytes: Bytes) -> Stored {
        let stored = Stored {
            digest: Digest::of(&bytes),
            size_bytes: bytes.len() as u64,
        };
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(stored.digest, bytes);
        stored
    }
}

#[derive(Debug)]
pub(crate) struct SimulatedStore {
    pub(crate) objects: Objects,
    pub(crate) link: Link,
    /// Where files lie that are asked for as files.
    pub(crate) directory: PathBuf,
}

impl SimulatedStore {
    async fn reach(&self, what: &'static str) -> Result<(), StoreError> {
        let world = &self.link.world;
        world.count(what);
        let is_away = world.strikes("store away", UNAVAILABLE_ONE_IN);
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

    /// Now and then the bytes come so slowly that whoever waits for them may have given up.
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

    async fn check(&self) -> Result<(), StoreError> {
        self.reach("check").await
    }

    fn spool_directory(&self) -> &Path {
        &self.directory
    }
}

#[cfg(test)]
mod tests;
