//! Reuses directories for one attempt after the other, because creating and removing them is most of the cost of a
//! quick run.
//!
//! The node empties directories, and reuses them only if they have not changed since their creation: owner, mode,
//! flags, extended attributes, and the size of directories. It removes directories with more than a few plain files.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, IFlags, Mode, OFlags};
use rustix::fs::{flistxattr, fstat, ioctl_getflags, unlinkat};
use rustix::io::Errno;

use crate::files::descent::{DIRECTORY, open_beneath};

/// Maximum number of plain files that the node removes from one directory to reuse it.
const FILES_MAX: usize = 64;

/// Maximum total length of the names of extended attributes that a system sets on every file.
const ATTRIBUTES_BYTES_MAX: usize = 256;

/// One directory of a skeleton, and the names in it.
pub(super) struct Part(pub(super) &'static str, pub(super) &'static [&'static str]);

/// The properties of a new directory or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Likeness {
    owner: (u32, u32),
    mode: u32,
    /// Zero for a file.
    size_bytes: i64,
    links: u64,
    /// None if the file system has no flags.
    flags: Option<IFlags>,
    attributes: Vec<u8>,
}

/// Records the properties of a new skeleton: its directories and the empty `file`.
pub(super) fn likenesses(root: &Path, parts: &[Part], file: &str) -> io::Result<Vec<Likeness>> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    let mut likenesses = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        likenesses.push(likeness(&open_beneath(&root, part.0, DIRECTORY)?)?);
    }
    likenesses.push(likeness(&open_beneath(&root, file, FILE)?)?);
    Ok(likenesses)
}

/// Empties the skeleton at `root`, except for the content of its `file`, which is replaced before the next container
/// starts. Whether it can be reused.
pub(super) fn reset(
    root: &Path,
    parts: &[Part],
    file: &str,
    expected: &[Likeness],
) -> io::Result<bool> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    for (part, expected) in parts.iter().zip(expected) {
        let mut entries = Dir::new(open_beneath(&root, part.0, DIRECTORY)?)?;
        if !empty(&mut entries, part.1)? || likeness(entries.fd()?)? != *expected {
            return Ok(false);
        }
    }
    Ok(Some(&likeness(&open_beneath(&root, file, FILE)?)?) == expected.last())
}

/// Removes all plain files except the `children`. Whether only the children are left.
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

const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
