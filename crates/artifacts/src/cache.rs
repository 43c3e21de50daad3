//! A cache of whole files of a remote store on this host, with a maximum size: evicts the least recently
//! used files first, never files in use.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use aod_domain::digest::Digest;
use aod_ports::artifact_store::{StoreError, Stored};
use aod_services::disk;
use rustix::fs::{FlockOperation, flock};

use crate::OpenError;
use crate::shelf::{Durability, Shelf};
use crate::spool::Spooled;

/// The cache of one process.
#[derive(Debug)]
pub(crate) struct Cache {
    shelf: Shelf,
    bytes_max: u64,
    /// Locked while files are moved in and out, so that index and directory agree.
    index: Mutex<Index>,
    /// Locked as long as the process lives.
    _lock: File,
}

#[derive(Debug, Default)]
struct Index {
    entries: HashMap<Digest, Entry>,
    /// Digests by last use, oldest first.
    by_use: BTreeMap<u64, Digest>,
    /// Number of the last use.
    uses: u64,
    /// Sum of all entries, in bytes.
    size_bytes: u64,
    /// Bytes reserved for incoming files.
    reserved_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    size_bytes: u64,
    last_use: u64,
    /// Number of the first use: pins of a damaged file do not count for its replacement.
    first_use: u64,
    /// Number of pins; a pinned file stays.
    pins: usize,
}

/// A file that stays in the cache as long as this value lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    cache: Arc<Cache>,
    first_use: u64,
    pub(crate) path: PathBuf,
    pub(crate) stored: Stored,
}

/// Space for an incoming file.
#[derive(Debug)]
pub(crate) struct Reservation {
    cache: Arc<Cache>,
    size_bytes: u64,
}

