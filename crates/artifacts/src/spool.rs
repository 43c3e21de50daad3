//! Incoming files: a directory of one process, removed when the process ends or after it died.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::digest::Hasher;
use aod_ports::artifact_store::{Incoming, StoreError, Stored};
use bytes::Bytes;
use futures::StreamExt as _;
use rustix::fs::{FlockOperation, flock};
use tokio::task::{JoinError, JoinHandle};
use uuid::Uuid;

/// Size of a read, in bytes: larger reads are not faster.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// A directory for files that are being written.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    /// Locked as long as the process lives; a directory without a lock is a left-over.
    _lock: File,
    count: AtomicU64,
}

/// A complete incoming file.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) path: PathBuf,
    pub(crate) stored: Stored,
    /// Whether a drop removes the file; the caller's file stays until it is stored.
    ours: bool,
}

impl Drop for Spooled {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Spool {
    /// Creates this process's directory below `parent`, and removes those of processes that have ended.
    pub(crate) fn open(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        // No process may find a directory that its owner has not locked yet.
        let entrance = File::create(parent.join("lock"))?;
        flock(&entrance, FlockOperation::LockExclusive)?;
        for entry in fs::read_dir(parent)? {
            let path = entry?.path();
            if path.is_dir() && !is_in_use(&path) {
                fs::remove_dir_all(&path)?;
            }
        }
        let directory = parent.join(Uuid::now_v7().simple().to_string());
        fs::create_dir(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self {
            directory,
            _lock: lock,
            count: AtomicU64::new(0),
        })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the bytes of `reader`. Blocks.
    pub(crate) fn write_reader(&self, reader: &mut dyn Read) -> Result<Spooled, StoreError> {
        let mut file = self.create()?;
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let mut piece = (&mut *reader).take(READ_BYTES as u64);
            match piece.read_to_end(&mut buffer) {
                Ok(0) => return Ok(file.finish()),
                Ok(_) => file.write(&buffer)?,
                Err(error) => {
                    return Err(StoreError::Source {
                        source: error.into(),
                    });
                }
            }
        }
    }

    /// Writes the bytes of the stream.
    pub(crate) async fn write_stream(
        self: &Arc<Self>,
        mut bytes: Incoming<'_>,
    ) -> Result<Spooled, StoreError> {
        let mut writer = self.writer();
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|source| StoreError::Source { source })?;
            writer.write(piece).await?;
        }
        writer.finish().await
    }

    /// A writer that writes and hashes a file in the background, one batch behind.
    pub(crate) fn writer(self: &Arc<Self>) -> Writer {
        let spool = Arc::clone(self);
        Writer {
            file: tokio::task::spawn_blocking(move || spool.create()),
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Copies a file of another file system. Blocks.
    pub(crate) fn copy(&self, given: &Spooled) -> Result<Spooled, StoreError> {
        let mut file = File::open(&given.path).map_err(|error| StoreError::Source {
            source: error.into(),
        })?;
        let copied = self.write_reader(&mut file)?;
        if copied.stored != given.stored {
            let why = io::Error::other("its writer reported another digest");
            return Err(StoreError::Source { source: why.into() });
        }
        Ok(copied)
    }

    fn create(&self) -> Result<Open, StoreError> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // A caller cannot pass this name to `put_file` by accident.
        let path = self.directory.join(format!(".{number}.incoming"));
        let place = || self.directory.display().to_string();
        let file = File::create_new(&path).map_err(|error| StoreError::from_io(&place(), error))?;
        let nothing = Stored {
            digest: Hasher::new().finish(),
            size_bytes: 0,
        };
        let spooled = Spooled {
            path,
            stored: nothing,
            ours: true,
        };
        Ok(Open {
            spooled,
            file,
            hasher: Hasher::new(),
            place: place(),
        })
    }
}

/// Adopts a file of the caller: hashes it in place, unless its digest is known. Blocks.
pub(crate) fn adopt(path: &Path, known: Option<Stored>) -> Result<Spooled, StoreError> {
    let unreadable = |error: io::Error| StoreError::Source {
        source: error.into(),
    };
    let metadata = fs::symlink_metadata(path).map_err(unreadable)?;
    let stored = match known {
        _ if !metadata.is_file() => {
            return Err(unreadable(io::Error::other("not a regular file")));
        }
        Some(known) if known.size_bytes != metadata.len() => {
            let (found, known) = (metadata.len(), known.size_bytes);
            let why = format!("the file has {found} bytes, but its writer reported {known}");
            return Err(unreadable(io::Error::other(why)));
        }
        Some(known) => known,
        None => hash(path).map_err(unreadable)?,
    };
    Ok(Spooled {
        path: path.to_owned(),
        stored,
        ours: false,
    })
}

/// Hashes a file. Blocks.
pub(crate) fn hash(path: &Path) -> io::Result<Stored> {
    let mut file = File::open(path)?;
    let mut buffer = Vec::new();
    let mut hasher = Hasher::new();
    let mut size_bytes = 0;
    loop {
        buffer.clear();
        match (&mut file)
            .take(READ_BYTES as u64)
            .read_to_end(&mut buffer)?
        {
            0 => {
                return Ok(Stored {
                    digest: hasher.finish(),
                    size_bytes,
                });
            }
            count => {
                hasher.update(&buffer);
                size_bytes += count as u64;
            }
        }
    }
}

/// Removes a caller's file after its bytes are stored. Blocks.
pub(crate) fn discard(given: &Spooled) -> Result<(), StoreError> {
    fs::remove_file(&given.path).map_err(|error| StoreError::Source {
        source: error.into(),
    })
}

/// Whether a process holds the lock of a spool directory.
fn is_in_use(directory: &Path) -> bool {
    File::open(directory.join("lock"))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// A file that is being written.
struct Open {
    spooled: Spooled,
    file: File,
    hasher: Hasher,
    place: String,
}

impl Open {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(bytes)
            .map_err(|error| StoreError::from_io(&self.place, error))?;
        self.hasher.update(bytes);
        self.spooled.stored.size_bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Spooled {
        self.spooled.stored.digest = self.hasher.finish();
        self.spooled
    }
}

/// Collects pieces and writes them in batches, one at a time: no thread waits for a slow source.
/// A drop before [`finish`](Self::finish) leaves nothing behind.
pub(crate) struct Writer {
    /// The file, after the previous batch is written.
    file: JoinHandle<Result<Open, StoreError>>,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
}

impl Writer {
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        self.waiting_bytes += bytes.len();
        self.waiting.push(bytes);
        if self.waiting_bytes < READ_BYTES {
            return Ok(());
        }
        let mut file = joined((&mut self.file).await)?;
        let batch = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        self.file = tokio::task::spawn_blocking(move || {
            batch.iter().try_for_each(|bytes| file.write(bytes))?;
            Ok(file)
        });
        Ok(())
    }

    pub(crate) async fn finish(self) -> Result<Spooled, StoreError> {
        let mut file = joined(self.file.await)?;
        blocking(move || {
            self.waiting
                .iter()
                .try_for_each(|bytes| file.write(bytes))?;
            Ok(file.finish())
        })
        .await
    }
}

/// Runs blocking `work` on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await)
}

/// The result of a task; continues its panic.
fn joined<T>(ended: Result<T, JoinError>) -> T {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests;
