//! Directories that serve one attempt after the other, as making and removing them is most of what a
//! quick run costs its host.
//!
//! They are emptied, and used again only if nothing about them differs from when they were made: owner,
//! mode, flags, extended attributes and, of directories, their size. What held more than a few plain
//! files is removed instead.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, IFlags, Mode, OFlags, ResolveFlags};
use rustix::fs::{flistxattr, fstat, ioctl_getflags, openat2, unlinkat};
use rustix::io::Errno;

/// Plain files of one directory that are worth removing one by one.
const FILES_MAX: usize = 64;

/// Names of the extended attributes that a system gives to every file, together; more are not ours.
const ATTRIBUTES_BYTES_MAX: usize = 256;

/// One directory of a skeleton, and what is in it.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) children: &'static [&'static str],
}

/// What a directory or file is like when it is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Likeness {
    owner: (u32, u32),
    mode: u32,
    /// Of a directory.
    size_bytes: i64,
    links: u64,
    /// None where the file system has no such thing.
    flags: Option<IFlags>,
    attributes: Vec<u8>,
}

/// Notes what a new skeleton is like: its directories and the empty `file`.
pub(super) fn likenesses(root: &Path, parts: &[Part], file: &str) -> io::Result<Vec<Likeness>> {
    let root = open_root(root)?;
    let mut likenesses = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        likenesses.push(likeness(&open(&root, part.name, DIRECTORY)?)?);
    }
    likenesses.push(likeness(&open(&root, file, FILE)?)?);
    Ok(likenesses)
}

/// Empties the skeleton at `root`, but for the content of its `file`, which is replaced before the next
/// container starts. Whether it may be used again.
pub(super) fn reset(
    root: &Path,
    parts: &[Part],
    file: &str,
    expected: &[Likeness],
) -> io::Result<bool> {
    let root = open_root(root)?;
    for (part, expected) in parts.iter().zip(expected) {
        let mut entries = Dir::new(open(&root, part.name, DIRECTORY)?)?;
        if !empty(&mut entries, part.children)? || likeness(entries.fd()?)? != *expected {
            return Ok(false);
        }
    }
    Ok(Some(&likeness(&open(&root, file, FILE)?)?) == expected.last())
}

/// Removes all plain files but leaves the `children`. Whether they are all that is left.
fn empty(entries: &mut Dir, children: &[&str]) -> io::Result<bool> {
    let mut removed = 0;
    let mut kept = 0;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        if children
            .iter()
            .any(|child| child.as_bytes() == name.to_bytes())
        {
            kept += 1;
            continue;
        }
        match unlinkat(entries.fd()?, name, AtFlags::empty()) {
            Ok(()) if removed < FILES_MAX => removed += 1,
            // Too many, or a directory.
            Ok(()) | Err(Errno::ISDIR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(kept == children.len())
}

fn likeness(handle: impl AsFd) -> Result<Likeness, Errno> {
    let handle = handle.as_fd();
    let stat = fstat(handle)?;
    let mut attributes = vec![0; ATTRIBUTES_BYTES_MAX];
    let length = match flistxattr(handle, &mut attributes[..]) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    attributes.truncate(length);
    Ok(Likeness {
        owner: (stat.st_uid, stat.st_gid),
        mode: stat.st_mode,
        size_bytes: match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => stat.st_size,
            _ => 0,
        },
        links: stat.st_nlink,
        flags: ioctl_getflags(handle).ok(),
        attributes,
    })
}

const DIRECTORY: OFlags = OFlags::DIRECTORY;

const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty())
}

fn open(root: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(root, name, flags, Mode::empty(), resolve)
}