impl Cache {
    /// Opens `directory` with the files of an earlier process, ordered by time of access.
    pub(crate) fn open(directory: &Path, bytes_max: u64) -> Result<Arc<Self>, OpenError> {
        let unusable = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        disk::make_private(directory).map_err(unusable)?;
        let lock = File::create(directory.join("lock")).map_err(unusable)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(OpenError::CacheInUse {
                directory: directory.to_owned(),
            });
        }
        let shelf = Shelf::open(directory, Durability::Cached).map_err(unusable)?;
        let mut found = shelf.scan().map_err(unusable)?;
        found.sort_by_key(|(_, metadata)| metadata.accessed().unwrap_or(SystemTime::UNIX_EPOCH));
        let mut index = Index::default();
        for (digest, metadata) in found {
            index.insert(digest, metadata.len());
        }
        let cache = Self {
            shelf,
            bytes_max,
            index: Mutex::new(index),
            _lock: lock,
        };
        cache.evict(&mut cache.lock());
        Ok(Arc::new(cache))
    }

    /// The verified and pinned file of `digest`, if cached. Removes a damaged file. Blocks.
    pub(crate) fn get(self: &Arc<Self>, digest: Digest) -> Result<Option<Pinned>, StoreError> {
        let Some(pinned) = self.pin(digest) else {
            return Ok(None);
        };
        match self.shelf.verified(digest) {
            Ok(Some((path, _))) => {
                // The time of access keeps the order of use for later processes.
                let now = FileTimes::new().set_accessed(SystemTime::now());
                let _ = File::open(path).and_then(|file| file.set_times(now));
                Ok(Some(pinned))
            }
            Ok(None) | Err(StoreError::Corrupt { .. }) => {
                tracing::warn!(%digest, "a cached file was damaged or missing; it is fetched again");
                self.forget(digest);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the file of `digest` is cached, verified or not.
    pub(crate) fn holds(&self, digest: Digest) -> bool {
        self.lock().entries.contains_key(&digest)
    }

    /// Moves a spool file into its reserved space and pins it. Blocks.
    pub(crate) fn insert(
        self: &Arc<Self>,
        spooled: &Spooled,
        reservation: Option<Reservation>,
    ) -> io::Result<Pinned> {
        let Stored { digest, size_bytes } = spooled.stored;
        drop(reservation);
        let mut index = self.lock();
        self.shelf.install(spooled)?;
        index.insert(digest, size_bytes);
        let pinned = self
            .pin_in(&mut index, digest)
            .expect("the file was just inserted");
        self.evict(&mut index);
        Ok(pinned)
    }

    /// Reserves space for a file before it is fetched, and evicts files that are not pinned. Blocks.
    pub(crate) fn reserve(self: &Arc<Self>, size_bytes: u64) -> Reservation {
        let mut index = self.lock();
        index.reserved_bytes += size_bytes;
        self.evict(&mut index);
        Reservation {
            cache: Arc::clone(self),
            size_bytes,
        }
    }

    /// Removes the file of a deleted artifact, unless it is pinned. Blocks briefly.
    pub(crate) fn drop_unused(&self, digest: Digest) {
        let mut index = self.lock();
        let is_unused = |entry: &Entry| entry.pins == 0;
        if index.entries.get(&digest).is_some_and(is_unused) {
            index.remove(digest);
            if let Err(error) = self.shelf.remove(digest) {
                tracing::warn!(%digest, %error, "a file cannot be removed from the cache");
            }
        }
    }

    pub(crate) fn place(&self) -> String {
        self.shelf.place()
    }

    fn pin(self: &Arc<Self>, digest: Digest) -> Option<Pinned> {
        self.pin_in(&mut self.lock(), digest)
    }

    fn pin_in(self: &Arc<Self>, index: &mut Index, digest: Digest) -> Option<Pinned> {
        let &Entry {
            size_bytes,
            first_use,
            ..
        } = index.touch(digest)?;
        Some(Pinned {
            cache: Arc::clone(self),
            first_use,
            path: self.shelf.path(digest),
            stored: Stored { digest, size_bytes },
        })
    }

    fn forget(&self, digest: Digest) {
        let mut index = self.lock();
        index.remove(digest);
        if let Err(error) = self.shelf.remove(digest) {
            tracing::warn!(%digest, %error, "a damaged file cannot be removed from the cache");
        }
    }

    /// Removes the least recently used files until the limit holds or only pinned files are left.
    fn evict(&self, index: &mut Index) {
        while index.size_bytes.saturating_add(index.reserved_bytes) > self.bytes_max {
            let Some(digest) = index.oldest_unpinned() else {
                return;
            };
            index.remove(digest);
            if let Err(error) = self.shelf.remove(digest) {
                tracing::warn!(%digest, %error, "a file cannot be removed from the cache");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Adds a file; a file that replaces another one keeps its pins.
    fn insert(&mut self, digest: Digest, size_bytes: u64) {
        let last_use = self.next_use();
        let (first_use, pins) = self
            .remove(digest)
            .map_or((last_use, 0), |entry| (entry.first_use, entry.pins));
        self.by_use.insert(last_use, digest);
        self.entries.insert(
            digest,
            Entry {
                size_bytes,
                last_use,
                first_use,
                pins,
            },
        );
        self.size_bytes += size_bytes;
    }

    /// Counts a use and pins the file.
    fn touch(&mut self, digest: Digest) -> Option<&Entry> {
        let last_use = self.next_use();
        let entry = self.entries.get_mut(&digest)?;
        self.by_use.remove(&entry.last_use);
        self.by_use.insert(last_use, digest);
        entry.last_use = last_use;
        entry.pins += 1;
        Some(entry)
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn remove(&mut self, digest: Digest) -> Option<Entry> {
        let entry = self.entries.remove(&digest)?;
        self.by_use.remove(&entry.last_use);
        self.size_bytes -= entry.size_bytes;
        Some(entry)
    }

    fn oldest_unpinned(&self) -> Option<Digest> {
        let unpinned = |digest: &&Digest| {
            self.entries
                .get(digest)
                .is_some_and(|entry| entry.pins == 0)
        };
        self.by_use.values().find(unpinned).copied()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut index = self.cache.lock();
        if let Some(entry) = index.entries.get_mut(&self.stored.digest)
            && entry.first_use == self.first_use
        {
            entry.pins -= 1;
        }
        self.cache.evict(&mut index);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut index = self.cache.lock();
        index.reserved_bytes = index.reserved_bytes.saturating_sub(self.size_bytes);
    }
}

#[cfg(test)]
mod tests;
