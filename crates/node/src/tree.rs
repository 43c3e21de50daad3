//! Reading trees that a capsule writes, while it writes: beneath a directory handle, following
//! nothing, regular files only.
//!
//! A capsule may swap any name at any time. So every file is opened once, beneath the handle of
//! the tree (`openat2` with `RESOLVE_BENEATH`, no symbolic links, no mount points crossed), and all
//! that is said about it is said about the handle.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use aod_domain::file_name::FileName;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use rustix::io::Errno;
use thiserror::Error;

/// Files that one hand-over (a call, a result) may have: 10,000, so that a walk is bounded.
pub(crate) const FILES_MAX: usize = 10_000;

/// Directory levels of a tree. Source: the depth of a [`FileName`].
const DEPTH_MAX: usize = 16;

/// A tree that cannot be trusted.
#[derive(Debug)]
pub(crate) struct Tree {
    directory: OwnedFd,
}

/// What a name in a tree stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// Why a name in a tree is not handed over.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error("{name} is not there")]
    Missing { name: String },
    #[error("{name} is {found}; expected a regular file")]
    NotRegular { name: String, found: &'static str },
    #[error(
        "{name} leads out of its directory or through a link; expected a path of plain directories"
    )]
    Escapes { name: String },
    #[error("{name} is linked to by another name; expected a file with one")]
    Linked { name: String },
    #[error("{name} has {size_bytes} bytes; {size_bytes_max} are left for this hand-over")]
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

impl Tree {
    /// Opens the directory at `path`, which only the node can have made.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let directory = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { directory })
    }

    /// What `name` is, if it is a file or directory that can be handed over.
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
        // Without NONBLOCK a FIFO would hold the caller until somebody writes to it.
        let handle = self
            .open_beneath(name, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(|errno| refusal(name, errno))?;
        let stat = fstat(&handle).map_err(|errno| refusal(name, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => (),
            other => {
                return Err(Refused::NotRegular {
                    name: name.into(),
                    found: describe(other),
                });
            }
        }
        // None at all: another file has taken its name since it was opened.
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

    /// Whether there is nothing in it: then nothing has to be walked, which is for another thread.
    pub(crate) fn is_empty(&self) -> bool {
        let entries = self.open_beneath(".", DIRECTORY).and_then(Dir::new);
        entries.is_ok_and(|entries| {
            entries
                .flatten()
                .all(|entry| [c".", c".."].contains(&entry.file_name()))
        })
    }

    /// All files at and below `start` (empty for the whole tree) in the order of their names, and
    /// what there is besides that cannot be handed over.
    pub(crate) fn walk(&self, start: &str) -> Result<Listing, Refused> {
        let mut listing = Listing::default();
        self.walk_into(start, 0, &mut listing)?;
        Ok(listing)
    }

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
            self.note_entry(&path, entry.file_type(), depth, listing)?;
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
        // Some file systems do not tell the kind when listing.
        let kind = match kind {
            FileType::Unknown => match self.open_beneath(path, OFlags::PATH).and_then(fstat) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(errno) => {
                    listing.refused.push(refusal(path, errno));
                    return Ok(());
                }
            },
            kind => kind,
        };
        match (kind, FileName::parse(path)) {
            (FileType::Directory, Ok(_)) => self.walk_into(path, depth + 1, listing)?,
            (FileType::RegularFile, Ok(name)) => drop(listing.files.insert(name)),
            (FileType::RegularFile | FileType::Directory, Err(rejection)) => {
                listing.refused.push(rejection.into());
            }
            (other, _) => listing.refused.push(Refused::NotRegular {
                name: path.into(),
                found: describe(other),
            }),
        }
        Ok(())
    }

    /// How much disk the tree takes, in bytes of blocks; of a tree of more than `limit_entries`
    /// entries more than anybody may. What is `left_out`, by names from here, is not looked at.
    pub(crate) fn disk_usage(&self, limit_entries: usize, left_out: &[&str]) -> u64 {
        let mut left = limit_entries;
        let mut total = 0;
        let mut pending = vec![(String::from("."), 0)];
        while let Some((directory, depth)) = pending.pop() {
            let Ok(mut entries) = self.open_beneath(&directory, DIRECTORY).and_then(Dir::new)
            else {
                continue;
            };
            while let Some(Ok(entry)) = entries.read() {
                let name = entry.file_name().to_string_lossy();
                if name == "." || name == ".." {
                    continue;
                }
                let path = format!("{directory}/{name}");
                if left_out.contains(&&path["./".len()..]) {
                    continue;
                }
                if left == 0 {
                    return u64::MAX;
                }
                left -= 1;
                let stat = entries
                    .fd()
                    .and_then(|here| statat(here, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW));
                let Ok(stat) = stat else {
                    continue;
                };
                total += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                    && depth < USAGE_DEPTH_MAX
                {
                    pending.push((path, depth + 1));
                }
            }
        }
        total
    }

    fn open_beneath(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        openat2(
            &self.directory,
            name,
            flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
            resolve,
        )
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The unit of `st_blocks`. Source: `stat(2)`.
const BLOCK_BYTES: u64 = 512;

/// Levels that are looked into for disk usage: deeper than any name that is handed over, as a
/// workspace may hold what it likes.
const USAGE_DEPTH_MAX: usize = 64;

/// What a walk found.
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
        // What `open` says of a socket, or of a device without a driver.
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

/// Reads at most `size_bytes_max` bytes, and fails on the next: the size of a file says little
/// about how much comes out of it while somebody writes.
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
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::open(directory.path()).unwrap();
        (directory, tree)
    }

    fn refusal_of(tree: &Tree, name: &str) -> String {
        tree.open_file(name, 1_000).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_file_is_opened() {
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
                .unwrap()
                .files()
                .map(FileName::as_str)
                .collect::<Vec<_>>(),
            ["sub/a.txt"]
        );
    }

    #[test]
    fn links_lead_nowhere() {
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
        let listing = tree.walk("").unwrap();
        assert_eq!((listing.files().count(), listing.refused.len()), (0, 2));
    }

    #[test]
    fn a_fifo_does_not_block() {
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
    fn a_hard_link_is_refused() {
        let (directory, tree) = tree();
        std::fs::write(directory.path().join("a"), "x").unwrap();
        std::fs::hard_link(directory.path().join("a"), directory.path().join("b")).unwrap();
        assert!(refusal_of(&tree, "b").contains("another name"));
    }

    #[test]
    fn a_sparse_giant_is_refused_by_its_size() {
        let (directory, tree) = tree();
        File::create(directory.path().join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(refusal_of(&tree, "sparse").contains("1099511627776 bytes"));
    }

    #[test]
    fn a_growing_file_ends_in_an_error() {
        let mut reader = BoundedReader::new(std::io::repeat(7), 10_000);
        let error = std::io::copy(&mut reader, &mut std::io::sink()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn disk_usage_counts_blocks_not_sizes() {
        let (directory, tree) = tree();
        File::create(directory.path().join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/full"), vec![1; 1 << 20]).unwrap();
        let usage = tree.disk_usage(1_000, &[]);
        assert!((1 << 20..2 << 20).contains(&usage), "{usage}");
        let usage = tree.disk_usage(1_000, &["sub"]);
        assert!(usage < 1 << 20, "{usage}");
    }
}
