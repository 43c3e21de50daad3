//! Reads regular files in a directory that a capsule may change meanwhile.
//!
//! A capsule may replace any name at any time. The node therefore opens every file once, beneath the handle of the
//! directory (`openat2` with `RESOLVE_BENEATH`, without symbolic links and mount points), and uses the handle for every
//! check.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use aod_domain::file_name::FileName;
use rustix::fs::{Dir, FileType, OFlags, fstat};
use rustix::io::Errno;
use thiserror::Error;

use crate::files::descent::{DIRECTORY, open_beneath, open_own};

/// Maximum number of files of one call or result, which bounds a walk.
pub(crate) const FILES_MAX: usize = 10_000;

/// Directory levels of a tree. Source: the depth of a [`FileName`].
const DEPTH_MAX: usize = 16;

/// An untrusted directory tree.
#[derive(Debug)]
pub(crate) struct SafeDir {
    directory: OwnedFd,
}

/// The kind of a name in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// Why the node refuses a name in a tree.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error("{name} does not exist")]
    Missing { name: String },
    #[error("{name} is {found}; expected a regular file")]
    NotRegular { name: String, found: &'static str },
    #[error(
        "{name} leads out of its directory or through a link; expected a path through plain directories"
    )]
    Escapes { name: String },
    #[error("{name} has more than one hard link; expected exactly one")]
    Linked { name: String },
    #[error(
        "{name} has {size_bytes} bytes; expected at most {size_bytes_max}, the remaining part of the limit"
    )]
    TooLarge {
        name: String,
        size_bytes: u64,
        size_bytes_max: u64,
    },
    #[error("there are more than {FILES_MAX} files")]
    TooMany,
    #[error("directories are nested more than {DEPTH_MAX} deep at {name}")]
    TooDeep { name: String },
    #[error("{0}")]
    Name(#[from] aod_domain::file_name::Rejection),
    #[error("{name} cannot be read: {source}")]
    Io {
        name: String,
        source: std::io::Error,
    },
}

