//! A directory of whole files by digest, `sha256/<first two digits>/<digest>`, each of mode 0444
//! and verified at its first use: what the local store and the cache have in common.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_ports::artifact_store::{Listed, RENEWED_AFTER, Removal, StoreError, Stored};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::error::from_io;
use crate::spool::{self, Spooled};

/// Files remembered as verified: 8 MiB of memory. Beyond that all are forgotten and hashed again.
const VERIFIED_MAX: usize = 64 * 1024;

/// Whether a file must survive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// File and directory are synced before anybody is told.
    Synced,
    /// What is lost is fetched again; so is what comes back damaged, since a later process
    /// verifies it.
    Cached,
}

/// A directory of files by digest.
#[derive(Debug)]
pub(crate) struct Shelf {
    root: PathBuf,
    durability: Durability,
    verified: Mutex<HashMap<Digest, Stamp>>,
    /// How old a file may be that a put finds and leaves as it is.
    renewed_after: Duration,
    /// Held while a file is hashed: who asks for the same one meanwhile finds it verified.
    hashing: Mutex<()>,
}

/// What changes when somebody writes to a file, or puts another in its place. A link to it
/// changes none of it.
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
    /// Makes the directories below `root`, all of them, so that none must be synced later.
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

    /// Puts a file in its place by rename, over what may be there, unless that is known to be
    /// whole and young. The spool file is gone then. Blocks.
    pub(crate) fn install(&self, spooled: &Spooled) -> io::Result<()> {
        let Stored { digest, .. } = spooled.stored;
        let path = self.path(digest);
        let directory = path
            .parent()
            .expect("a file on a shelf lies in a directory");
        let collector = self.lock_out(FlockOperation::LockShared)?;
        if self.is_verified(digest) && !self.is_old(&fs::metadata(&path)?) {
            fs::remove_file(&spooled.path)?;
        } else {
            let file = File::open(&spooled.path)?;
            file.set_permissions(Permissions::from_mode(0o444))?;
            // It may have been written long ago.
            file.set_modified(SystemTime::now())?;
            if self.durability == Durability::Synced {
                file.sync_all()?;
            }
            let stamp = Stamp::of(&file.metadata()?);
            fs::rename(&spooled.path, &path)?;
            self.remember(digest, stamp);
        }
        drop(collector);
        // Also for one that was there: whoever renamed it may not have come to this yet.
        match self.durability {
            Durability::Synced => sync_directory(directory),
            Durability::Cached => Ok(()),
        }
    }

    /// The file of `digest`, hashed if nobody has since it was written; none if there is none.
    /// Blocks.
    pub(crate) fn verified(&self, digest: Digest) -> Result<Option<(PathBuf, Stored)>, StoreError> {
        let path = self.path(digest);
        let unreadable = |error| from_io(&self.place(), error);
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

    /// Makes a file as young as if it had been put now; its size, or none if there is none. Blocks.
    pub(crate) fn renew(&self, digest: Digest) -> io::Result<Option<u64>> {
        let _collector = self.lock_out(FlockOperation::LockShared)?;
        let Some(file) = found(File::open(self.path(digest)))? else {
            return Ok(None);
        };
        let metadata = file.metadata()?;
        if self.is_old(&metadata) {
            let is_verified = self.is_verified(digest);
            let file = match file.set_modified(SystemTime::now()) {
                // Another user has put it: only they may change its time.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.replace_by_copy(digest)?
                }
                changed => changed.map(|()| file)?,
            };
            if is_verified {
                self.remember(digest, Stamp::of(&file.metadata()?));
            }
        }
        Ok(Some(metadata.len()))
    }

    /// Puts a copy of a file in its place, which is young and ours. Blocks.
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

    /// Removes a file that was not put or renewed since `before`. Blocks.
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

    /// The files whose digests begin with the byte `first`. Blocks.
    pub(crate) fn list(&self, first: u8) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(self.root.join("sha256").join(format!("{first:02x}")))? {
            let entry = entry?;
            let digest = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // What is removed meanwhile is not there.
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

    /// The disk that it lies on. Blocks for a moment.
    pub(crate) fn space(&self) -> io::Result<Space> {
        let found = rustix::fs::statvfs(&self.root)?;
        Ok(Space {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    /// Keeps collectors of all processes out, or all others, as long as the answer lives; what can be fetched
    /// again needs none of it.
    fn lock_out(&self, operation: FlockOperation) -> io::Result<Option<File>> {
        if self.durability == Durability::Cached {
            return Ok(None);
        }
        let path = self.root.join("collector.lock");
        match File::options().create_new(true).write(true).open(&path) {
            // Programs of several users may share the directory.
            Ok(made) => made.set_permissions(Permissions::from_mode(0o666))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
        // A file of its own for each: a lock belongs to the opened file, and one held alone to one that is written.
        let is_alone = matches!(operation, FlockOperation::LockExclusive);
        let lock = File::options().read(true).write(is_alone).open(path)?;
        flock(&lock, operation)?;
        Ok(Some(lock))
    }

    /// Whether it was put or renewed so long ago that it must be renewed before it is named.
    fn is_old(&self, metadata: &Metadata) -> bool {
        let age = metadata.modified().ok();
        let age = age.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        self.durability == Durability::Synced && age.unwrap_or_default() >= self.renewed_after
    }

    /// Removes a file; one that is not there is removed already. Blocks.
    pub(crate) fn remove(&self, digest: Digest) -> io::Result<()> {
        self.lock().remove(&digest);
        match fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All files whose names are digests, with their metadata; others are removed. Blocks.
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

/// Where a digest lies in every store.
pub(crate) fn relative(digest: Digest) -> String {
    let text = digest.to_string();
    format!("sha256/{}/{text}", &text[..2])
}

/// Refuses an artifact that is not as large as the event says that names it.
pub(crate) fn check_size(stored: Stored, size_bytes: u64) -> Result<(), StoreError> {
    if stored.size_bytes == size_bytes {
        return Ok(());
    }
    let found = format!("it has {} bytes, not {size_bytes}", stored.size_bytes);
    Err(StoreError::Corrupt {
        digest: stored.digest,
        found,
    })
}

/// Bytes that are not what their name says.
pub(crate) fn describe(found: Stored) -> String {
    format!(
        "its {} bytes have the digest {}",
        found.size_bytes, found.digest
    )
}

/// None for what is not there.
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
