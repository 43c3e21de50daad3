//! Storage of files: bytes named by their SHA-256, durable before any event names them.
//!
//! A store knows no names, manifests or permissions: a caller that knows a digest may read its bytes. The garbage
//! collector decides what is deleted, and when.
//!
//! A store records when each artifact was last *put or renewed*, and removes only artifacts older than a given time.
//! After a put or a renewal, an event may therefore name the artifact within the minimum age that garbage collection
//! respects, whatever is deleted in the meantime.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use thiserror::Error;

use crate::BoxError;

/// Bytes sent to a store, in pieces of any size; an error in the stream ends the put as
/// [`StoreError::Source`].
pub type Incoming<'a> = BoxStream<'a, Result<Bytes, BoxError>>;

/// Bytes read from a store. They are valid only if the stream ends without an error: a whole artifact whose bytes do
/// not match its digest ends with [`StoreError::Corrupt`].
pub type Outgoing = BoxStream<'static, Result<Bytes, StoreError>>;

/// What a put stored; equal bytes always give the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// An artifact, or a part of one, as read from a store.
pub struct Content {
    /// Size of the whole artifact, in bytes.
    pub size_bytes: u64,
    /// The returned range: the requested one, cut at the end of the artifact.
    pub range: Range<u64>,
    /// The bytes of `range`.
    pub bytes: Outgoing,
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Content")
            .field("size_bytes", &self.size_bytes)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// A whole artifact as a file on this host: verified, mode 0444, owned by this process.
///
/// The file exists as long as the value, so that a hard link can be made; the link then keeps the bytes. Never write
/// through the file or a link to it.
pub struct LocalFile {
    path: PathBuf,
    stored: Stored,
    is_fetched: bool,
    _pin: Box<dyn Send + Sync>,
}

impl LocalFile {
    /// For stores only: `pin` is dropped when the file is no longer needed under this name.
    pub fn new(path: PathBuf, stored: Stored, pin: impl Send + Sync + 'static) -> Self {
        Self {
            path,
            stored,
            is_fetched: false,
            _pin: Box::new(pin),
        }
    }

    /// For stores only: this call fetched the bytes from elsewhere.
    #[must_use]
    pub fn fetched(self) -> Self {
        Self {
            is_fetched: true,
            ..self
        }
    }

    /// Bytes fetched from elsewhere for this file.
    pub fn fetched_bytes(&self) -> u64 {
        if self.is_fetched {
            self.stored.size_bytes
        } else {
            0
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn digest(&self) -> Digest {
        self.stored.digest
    }

    pub fn size_bytes(&self) -> u64 {
        self.stored.size_bytes
    }
}

impl fmt::Debug for LocalFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LocalFile")
            .field("path", &self.path)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

/// A put or a renewal leaves an artifact that is younger than this unchanged. The value is a small part of the minimum
/// age for garbage collection, and longer than artifacts usually pass from run to run, so that few are written twice.
pub const RENEWED_AFTER: Duration = Duration::from_secs(6 * 60 * 60);

/// An artifact as listed by a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub digest: Digest,
    pub size_bytes: u64,
    /// When it was last put or renewed, by the clock of the store.
    pub renewed_at: Timestamp,
}

/// The content of a store, piece by piece.
pub type Listing = BoxStream<'static, Result<Listed, StoreError>>;

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Removed,
    /// It was put or renewed too recently.
    Young,
    /// It did not exist.
    Missing,
}

/// A store of content-addressed artifacts.
///
/// A put hashes its bytes and returns when they are durable (synced to disk, or confirmed by the server), so that an
/// event may name them. A put of existing bytes succeeds. No operation holds a file in memory.
#[async_trait]
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// Stores the stream until its end.
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError>;

    /// Stores `reader` until its end, on a thread that may block. The fastest way for a file that must not be moved,
    /// such as one of a capsule.
    async fn put_reader(&self, reader: Box<dyn Read + Send>) -> Result<Stored, StoreError>;

