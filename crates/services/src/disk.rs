//! The disks of this host: their free space, which work may begin on them, and private directories.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aod_domain::disk::{Room, Space, reason, room};

/// The disk of the existing file `path`. Blocks for a moment.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Space {
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Mode of directories with data: only the owner can enter them, so the modes of their files do not matter.
const PRIVATE: u32 = 0o700;

/// Creates a directory of AOD's own with its parents, and makes it private whatever the umask.
pub fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o777 == PRIVATE {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(PRIVATE))
}

/// As [`make_private`], for a directory that the operator chose.
///
/// # Errors
/// Also a directory with content that other users can enter, as PostgreSQL does: the content may be theirs.
pub fn make_chosen_private(path: &Path) -> io::Result<()> {
    let is_open = fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o077 != 0);
    if is_open && fs::read_dir(path)?.next().is_some() {
        let path = path.display();
        let text = format!(
            "other users can enter {path}: run `chmod 700 {path}`, or choose another directory"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    make_private(path)
}

/// Creates a file that only its owner can read, or makes an existing one so.
pub fn make_private_file(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    options
        .open(path)?
        .set_permissions(Permissions::from_mode(0o600))
}

/// The disks below some directories.
#[derive(Debug)]
pub struct Disks {
    /// The owner, as named in reasons.
    owner: &'static str,
    /// Reserve that the operator sets for unfinished trees.
    reserve: Option<u64>,
    known: Mutex<Vec<(PathBuf, Room)>>,
}

/// Which work may begin, and the reason for a restriction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    pub room: Room,
    /// None with enough space.
    pub reason: Option<String>,
}

impl Disks {
    /// `owner` starts the name of a disk in reasons: `the gateway's`.
    pub fn new(
        owner: &'static str,
        directories: impl IntoIterator<Item = PathBuf>,
        reserve: Option<u64>,
    ) -> Self {
        let directories = directories.into_iter();
        let known = directories.map(|directory| (directory, Room::Enough));
        Self {
            owner,
            reserve,
            known: Mutex::new(known.collect()),
        }
    }

    /// Adds the disk of a directory.
    pub fn add(&self, directory: PathBuf) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().all(|(path, _)| *path != directory) {
            known.push((directory, Room::Enough));
        }
    }

    /// Checks all disks; the one with the least space counts. Ignores a disk that cannot be checked: writers will
    /// report its errors.
    pub fn measure(&self) -> Measurement {
        let mut worst = Measurement::default();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (directory, known) in known.iter_mut() {
            let Ok(space) = space(directory) else {
                continue;
            };
            *known = room(*known, space, self.reserve);
            if *known > worst.room {
                let place = format!("{} disk of {}", self.owner, directory.display());
                worst = Measurement {
                    room: *known,
                    reason: reason(*known, space, self.reserve, &place),
                };
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_of_an_added_directory_counts_and_a_missing_directory_does_not() {
        let directory = tempfile::tempdir().unwrap();
        // No disk has as much free space.
        let disks = Disks::new("the", [], Some(u64::MAX / 2));
        assert_eq!(disks.measure(), Measurement::default());
        disks.add(directory.path().join("missing"));
        assert_eq!(disks.measure(), Measurement::default());
        for _ in 0..2 {
            disks.add(directory.path().to_owned());
            let measured = disks.measure();
            assert_eq!(measured.room, Room::NoRoots);
            let (reason, path) = (measured.reason.unwrap(), directory.path().display());
            assert!(reason.contains(&format!("the disk of {path}")), "{reason}");
        }
        assert_eq!(disks.known.lock().unwrap().len(), 2);
    }

    #[test]
    fn private_directories_and_files_have_their_mode_whatever_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (below, file) = (directory.path().join("a/b"), directory.path().join("file"));
        make_private(&below).unwrap();
        fs::set_permissions(&below, Permissions::from_mode(0o755)).unwrap();
        make_private(&below).unwrap();
        fs::write(&file, "kept").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        make_private_file(&file).unwrap();
        assert_eq!((mode(&below), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
}