impl SafeDir {
    /// Opens the directory at `path`, which only the node can create.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let directory = open_own(path)?;
        Ok(Self { directory })
    }

    /// The kind of `name`; none if it is neither a regular file nor a directory.
    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        let name = FileName::parse(name).ok()?;
        let handle = self.open_beneath(name.as_str(), OFlags::PATH).ok()?;
        match FileType::from_raw_mode(fstat(&handle).ok()?.st_mode) {
            FileType::RegularFile => Some(Kind::File),
            FileType::Directory => Some(Kind::Directory),
            _ => None,
        }
    }

    /// Opens a regular file of at most `size_bytes_max` bytes for reading.
    pub(crate) fn open_file(&self, name: &str, size_bytes_max: u64) -> Result<File, Refused> {
        // Without NONBLOCK a FIFO would block until a process writes to it.
        let handle = self
            .open_beneath(name, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(|errno| refusal(name, errno))?;
        let stat = fstat(&handle).map_err(|errno| refusal(name, errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            let (name, found) = (name.into(), describe(kind));
            return Err(Refused::NotRegular { name, found });
        }
        // Zero links: the capsule has replaced the file since it was opened.
        if stat.st_nlink > 1 {
            return Err(Refused::Linked { name: name.into() });
        }
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size_bytes > size_bytes_max {
            return Err(Refused::TooLarge {
                name: name.into(),
                size_bytes,
                size_bytes_max,
            });
        }
        Ok(File::from(handle))
    }

    /// Whether the directory is empty: then the caller need not start a walk on another thread.
    pub(crate) fn is_empty(&self) -> bool {
        let entries = self.open_beneath(".", DIRECTORY).and_then(Dir::new);
        entries.is_ok_and(|entries| {
            entries
                .flatten()
                .all(|entry| [c".", c".."].contains(&entry.file_name()))
        })
    }

    /// Lists all files at and below `start` (empty for the whole tree) in the order of their names, and all refused
    /// names. Ends at [`FILES_MAX`] names.
    pub(crate) fn walk(&self, start: &str) -> Listing {
        let mut listing = Listing::default();
        if let Err(refused) = self.walk_into(start, 0, &mut listing) {
            listing.refused.push(refused);
        }
        listing
    }

    /// Fails if `directory` cannot be listed to its end.
    fn walk_into(
        &self,
        directory: &str,
        depth: usize,
        listing: &mut Listing,
    ) -> Result<(), Refused> {
        if depth > DEPTH_MAX {
            return Err(Refused::TooDeep {
                name: directory.into(),
            });
        }
        let opened = if directory.is_empty() { "." } else { directory };
        let handle = self
            .open_beneath(opened, DIRECTORY)
            .map_err(|errno| refusal(directory, errno))?;
        let entries = Dir::new(handle).map_err(|errno| refusal(directory, errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| refusal(directory, errno))?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            if listing.files.len() + listing.refused.len() >= FILES_MAX {
                return Err(Refused::TooMany);
            }
            let text = String::from_utf8_lossy(bytes);
            let path = if directory.is_empty() {
                text.into_owned()
            } else {
                format!("{directory}/{text}")
            };
            match self.note_entry(&path, entry.file_type(), depth, listing) {
                Err(Refused::TooMany) => return Err(Refused::TooMany),
                // The rest of the tree is listed all the same.
                Err(refused) => listing.refused.push(refused),
                Ok(()) => (),
            }
        }
        Ok(())
    }

    fn note_entry(
        &self,
        path: &str,
        kind: FileType,
        depth: usize,
        listing: &mut Listing,
    ) -> Result<(), Refused> {
        // Some file systems do not list the kind.
        let kind = match kind {
            FileType::Unknown => match self.open_beneath(path, OFlags::PATH).and_then(fstat) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(errno) => return Err(refusal(path, errno)),
            },
            kind => kind,
        };
        match (kind, FileName::parse(path)) {
            (FileType::Directory, Ok(_)) => self.walk_into(path, depth + 1, listing)?,
            (FileType::RegularFile, Ok(name)) => drop(listing.files.insert(name)),
            (FileType::RegularFile | FileType::Directory, Err(rejection)) => {
                return Err(rejection.into());
            }
            (other, _) => {
                let (name, found) = (path.into(), describe(other));
                return Err(Refused::NotRegular { name, found });
            }
        }
        Ok(())
    }

    fn open_beneath(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(&self.directory, name, flags)
    }
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    files: BTreeSet<FileName>,
    pub(crate) refused: Vec<Refused>,
}

impl Listing {
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileName> {
        self.files.iter()
    }
}

fn refusal(name: &str, errno: Errno) -> Refused {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Refused::Missing { name: name.into() },
        Errno::LOOP | Errno::XDEV => Refused::Escapes { name: name.into() },
        // `open` returns these for a socket, or for a device without a driver.
        Errno::NXIO | Errno::NODEV => Refused::NotRegular {
            name: name.into(),
            found: "a socket or device",
        },
        errno => Refused::Io {
            name: name.into(),
            source: errno.into(),
        },
    }
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

/// Reads at most `size_bytes_max` bytes, and fails on the next: a file may grow while the node reads it.
#[derive(Debug)]
pub(crate) struct BoundedReader<R> {
    reader: R,
    left: u64,
}

