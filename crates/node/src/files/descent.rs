//! Walking directory trees of any depth with a constant number of descriptors and without recursion.
//!
//! A capsule may nest directories deeper than a stack, a table of descriptors or a path can hold. The walk therefore
//! keeps one descriptor, of the directory that it is in, and returns to the parent by `..`. It remembers which
//! directory the parent must be. If `..` is another directory, a capsule has moved one, and the walk ends.

pub(crate) mod removal;

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, chmod, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

/// How directories are opened: to be read, and never through a link.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Bytes of directory entries that are read in one call: a hundred names or more.
const ENTRIES_BYTES: usize = 8 * 1024;

/// A directory above the one that the walk is in.
#[derive(Debug)]
pub(crate) struct Level {
    identity: Identity,
    /// The name of the directory below it that the walk entered.
    pub(crate) entered: CString,
    /// Directories of this level that the walk has yet to enter.
    pending: Vec<CString>,
}

/// Device and inode.
type Identity = (u64, u64);

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    /// From the root of the walk to the directory of the entry.
    pub(crate) above: &'a [Level],
    pub(crate) name: &'a CStr,
}

/// What a walk does at each place.
pub(crate) trait Visitor {
    /// Handles an entry. True if it is a directory that the walk is to enter.
    fn entry(&mut self, entry: Entry<'_>) -> Result<bool, Errno>;

    /// Opens a directory that the walk enters; `None` skips it.
    fn enter(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno>;

    /// Handles a directory whose entries were all visited.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno>;
}

/// Opens `name` beneath `directory`, through no link and no mount point: what is mounted there is not ours.
pub(crate) fn open_beneath(
    directory: impl AsFd,
    name: impl Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(directory, name, flags, Mode::empty(), resolve)
}

/// Flags for a descriptor that stands for a directory, without any right to it.
pub(crate) const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Opens a directory that this program has made. Where capsules run as the user of the node, a capsule can remove the
/// permissions of its directories: the owner gets them back.
pub(crate) fn open_own(path: &Path) -> Result<OwnedFd, Errno> {
    match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            permit_owner(&rustix::fs::open(
                path,
                PLACE | OFlags::NOFOLLOW,
                Mode::empty(),
            )?)?;
            rustix::fs::open(path, DIRECTORY, Mode::empty())
        }
        opened => opened,
    }
}

/// Gives the owner of a directory all permissions. The descriptor stands for the directory meanwhile, so that no link can
/// take its place.
fn permit_owner(place: &OwnedFd) -> Result<(), Errno> {
    chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)
}

/// Visits everything below `root`, a directory that was just opened, in no particular order.
///
/// # Errors
/// [`Errno::STALE`] when a directory was moved while the walk was below it; otherwise what the file system or
/// `visitor` answers.
pub(crate) fn walk(root: OwnedFd, visitor: &mut impl Visitor) -> Result<(), Errno> {
    let mut above: Vec<Level> = Vec::new();
    let mut here = root;
    let mut pending = visit_entries(&here, &above, visitor)?;
    loop {
        if let Some(name) = pending.pop() {
            let Some(below) = visitor.enter(here.as_fd(), &name)? else {
                continue;
            };
            above.push(Level {
                identity: identity(&here)?,
                entered: name,
                pending,
            });
            here = below;
            pending = visit_entries(&here, &above, visitor)?;
        } else if let Some(level) = above.pop() {
            here = openat(&here, c"..", DIRECTORY, Mode::empty())?;
            if identity(&here)? != level.identity {
                return Err(Errno::STALE);
            }
            pending = level.pending;
            visitor.leave(here.as_fd(), &level.entered)?;
        } else {
            return Ok(());
        }
    }
}

/// Visits the entries of one directory; returns those to enter.
fn visit_entries(
    here: &OwnedFd,
    above: &[Level],
    visitor: &mut impl Visitor,
) -> Result<Vec<CString>, Errno> {
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(here, &mut buffer);
    let mut pending = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let entry = Entry {
            directory: here.as_fd(),
            above,
            name,
        };
        if visitor.entry(entry)? {
            pending.push(name.to_owned());
        }
    }
    Ok(pending)
}

fn identity(directory: &OwnedFd) -> Result<Identity, Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use rustix::fs::{CWD, mkdirat};

    use super::*;

    /// Nests `levels` directories below `root`, each with a file and an empty sibling where `is_full`; returns the
    /// deepest one.
    pub(crate) fn nest(root: &Path, levels: usize, is_full: bool) -> OwnedFd {
        let mut here = openat(CWD, root, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&here, "d", Mode::RWXU).unwrap();
            if is_full {
                mkdirat(&here, "empty", Mode::RWXU).unwrap();
                let flags = OFlags::CREATE | OFlags::WRONLY;
                openat(&here, "file", flags, Mode::RUSR).unwrap();
            }
            here = openat(&here, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        here
    }

    /// Moves the directory that it is in once it is below it.
    struct Mover<'a> {
        root: &'a Path,
        has_moved: bool,
    }

    impl Visitor for Mover<'_> {
        fn entry(&mut self, _: Entry<'_>) -> Result<bool, Errno> {
            Ok(true)
        }

        fn enter(
            &mut self,
            directory: BorrowedFd<'_>,
            name: &CStr,
        ) -> Result<Option<OwnedFd>, Errno> {
            let found = openat(directory, name, DIRECTORY, Mode::empty())?;
            if name == c"b" && !self.has_moved {
                std::fs::rename(self.root.join("a/b"), self.root.join("elsewhere")).unwrap();
                self.has_moved = true;
            }
            Ok(Some(found))
        }

        fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr) -> Result<(), Errno> {
            Ok(())
        }
    }

    #[test]
    fn moved_directory_ends_the_walk() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let root = || openat(CWD, directory.path(), DIRECTORY, Mode::empty()).unwrap();
        let mut mover = Mover {
            root: directory.path(),
            has_moved: false,
        };
        assert_eq!(walk(root(), &mut mover), Err(Errno::STALE));
        assert_eq!(walk(root(), &mut mover), Ok(()));
    }
}
