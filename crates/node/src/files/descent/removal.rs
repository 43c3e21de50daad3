//! Removing directory trees of any depth and any modes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::{DIRECTORY, Entry, PLACE, Visitor, open_beneath, permit_owner, walk};

/// Removes the file or directory at `path` with everything below it; a missing one is fine. Blocks.
///
/// The depth of the tree costs neither stack nor descriptors, and directories without permissions for their owner
/// get them first. Links are removed, never followed. The directory that contains `path` is trusted.
///
/// # Errors
/// What the file system answers about the first entry that cannot be removed; a part of the tree is gone by then.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let name = std::ffi::CString::new(name.as_bytes())?;
    let parent = match openat(CWD, parent, DIRECTORY - OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        parent => parent?,
    };
    let mut removal = Removal;
    let root = Entry {
        directory: parent.as_fd(),
        above: &[],
        name: &name,
    };
    if !removal.entry(root)? {
        return Ok(());
    }
    if let Some(root) = removal.enter(parent.as_fd(), &name)? {
        walk(root, &mut removal)?;
        removal.leave(parent.as_fd(), &name)?;
    }
    Ok(())
}

struct Removal;

impl Visitor for Removal {
    fn entry(&mut self, entry: Entry<'_>) -> Result<bool, Errno> {
        match unlinkat(entry.directory, entry.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(false),
            // Linux answers the first, POSIX the second; the second may also mean that nobody may remove the entry.
            Err(Errno::ISDIR | Errno::PERM) => (),
            Err(errno) => return Err(errno),
        }
        match unlinkat(entry.directory, entry.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(false),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    fn enter(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        let found = match open_beneath(directory, name, DIRECTORY) {
            Err(Errno::ACCESS) => {
                permit_owner(&open_beneath(directory, name, PLACE)?)?;
                open_beneath(directory, name, DIRECTORY)
            }
            found => found,
        };
        match found {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
            Ok(found) => {
                let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
                if !mode.contains(Mode::RWXU) {
                    rustix::fs::fchmod(&found, Mode::RWXU)?;
                }
                Ok(Some(found))
            }
        }
    }

    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        unlinkat(parent, name, AtFlags::REMOVEDIR)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::files::descent::tests::nest;

    /// More levels than any stack or path can hold.
    const LEVELS: usize = 20_000;

    #[test]
    fn tree_of_20_000_levels_is_removed_on_a_small_stack() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tree");
        fs::create_dir(&path).unwrap();
        nest(&path, LEVELS, true);
        // The buffer of directory entries is the largest thing on the stack.
        let removing = std::thread::Builder::new().stack_size(256 * 1024);
        let removed = removing.spawn({
            let path = path.clone();
            move || remove_tree(&path)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn directories_without_permissions_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::create_dir_all(path.join("b/c")).unwrap();
        fs::write(path.join("b/file"), "").unwrap();
        for locked in ["b", ""] {
            fs::set_permissions(path.join(locked), Permissions::from_mode(0o0)).unwrap();
        }
        remove_tree(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let path = directory.path().join("tree");
        fs::create_dir(&path).unwrap();
        symlink(&kept, path.join("link")).unwrap();
        remove_tree(&path).unwrap();
        symlink(&kept, &path).unwrap();
        remove_tree(&path).unwrap();
        assert!(!path.is_symlink());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn missing_tree_and_missing_parent_are_fine() {
        let directory = tempfile::tempdir().unwrap();
        remove_tree(&directory.path().join("missing")).unwrap();
        remove_tree(&directory.path().join("missing/below")).unwrap();
    }

    #[test]
    fn file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "text").unwrap();
        remove_tree(&path).unwrap();
        assert!(!path.exists());
    }
}
