//! A directory of whole files by digest, `sha256/<first two digits>/<digest>`, verified at their first use: shared by
//! the local store and the cache. The directory is private; each file has mode 0444, because nodes link files into the
//! directories of containers with other users.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_ports::artifact_store::{Listed, RENEWED_AFTER, Removal, StoreError, Stored};
use aod_services::disk;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::spool::{self, Spooled};

/// Maximum number of files remembered as verified: 8 MiB of memory. Above it, all are hashed again.
const VERIFIED_MAX: usize = 64 * 1024;

/// Whether a file must survive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// File and directory are synced before the put returns.
    Synced,
    /// A lost or damaged file is fetched again; a later process verifies each file.
    Cached,
}

/// A directory of files by digest.
#[derive(Debug)]
pub(crate) struct Shelf {
    root: PathBuf,
    durability: Durability,
    verified: Mutex<HashMap<Digest, Stamp>>,
    /// Age from which on a put renews an existing file.
    renewed_after: Duration,
    /// Locked while a file is hashed: a concurrent caller for the same file then finds it verified.
    hashing: Mutex<()>,
}

/// Metadata that changes when a process writes to or replaces a file, but not when it links the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size_bytes: u64,
    modified_nanoseconds: i128,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let seconds = i128::from(metadata.mtime());
        Self {
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified_nanoseconds: seconds * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        }
    }
}

