//! Where files live: bytes named by their SHA-256, durable before anything names them.
//!
//! Names, manifests and who may read what are left to others: whoever knows a digest may have its
//! bytes. What is collected, and when, is left to the garbage collector.
//!
//! A store knows when each artifact was last *put or renewed*, and removes only what was not since a given
//! time. So whoever has put or renewed an artifact may name it in an event within the time that collectors
//! leave it, whatever is collected meanwhile.

use std::fmt;
use std::io::Read;
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

/// Bytes on their way into a store, in pieces of any size; an error of theirs ends the put as
/// [`StoreError::Source`].
pub type Incoming<'a> = BoxStream<'a, Result<Bytes, BoxError>>;

/// Bytes on their way out of a store. They count only if the stream ends without an error: a
/// whole artifact that does not have its digest ends with [`StoreError::Corrupt`].
pub type Outgoing = BoxStream<'static, Result<Bytes, StoreError>>;

/// What a put stored: the same bytes give the same answer, however often they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// An artifact, or a part of one, on its way out.
pub struct Content {
    /// Size of the whole artifact, in bytes.
    pub size_bytes: u64,
    /// Which of its bytes follow: what was asked for, cut at the end of the artifact.
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

/// A whole artifact as a file of this host: verified, of mode 0444, owned by this process.
///
/// The name stays as long as the value lives, so that a hard link can be made; the link then
/// keeps the bytes by itself. Nobody may write through the file or a link to it.
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

    /// For stores only: its bytes came from elsewhere for this very call.
    #[must_use]
    pub fn fetched(self) -> Self {
        Self {
            is_fetched: true,
            ..self
        }
    }

    /// How many bytes came from elsewhere so that it is here.
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

/// How old an artifact may be, by when it was last put or renewed, that a put or a renewal leaves as it is: a
/// small part of the time for which collectors leave what is young, and longer than artifacts go from run to
/// run, so that few are written twice.
pub const RENEWED_AFTER: Duration = Duration::from_secs(6 * 60 * 60);

/// An artifact, as a store lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub digest: Digest,
    pub size_bytes: u64,
    /// When it was last put or renewed, by the store's own clock.
    pub renewed_at: Timestamp,
}

/// What a store has, piece by piece.
pub type Listing = BoxStream<'static, Result<Listed, StoreError>>;

/// What has become of an artifact that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Removed,
    /// It was put or renewed too lately.
    Young,
    /// It was not there.
    Missing,
}

/// A store of content-addressed artifacts.
///
/// Every put hashes what it is given and returns only when the bytes are durable (on disk and
/// synced, or confirmed by the server that keeps them), so that an event may name them. A put of
/// bytes that are there already is a success. No operation holds a file in memory.
#[async_trait]
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// Stores what the stream yields, until its end.
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError>;

    /// Stores what `reader` yields, until its end; it is read on a thread that may block. The
    /// quickest way for a file that must not be moved, as one of a capsule's.
    async fn put_reader(&self, reader: Box<dyn Read + Send>) -> Result<Stored, StoreError>;

    /// Stores a file that the caller gives away: on success `path` is gone, and where it lies in
    /// [`spool_directory`](Self::spool_directory) its bytes are not copied.
    ///
    /// `known` is what the caller found when it wrote the file, and is believed but for the size;
    /// without it the file is hashed. Nobody else may be able to write the file.
    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError>;

    /// Reads an artifact, or a `range` of its bytes. A whole artifact is verified while it is
    /// read; a part of one cannot be.
    ///
    /// A range may end beyond the end; one that starts there, or is empty, is
    /// [`StoreError::OutOfRange`].
    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError>;

    /// The whole artifact as a file of this host, fetched once however many ask at a time.
    ///
    /// `size_bytes` is what the event says that names it: another size is
    /// [`StoreError::Corrupt`].
    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError>;

    /// Size of an artifact in bytes, or none if the store does not have it.
    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError>;

    async fn contains(&self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.size(digest).await?.is_some())
    }

    /// Says that an artifact is about to be named in an event once more, by somebody who does not have its
    /// bytes at hand: its size, or none if the store does not have it.
    ///
    /// As with a put of what is there already, it is as young as if it had been put now, but for
    /// [`RENEWED_AFTER`].
    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError>;

    /// All artifacts, in no order. What is put, renewed or removed meanwhile may be told as it was before or as
    /// it is then.
    async fn list(&self) -> Result<Listing, StoreError>;

    /// Removes an artifact, unless it was put or renewed at `before` or later. A put or a renewal that goes on
    /// at the same time either keeps it or finds it gone; it never succeeds and is undone.
    ///
    /// After an error it may be there or not; another try is harmless.
    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError>;

    /// The room that the store has, if it has a limit that it knows.
    async fn space(&self) -> Result<Option<Space>, StoreError>;

    /// Whether the store takes and gives: stores the empty artifact and reads it back.
    async fn check(&self) -> Result<(), StoreError>;

    /// A directory of this process alone for files meant for [`put_file`](Self::put_file). What is
    /// left in it goes with the process, or at the next start.
    fn spool_directory(&self) -> &Path;
}

/// Something with a limit that artifacts lie in: the stream of a broker.
#[async_trait]
pub trait Limited: fmt::Debug + Send + Sync {
    async fn space(&self) -> Result<Space, BoxError>;
}

/// Why a store has not done what it was asked, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No such artifact: whoever names it erred, or it was collected.
    #[error("no artifact {digest}")]
    Missing { digest: Digest },
    /// The store has other bytes under this name: only a new put mends that.
    #[error("artifact {digest} is damaged: {found}")]
    Corrupt { digest: Digest, found: String },
    /// The caller asked for bytes that are not there.
    #[error("artifact {digest} has {size_bytes} bytes, none of them in {start}..{end}")]
    OutOfRange {
        digest: Digest,
        size_bytes: u64,
        start: u64,
        end: u64,
    },
    /// Whoever gave the bytes failed: nothing was stored.
    #[error("the bytes to be stored could not be read")]
    Source { source: BoxError },
    /// No room for it: make some, then try again.
    #[error("no room in {place}")]
    NoRoom { place: String, source: BoxError },
    /// The store will not have us as we are configured: the operator must act, a retry is useless.
    #[error("{place} refuses access")]
    Refused { place: String, source: BoxError },
    /// The store did not answer, or broke off: try again later, it is harmless.
    #[error("{place} is not available")]
    Unavailable { place: String, source: BoxError },
}
