//! Uploads files: small ones in one request, large ones in parts, with bounded memory.
//!
//! The store's own rule for unfinished uploads removes the parts of a process that died.

use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::digest::Digest;
use aod_ports::artifact_store::{StoreError, Stored};
use bytes::Bytes;
use object_store::{Error, MultipartUpload, ObjectStoreExt as _, PutMode};
use tokio::task::JoinSet;

use super::{Remote, object_path};
use crate::error::{from_object_store, from_put};
use crate::spool::{Spooled, blocking};

/// Files below this size, in bytes, are sent in one request, which fails if the object exists.
const SINGLE_BYTES_END: u64 = 8 * MIB;

/// Size of a part, in bytes: the minimum of S3.
const PART_BYTES_MIN: u64 = 5 * MIB;

/// Maximum number of parts of one object in S3.
const PARTS_MAX: u64 = 10_000;

/// Maximum number of attempts to send a file from its beginning: a restarted server may have lost
/// earlier parts. The client itself retries after shorter failures.
const ATTEMPTS_MAX: usize = 3;

/// Maximum number of remembered damaged objects; puts do not repair further ones.
const DAMAGED_MAX: usize = 10_000;

const MIB: u64 = 1024 * 1024;

/// Objects whose bytes do not match their name.
#[derive(Debug, Default)]
pub(super) struct Damaged(Mutex<HashSet<Digest>>);

impl Damaged {
    pub(super) fn insert(&self, digest: Digest) {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() < DAMAGED_MAX {
            digests.insert(digest);
        }
    }

    pub(super) fn contains(&self, digest: Digest) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&digest)
    }

    fn remove(&self, digest: Digest) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&digest);
    }
}

/// The existing object of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Whole,
    /// Another size, or damaged at an earlier read.
    Damaged,
}