impl Shelf {
    /// Creates all directories below `root`, so that none must be synced later.
    pub(crate) fn open(root: &Path, durability: Durability) -> io::Result<Self> {
        let top = root.join("sha256");
        let is_new = !top.is_dir();
        for first in 0..=u8::MAX {
            fs::create_dir_all(top.join(format!("{first:02x}")))?;
        }
        if is_new && durability == Durability::Synced {
            sync_directory(&top)?;
            sync_directory(root)?;
        }
        Ok(Self {
            root: root.to_owned(),
            durability,
            renewed_after: RENEWED_AFTER,
            verified: Mutex::default(),
            hashing: Mutex::default(),
        })
    }

    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        self.root.join(relative(digest))
    }

    /// Name of the shelf in errors.
    pub(crate) fn place(&self) -> String {
        self.root.display().to_string()
    }

    /// Moves a spool file to its place by rename, and overwrites an existing file unless that is known to be
    /// intact and young. Blocks.
    pub(crate) fn install(&self, spooled: &Spooled) -> io::Result<()> {
        let Stored { digest, .. } = spooled.stored;
        let path = self.path(digest);
        let directory = path.parent().expect("a file of a shelf has a directory");
        let collector = self.lock_out(FlockOperation::LockShared)?;
        if self.is_verified(digest) && !self.is_old(&fs::metadata(&path)?) {
            fs::remove_file(&spooled.path)?;
        } else {
            let file = File::open(&spooled.path)?;
            file.set_permissions(Permissions::from_mode(0o444))?;
            // The file may have been written long ago.
            file.set_modified(SystemTime::now())?;
            if self.durability == Durability::Synced {
                file.sync_all()?;
            }
            let stamp = Stamp::of(&file.metadata()?);
            fs::rename(&spooled.path, &path)?;
            self.remember(digest, stamp);
        }
        drop(collector);
        // Also for an existing file: the process that renamed it may not have synced it yet.
        match self.durability {
            Durability::Synced => sync_directory(directory),
            Durability::Cached => Ok(()),
        }
    }

    /// The file of `digest`, if it exists; hashes a file that is not yet verified. Blocks.
    pub(crate) fn verified(&self, digest: Digest) -> Result<Option<(PathBuf, Stored)>, StoreError> {
        let path = self.path(digest);
        let unreadable = |error| StoreError::from_io(&self.place(), error);
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let stored = Stored {
            digest,
            size_bytes: metadata.len(),
        };
        if self.is_verified(digest) {
            return Ok(Some((path, stored)));
        }
        let _hashing = self.hashing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_verified(digest) {
            return Ok(Some((path, stored)));
        }
        let found = spool::hash(&path).map_err(unreadable)?;
        if found != stored {
            return Err(StoreError::Corrupt {
                digest,
                found: describe(found),
            });
        }
        self.remember(digest, Stamp::of(&metadata));
        Ok(Some((path, stored)))
    }

    /// Makes a file as young as if it had just been put; returns its size, if it exists. Blocks.
    pub(crate) fn renew(&self, digest: Digest) -> io::Result<Option<u64>> {
        let _collector = self.lock_out(FlockOperation::LockShared)?;
        let Some(file) = found(File::open(self.path(digest)))? else {
            return Ok(None);
        };
        let metadata = file.metadata()?;
        if self.is_old(&metadata) {
            let is_verified = self.is_verified(digest);
            let file = match file.set_modified(SystemTime::now()) {
                // Another user owns the file: only that user may change its time.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.replace_by_copy(digest)?
                }
                changed => changed.map(|()| file)?,
            };
            if is_verified {
                self.remember(digest, Stamp::of(&file.metadata()?));
            }
        } else if self.durability == Durability::Synced {
            // The process that renamed it a moment ago may not have synced the directory yet.
            let path = self.path(digest);
            sync_directory(path.parent().expect("a file of a shelf has a directory"))?;
        }
        Ok(Some(metadata.len()))
    }

    /// Replaces a file by a copy, which is young and owned by this user. Blocks.
    fn replace_by_copy(&self, digest: Digest) -> io::Result<File> {
        let path = self.path(digest);
        let copy = path.with_extension(Uuid::now_v7().simple().to_string());
        let copied = fs::copy(&path, &copy).and_then(|_| {
            let file = File::open(&copy)?;
            file.set_permissions(Permissions::from_mode(0o444))?;
            file.sync_all()?;
            fs::rename(&copy, &path)?;
            Ok(file)
        });
        if copied.is_err() {
            let _ = fs::remove_file(&copy);
        }
        copied
    }

    /// Removes a file whose last put or renewal is before `before`. Blocks.
    pub(crate) fn remove_old(&self, digest: Digest, before: SystemTime) -> io::Result<Removal> {
        let _collector = self.lock_out(FlockOperation::LockExclusive)?;
        let Some(metadata) = found(fs::metadata(self.path(digest)))? else {
            return Ok(Removal::Missing);
        };
        if metadata.modified()? >= before {
            return Ok(Removal::Young);
        }
        self.remove(digest)?;
        Ok(Removal::Removed)
    }

    /// The files with digests that begin with the byte `first`. Blocks.
    pub(crate) fn list(&self, first: u8) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(self.root.join("sha256").join(format!("{first:02x}")))? {
            let entry = entry?;
            let digest = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // A file may be removed during the scan.
            let (Some(digest), Some(metadata)) = (digest, found(entry.metadata())?) else {
                continue;
            };
            let renewed_at = Timestamp::try_from(metadata.modified()?);
            listed.push(Listed {
                digest,
                size_bytes: metadata.len(),
                renewed_at: renewed_at.unwrap_or(Timestamp::MAX),
            });
        }
        Ok(listed)
    }

    /// The space of the shelf's disk. Blocks briefly.
    pub(crate) fn space(&self) -> io::Result<Space> {
        disk::space(&self.root)
    }

    /// Locks out collectors of all processes, or all other users, as long as the returned file lives. A cache
    /// needs no lock.
    fn lock_out(&self, operation: FlockOperation) -> io::Result<Option<File>> {
        if self.durability == Durability::Cached {
            return Ok(None);
        }
        let path = self.root.join("collector.lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        // Opened for each lock: a lock belongs to the open file, and an exclusive lock requires a writable one.
        let lock = options.open(path)?;
        flock(&lock, operation)?;
        Ok(Some(lock))
    }

    /// Whether a file must be renewed before an event names it.
    fn is_old(&self, metadata: &Metadata) -> bool {
        let age = metadata.modified().ok();
        let age = age.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        self.durability == Durability::Synced && age.unwrap_or_default() >= self.renewed_after
    }

    /// Removes a file; a missing file is fine. Blocks.
    pub(crate) fn remove(&self, digest: Digest) -> io::Result<()> {
        self.lock().remove(&digest);
        match fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All files whose names are digests, with their metadata; removes other files. Blocks.
    pub(crate) fn scan(&self) -> io::Result<Vec<(Digest, Metadata)>> {
        let mut found = Vec::new();
        for first in 0..=u8::MAX {
            for entry in fs::read_dir(self.root.join("sha256").join(format!("{first:02x}")))? {
                let entry = entry?;
                let digest = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok());
                match digest.filter(|&digest| self.path(digest) == entry.path()) {
                    Some(digest) => found.push((digest, entry.metadata()?)),
                    None => fs::remove_file(entry.path())?,
                }
            }
        }
        Ok(found)
    }

    fn is_verified(&self, digest: Digest) -> bool {
        let Some(stamp) = self.lock().get(&digest).copied() else {
            return false;
        };
        fs::metadata(self.path(digest)).is_ok_and(|metadata| Stamp::of(&metadata) == stamp)
    }

    fn remember(&self, digest: Digest, stamp: Stamp) {
        let mut verified = self.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, stamp);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Stamp>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path of a digest in every store.
pub(crate) fn relative(digest: Digest) -> String {
    let text = digest.to_string();
    format!("sha256/{}/{text}", &text[..2])
}

/// Rejects an artifact whose size differs from the event that names it.
pub(crate) fn check_size(stored: Stored, size_bytes: u64) -> Result<(), StoreError> {
    if stored.size_bytes == size_bytes {
        return Ok(());
    }
    let found = format!(
        "the artifact has {} bytes, expected {size_bytes}",
        stored.size_bytes
    );
    Err(StoreError::Corrupt {
        digest: stored.digest,
        found,
    })
}

/// Describes bytes that do not match their name.
pub(crate) fn describe(found: Stored) -> String {
    format!(
        "the {} stored bytes have the digest {}",
        found.size_bytes, found.digest
    )
}

/// Turns "not found" into none.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests;
