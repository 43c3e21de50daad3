//! How many bytes of disk a tree takes that a capsule is writing.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, statat};
use rustix::io::Errno;

use crate::files::descent::{DIRECTORY, Entry, Visitor, open_beneath, walk};

/// The unit of `st_blocks`, in bytes. Source: `stat(2)`.
const BLOCK_BYTES: u64 = 512;

/// What a count found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// All that was counted, in bytes of blocks.
    pub(crate) bytes: u64,
    /// Why it is not everything.
    pub(crate) gap: Option<Gap>,
}

/// Why a count is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// There are more entries than a count visits.
    Entries { max: usize },
    /// A directory was moved while the count was below it: the next count may succeed.
    Moved,
    /// The file system refuses to show a part of the tree.
    Unreadable(Errno),
}

impl fmt::Display for Gap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries { max } => write!(formatter, "the capsule has more than {max} files"),
            Self::Moved => formatter.write_str("the capsule keeps moving its directories"),
            Self::Unreadable(errno) => {
                write!(
                    formatter,
                    "the node cannot read a directory of the capsule: {errno}"
                )
            }
        }
    }
}

/// Counts the blocks of everything below `directory`, at any depth, whatever the names are. At most `entries_max`
/// entries are visited. Entries in `left_out`, paths relative to `directory`, are not counted. Blocks.
pub(crate) fn count(directory: &Path, entries_max: usize, left_out: &[&str]) -> Count {
    let mut counter = Counter {
        left_out,
        entries_max,
        entries: 0,
        bytes: 0,
    };
    let walked = rustix::fs::open(directory, DIRECTORY, Mode::empty())
        .and_then(|root| walk(root, &mut counter));
    let gap = walked.err().map(|errno| match errno {
        Errno::OVERFLOW => Gap::Entries { max: entries_max },
        Errno::STALE => Gap::Moved,
        errno => Gap::Unreadable(errno),
    });
    Count {
        bytes: counter.bytes,
        gap,
    }
}

struct Counter<'a> {
    left_out: &'a [&'a str],
    entries_max: usize,
    entries: usize,
    bytes: u64,
}

impl Counter<'_> {
    fn leaves_out(&self, entry: Entry<'_>) -> bool {
        let above = entry.above.iter().map(|level| level.entered.as_c_str());
        let names = || above.clone().chain([entry.name]).map(CStr::to_bytes);
        self.left_out
            .iter()
            .any(|path| path.split('/').map(str::as_bytes).eq(names()))
    }
}

impl Visitor for Counter<'_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<bool, Errno> {
        if self.leaves_out(entry) {
            return Ok(false);
        }
        if self.entries == self.entries_max {
            return Err(Errno::OVERFLOW);
        }
        self.entries += 1;
        let stat = match statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            stat => stat?,
        };
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    fn enter(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        match open_beneath(directory, name, DIRECTORY) {
            // Removed or replaced since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr) -> Result<(), Errno> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt as _;

    use rustix::fs::OFlags;

    use super::*;
    use crate::files::descent::removal::remove_tree;
    use crate::files::descent::tests::nest;

    const MEBIBYTE: u64 = 1 << 20;

    fn bytes(directory: &Path, left_out: &[&str]) -> u64 {
        let count = count(directory, 200_000, left_out);
        assert_eq!(count.gap, None);
        count.bytes
    }

    #[test]
    fn blocks_are_counted_not_sizes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        File::create(root.join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        fs::create_dir_all(root.join("a/sub")).unwrap();
        fs::write(root.join("a/sub/full"), vec![1; 1 << 20]).unwrap();
        assert!((MEBIBYTE..2 * MEBIBYTE).contains(&bytes(root, &[])));
        assert!(bytes(root, &["a/sub"]) < MEBIBYTE);
        assert!(bytes(root, &["sub"]) >= MEBIBYTE);
    }

    #[test]
    fn blocks_below_any_depth_count() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        let deepest = nest(&root, 5_000, false);
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::openat(&deepest, "file", flags, Mode::RUSR).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
        assert!(bytes(&root, &[]) >= MEBIBYTE);
        remove_tree(&root).unwrap();
    }

    #[test]
    fn blocks_below_names_that_are_not_utf8_count() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join(OsStr::from_bytes(b"\xff"));
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("full"), vec![1; 1 << 20]).unwrap();
        assert!(bytes(directory.path(), &[]) >= MEBIBYTE);
    }

    #[test]
    fn tree_with_more_entries_than_are_visited_is_not_counted_whole() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(count(directory.path(), 3, &[]).gap, None);
        let gap = count(directory.path(), 2, &[]).gap;
        assert_eq!(gap, Some(Gap::Entries { max: 2 }));
    }

    #[test]
    fn directory_that_is_missing_is_not_counted() {
        let gap = count(Path::new("/nonexistent"), 1, &[]).gap;
        assert_eq!(gap, Some(Gap::Unreadable(Errno::NOENT)));
    }
}