    /// Stores a file and takes it over: on success `path` no longer exists; bytes in
    /// [`spool_directory`](Self::spool_directory) are not copied.
    ///
    /// `known` is what the caller computed while writing the file; only the size is checked. Without it the file is
    /// hashed. No other process may be able to write the file.
    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError>;

    /// Reads an artifact, or a `range` of its bytes. A whole artifact is verified while it is read; a range cannot be.
    ///
    /// A range may end beyond the end of the artifact; one that starts there, or is empty, is
    /// [`StoreError::OutOfRange`].
    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError>;

    /// The whole artifact as a file on this host; concurrent requests share one fetch.
    ///
    /// `size_bytes` is the size in the event that names the artifact: another size is [`StoreError::Corrupt`].
    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError>;

    /// Size of an artifact in bytes, or none if the store does not have it.
    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError>;

    async fn contains(&self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.size(digest).await?.is_some())
    }

    /// Renews an artifact before another event names it, for a caller without the bytes. Returns its size, or none if
    /// the store does not have it.
    ///
    /// As after a put of existing bytes, the artifact is as young as if it had just been put, except for
    /// [`RENEWED_AFTER`].
    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError>;

    /// Like [`renew`](Self::renew), for a caller that can send the bytes again: also none if the artifact is known to be
    /// damaged. A store on this host reads an artifact to know it, once per process.
    async fn renew_intact(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.renew(digest).await
    }

    /// All artifacts, unordered. Concurrent puts, renewals and removals may be listed or not.
    async fn list(&self) -> Result<Listing, StoreError>;

    /// Removes an artifact, unless it was put or renewed at `before` or later. A concurrent put or renewal either
    /// keeps the artifact or finds it deleted; it never succeeds and is undone.
    ///
    /// After an error the artifact may exist or not; a retry is harmless.
    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError>;

    /// The space of the store, if it has a known limit.
    async fn space(&self) -> Result<Option<Space>, StoreError>;

    /// Whether the store works: stores the empty artifact and reads it back.
    async fn check(&self) -> Result<(), StoreError>;

    /// A directory of this process for files meant for [`put_file`](Self::put_file). Its content is deleted with the
    /// process or at the next start.
    fn spool_directory(&self) -> &Path;
}

/// A storage with a limit that holds artifacts: the stream of a broker.
#[async_trait]
pub trait Limited: fmt::Debug + Send + Sync {
    async fn space(&self) -> Result<Space, BoxError>;
}

/// Why a store failed, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No such artifact: the name is wrong, or it was deleted.
    #[error("no artifact {digest}")]
    Missing { digest: Digest },
    /// The store has other bytes under this name; only a new put fixes that.
    #[error("artifact {digest} is damaged: {found}")]
    Corrupt { digest: Digest, found: String },
    /// The requested range is outside the artifact.
    #[error("invalid range {start}..{end} of artifact {digest}, which has {size_bytes} bytes")]
    OutOfRange {
        digest: Digest,
        size_bytes: u64,
        start: u64,
        end: u64,
    },
    /// The source of the bytes failed; nothing was stored.
    #[error("cannot read the bytes to store")]
    Source { source: BoxError },
    /// No space: free some, then try again.
    #[error("no space left in {place}")]
    NoRoom { place: String, source: BoxError },
    /// The store rejects the configured credentials: the operator must act; a retry is useless.
    #[error("{place} rejects the credentials")]
    Refused { place: String, source: BoxError },
    /// The store did not answer, or broke off; a later retry is harmless.
    #[error("{place} is not available")]
    Unavailable { place: String, source: BoxError },
}

impl StoreError {
    /// The error of a disk, by what the caller does about it.
    pub fn from_io(place: &str, source: io::Error) -> Self {
        let (place, kind) = (place.to_owned(), source.kind());
        let source = source.into();
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoRoom { place, source },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::Refused { place, source }
            }
            _ => Self::Unavailable { place, source },
        }
    }
}