impl Remote {
    /// Sends a file, unless the store has it. The file is durable after the return.
    pub(super) async fn send(&self, spooled: &Spooled) -> Result<(), StoreError> {
        let Stored { digest, size_bytes } = spooled.stored;
        let path = spooled.path.clone();
        let opened = blocking(move || File::open(path)).await;
        let file = Arc::new(opened.map_err(|error| StoreError::Source {
            source: error.into(),
        })?);
        let mut attempt = 1;
        loop {
            let sent = if size_bytes < SINGLE_BYTES_END {
                self.send_whole(Arc::clone(&file), spooled.stored).await
            } else {
                self.send_large(Arc::clone(&file), spooled.stored).await
            };
            match sent {
                Ok(()) => {
                    self.damaged.remove(digest);
                    return Ok(());
                }
                Err(error @ StoreError::Unavailable { .. }) if attempt < ATTEMPTS_MAX => {
                    tracing::info!(%digest, %error, "the upload of a file restarts from its beginning");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores the empty artifact and reads it back.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let digest = Digest::of([]);
        self.put_bytes(
            Stored {
                digest,
                size_bytes: 0,
            },
            Bytes::new(),
        )
        .await?;
        let got = self.store.get(&object_path(digest)).await;
        let got = got.map_err(|error| from_object_store(&self.place, digest, error))?;
        match got.meta.size {
            0 => Ok(()),
            size => Err(StoreError::Corrupt {
                digest,
                found: format!("the object has {size} bytes, expected 0"),
            }),
        }
    }

    async fn send_whole(&self, file: Arc<File>, stored: Stored) -> Result<(), StoreError> {
        let bytes = self.read(file, 0, stored.size_bytes).await?;
        self.put_bytes(stored, bytes).await
    }

    /// Puts bytes, and overwrites an object that has another size or is known to be damaged.
    async fn put_bytes(&self, stored: Stored, bytes: Bytes) -> Result<(), StoreError> {
        let path = object_path(stored.digest);
        let sort = |error| from_put(&self.place, stored.digest, error);
        let mut is_damaged = self.damaged.contains(stored.digest);
        loop {
            if is_damaged {
                let put = self.store.put(&path, bytes.clone().into()).await;
                put.map_err(sort)?;
                if self.outlast(stored.digest).await?.is_some() {
                    return Ok(());
                }
            }
            let create = PutMode::Create.into();
            let put = self.store.put_opts(&path, bytes.clone().into(), create);
            match put.await {
                Ok(_) => return Ok(()),
                Err(Error::AlreadyExists { .. }) => match self.found(stored).await? {
                    Found::Whole => return Ok(()),
                    Found::Damaged => is_damaged = true,
                    // The object was deleted meanwhile.
                    Found::Nothing => (),
                },
                Err(error) => return Err(sort(error)),
            }
        }
    }

    async fn send_large(&self, file: Arc<File>, stored: Stored) -> Result<(), StoreError> {
        let found = if self.damaged.contains(stored.digest) {
            Found::Damaged
        } else {
            self.found(stored).await?
        };
        if found == Found::Whole {
            return Ok(());
        }
        self.upload(Arc::clone(&file), stored).await?;
        // A collector could be about to delete the overwritten object.
        while found == Found::Damaged && self.outlast(stored.digest).await?.is_none() {
            self.upload(Arc::clone(&file), stored).await?;
        }
        Ok(())
    }

    async fn upload(&self, file: Arc<File>, stored: Stored) -> Result<(), StoreError> {
        let sort = |error| from_put(&self.place, stored.digest, error);
        let path = object_path(stored.digest);
        let mut upload = self.store.put_multipart(&path).await.map_err(sort)?;
        let mut parts = JoinSet::new();
        let sent = self
            .send_parts(&mut *upload, &mut parts, file, stored)
            .await;
        // Wait for parts in progress, or the store could keep them after the abort.
        while parts.join_next().await.is_some() {}
        let sent = match sent {
            Ok(()) => upload.complete().await.map(|_| ()).map_err(sort),
            Err(error) => Err(error),
        };
        if sent.is_err()
            && let Err(error) = upload.abort().await
        {
            tracing::warn!(digest = %stored.digest, %error, "a failed upload cannot be aborted");
        }
        sent
    }

    async fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        parts: &mut JoinSet<Result<(), Error>>,
        file: Arc<File>,
        stored: Stored,
    ) -> Result<(), StoreError> {
        let sort = |error| from_put(&self.place, stored.digest, error);
        let ended = |part: Result<_, _>| match part {
            Ok(sent) => Result::map_err(sent, sort),
            Err(error) => std::panic::resume_unwind(tokio::task::JoinError::into_panic(error)),
        };
        let part_bytes = part_bytes(stored.size_bytes);
        let mut offset = 0;
        while offset < stored.size_bytes {
            let count = part_bytes.min(stored.size_bytes - offset);
            let bytes = self.read(Arc::clone(&file), offset, count).await?;
            parts.spawn(upload.put_part(bytes.into()));
            offset += count;
            while let Some(part) = parts.try_join_next() {
                ended(part)?;
            }
        }
        while let Some(part) = parts.join_next().await {
            ended(part)?;
        }
        Ok(())
    }

    /// The existing object of this name; renews an intact one, so that events may name it.
    async fn found(&self, stored: Stored) -> Result<Found, StoreError> {
        Ok(match self.renewed(stored.digest).await? {
            None => Found::Nothing,
            Some(size_bytes) if size_bytes == stored.size_bytes => Found::Whole,
            Some(_) => Found::Damaged,
        })
    }

    async fn read(&self, file: Arc<File>, offset: u64, count: u64) -> Result<Bytes, StoreError> {
        let read = self.upload_memory.read(file, offset, count).await;
        read.map_err(|error| StoreError::from_io(&self.cache.place(), error))
    }
}

/// Size of the parts of a file, in bytes: equal except for the last one.
fn part_bytes(size_bytes: u64) -> u64 {
    size_bytes
        .div_ceil(PARTS_MAX)
        .next_multiple_of(MIB)
        .max(PART_BYTES_MIN)
}