impl<R: Read> BoundedReader<R> {
    pub(crate) fn new(reader: R, size_bytes_max: u64) -> Self {
        Self {
            reader,
            left: size_bytes_max,
        }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::FileTooLarge,
                "the file grew beyond its limit while it was read",
            )
        })?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::Mode;

    use super::*;
    use crate::files::descent::removal::remove_tree;

    fn tree() -> (tempfile::TempDir, SafeDir) {
        let directory = tempfile::tempdir().unwrap();
        let tree = SafeDir::open(directory.path()).unwrap();
        (directory, tree)
    }

    fn refusal_of(tree: &SafeDir, name: &str) -> String {
        tree.open_file(name, 1_000).unwrap_err().to_string()
    }

    /// Does `work` as a user without privileges, who owns the new directory that `work` receives.
    fn without_privileges(work: impl FnOnce(&Path) + Send + 'static) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        }
        // Only this thread changes its user.
        let thread = std::thread::spawn(move || {
            if is_root {
                let user = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            work(&path);
        });
        thread.join().unwrap();
    }

    #[test]
    fn directories_without_permissions_are_read_and_removed_by_their_owner() {
        without_privileges(|path| {
            let lock = |name: &str| {
                let nothing = std::fs::Permissions::from_mode(0o000);
                std::fs::set_permissions(path.join(name), nothing).unwrap();
            };
            std::fs::create_dir_all(path.join("outputs/a/b")).unwrap();
            std::fs::write(path.join("outputs/file"), "abc").unwrap();
            for name in ["outputs/a/b", "outputs/a", "outputs"] {
                lock(name);
            }
            let tree = SafeDir::open(&path.join("outputs")).unwrap();
            assert!(tree.open_file("file", 3).is_ok());
            let listing = tree.walk("");
            let refused = listing.refused.iter().map(ToString::to_string);
            let refused: Vec<_> = refused.collect();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].starts_with("a cannot be read"), "{refused:?}");
            lock("outputs");
            remove_tree(&path.join("outputs")).unwrap();
            assert!(!path.join("outputs").exists());
        });
    }

    #[test]
    fn regular_file_is_opened_and_listed() {
        let (directory, tree) = tree();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/a.txt"), "abc").unwrap();
        let mut text = String::new();
        tree.open_file("sub/a.txt", 3)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "abc");
        assert_eq!(tree.kind("sub"), Some(Kind::Directory));
        assert_eq!(tree.kind("sub/a.txt"), Some(Kind::File));
        assert_eq!(
            tree.walk("")
                .files()
                .map(FileName::as_str)
                .collect::<Vec<_>>(),
            ["sub/a.txt"]
        );
    }

    #[test]
    fn symbolic_links_and_escaping_paths_are_refused() {
        let (directory, tree) = tree();
        symlink("/etc/hostname", directory.path().join("file")).unwrap();
        symlink("/etc", directory.path().join("directory")).unwrap();
        for name in ["file", "directory/hostname", "../x", "/etc/hostname"] {
            assert!(
                refusal_of(&tree, name).contains("leads out"),
                "{name}: {}",
                refusal_of(&tree, name)
            );
            assert_eq!(tree.kind(name), None, "{name}");
        }
        let listing = tree.walk("");
        assert_eq!((listing.files().count(), listing.refused.len()), (0, 2));
    }

    #[test]
    fn walk_lists_all_files_before_its_limit() {
        let (directory, tree) = tree();
        for number in 0..=FILES_MAX {
            File::create(directory.path().join(number.to_string())).unwrap();
        }
        let listing = tree.walk("");
        assert_eq!(listing.files().count(), FILES_MAX);
        assert!(matches!(listing.refused[..], [Refused::TooMany]));
    }

    #[test]
    fn fifo_is_refused_without_blocking() {
        let (directory, tree) = tree();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("fifo"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(refusal_of(&tree, "fifo").contains("a FIFO"));
    }

    #[test]
    fn file_with_two_hard_links_is_refused() {
        let (directory, tree) = tree();
        std::fs::write(directory.path().join("a"), "x").unwrap();
        std::fs::hard_link(directory.path().join("a"), directory.path().join("b")).unwrap();
        assert!(refusal_of(&tree, "b").contains("more than one hard link"));
    }

    #[test]
    fn sparse_file_beyond_the_limit_is_refused() {
        let (directory, tree) = tree();
        File::create(directory.path().join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(refusal_of(&tree, "sparse").contains("1099511627776 bytes"));
    }

    #[test]
    fn reading_a_growing_file_fails_at_the_limit() {
        let mut reader = BoundedReader::new(std::io::repeat(7), 10_000);
        let error = std::io::copy(&mut reader, &mut std::io::sink()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    }
}
