//! Snapshots of a workspace: all its files, links and directories in one compressed tar file.
//!
//! Hard links become copies. Sockets, pipes and devices are left out, because they cannot be restored.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use aod_domain::run::Snapshot;
use aod_ports::artifact_store::{ArtifactStore, LocalFile, StoreError};
use aod_services::program::blocking;
use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use tar::{Archive, Builder, EntryType, Header};
use tempfile::NamedTempFile;

use crate::files::descent::{DIRECTORY, Entry, Level, Visitor, open_beneath, open_own, walk};

/// Fast: the disk is slower than this level.
const COMPRESSION_LEVEL: i32 = 1;

/// Why a workspace cannot be stored or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// No node can store it; the author of the steps can fix that.
    #[error("{0}")]
    Workspace(String),
    #[error("the node cannot read or write the workspace")]
    Io(#[from] io::Error),
    #[error("the node cannot store or fetch the workspace")]
    Store(#[from] StoreError),
}

/// Characters of a path that an error shows, from its end.
const SHOWN_MAX: usize = 200;

/// Longest path in a workspace, in bytes: with the path of the workspace, Linux opens at most 4,095.
const PATH_BYTES_MAX: usize = 3_000;

/// Maximum of all paths in a workspace, in bytes: the node that restores it has those of the directories in memory.
const PATHS_BYTES_MAX: usize = 64 << 20;

/// Stores everything below `workspace`, at most `bytes_max` of contents. Nothing may change meanwhile.
pub(crate) async fn store(
    workspace: PathBuf,
    bytes_max: u64,
    artifacts: &dyn ArtifactStore,
) -> Result<Snapshot, SnapshotError> {
    let packed = blocking(move || pack(&workspace, bytes_max)).await?;
    let stored = artifacts.put_file(packed.path(), None).await?;
    Ok(Snapshot {
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    })
}

/// Fills an empty `workspace`.
pub(crate) async fn restore(
    snapshot: Snapshot,
    workspace: PathBuf,
    artifacts: &dyn ArtifactStore,
) -> Result<(), SnapshotError> {
    let Snapshot { digest, size_bytes } = snapshot;
    let file = artifacts.get_file(digest, size_bytes).await?;
    Ok(blocking(move || unpack(&file, &workspace)).await?)
}

fn pack(workspace: &Path, bytes_max: u64) -> Result<NamedTempFile, SnapshotError> {
    // Beside the workspace, so that a full disk is noticed where it is counted.
    let beside = workspace.parent().unwrap_or(workspace);
    let file = NamedTempFile::new_in(beside)?;
    let encoder = zstd::Encoder::new(file.reopen()?, COMPRESSION_LEVEL)?;
    let mut packer = Packer {
        builder: Builder::new(encoder),
        bytes_left: bytes_max,
        paths_left: PATHS_BYTES_MAX,
        refusal: None,
    };
    let root = open_own(workspace).map_err(io::Error::from)?;
    let walked = walk(root, &mut packer);
    if let Some(text) = packer.refusal {
        return Err(SnapshotError::Workspace(text));
    }
    walked.map_err(io::Error::from)?;
    packer.builder.into_inner()?.finish()?.flush()?;
    Ok(file)
}

fn unpack(file: &LocalFile, workspace: &Path) -> io::Result<()> {
    let decoder = zstd::Decoder::new(File::open(file.path())?)?;
    let mut archive = Archive::new(decoder);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(rustix::process::geteuid().is_root());
    archive.unpack(workspace)
}

/// Appends each entry to an archive.
struct Packer<W: Write> {
    builder: Builder<W>,
    /// Bytes of contents, and of paths, that it may still take.
    bytes_left: u64,
    paths_left: usize,
    /// Why no node can store the workspace.
    refusal: Option<String>,
}

impl<W: Write> Packer<W> {
    /// Ends the walk.
    fn refuse(&mut self, path: &Path, reason: &str) -> io::Error {
        let end: String = path
            .to_string_lossy()
            .chars()
            .rev()
            .take(SHOWN_MAX)
            .collect();
        let end: String = end.chars().rev().collect();
        self.refusal = Some(format!("{end}: {reason}"));
        Errno::CANCELED.into()
    }

    fn append(&mut self, entry: Entry<'_>, stat: &Stat) -> io::Result<bool> {
        let path = path_of(entry.above, entry.name);
        let length = path.as_os_str().len();
        if length > PATH_BYTES_MAX {
            let reason = format!("the path has {length} bytes; expected at most {PATH_BYTES_MAX}");
            return Err(self.refuse(&path, &reason));
        }
        let Some(left) = self.paths_left.checked_sub(length) else {
            let reason = format!("all paths together exceed {PATHS_BYTES_MAX} bytes");
            return Err(self.refuse(&path, &reason));
        };
        self.paths_left = left;
        let mut header = header(stat);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                header.set_entry_type(EntryType::Directory);
                self.builder.append_data(&mut header, path, io::empty())?;
                return Ok(true);
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let file = match open_beneath(entry.directory, entry.name, flags) {
                    // Where capsules run as the user of the node.
                    Err(Errno::ACCESS) => return Err(self.refuse(&path, "the file cannot be read")),
                    opened => opened?,
                };
                let size_bytes = u64::try_from(fstat(&file)?.st_size).unwrap_or(u64::MAX);
                let Some(left) = self.bytes_left.checked_sub(size_bytes) else {
                    let reason =
                        "the sizes of all files together exceed the disk limit of the task";
                    return Err(self.refuse(&path, reason));
                };
                self.bytes_left = left;
                header.set_entry_type(EntryType::Regular);
                header.set_size(size_bytes);
                self.builder
                    .append_data(&mut header, path, File::from(file))?;
            }
            FileType::Symlink => {
                let target = readlinkat(entry.directory, entry.name, Vec::new())?;
                header.set_entry_type(EntryType::Symlink);
                let target = Path::new(OsStr::from_bytes(target.to_bytes()));
                self.builder.append_link(&mut header, path, target)?;
            }
            _ => (),
        }
        Ok(false)
    }
}

impl<W: Write> Visitor for Packer<W> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<bool, Errno> {
        let stat = statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let appended = self.append(entry, &stat);
        appended.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn enter(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        open_beneath(directory, name, DIRECTORY).map(Some)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr) -> Result<(), Errno> {
        Ok(())
    }
}

fn header(stat: &Stat) -> Header {
    let mut header = Header::new_gnu();
    // Without set-user-id: the user of another host is another one.
    header.set_mode(stat.st_mode & 0o1777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

fn path_of(above: &[Level], name: &CStr) -> PathBuf {
    let names = above.iter().map(|level| level.entered.as_c_str());
    let names = names.chain([name]);
    names
        .map(|name| Path::new(OsStr::from_bytes(name.to_bytes())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tempfile::tempdir;

    use super::*;

    fn refusal(workspace: &Path, bytes_max: u64) -> String {
        match pack(workspace, bytes_max) {
            Err(SnapshotError::Workspace(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn workspace_is_restored_with_links_modes_and_names() {
        let (from, to) = (
            tempdir().expect("a directory"),
            tempdir().expect("a directory"),
        );
        let source = from.path().join("workspace");
        let odd = OsStr::from_bytes(b"odd \xff\nname");
        fs::create_dir_all(source.join("a/b")).expect("directories");
        fs::write(source.join("a/b/file"), "text").expect("a file");
        fs::write(source.join(odd), "").expect("a file");
        fs::hard_link(source.join("a/b/file"), source.join("hard")).expect("a link");
        symlink("../../outside", source.join("a/link")).expect("a link");
        symlink("/etc/passwd", source.join("absolute")).expect("a link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            source.join("fifo"),
            FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a pipe");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(&source.join("a/b/file"), 0o4640);
        mode(&source.join("a/b"), 0o500);
        let cache = aod_artifacts::CacheConfig {
            directory: to.path().join("cache"),
            bytes_max: 1 << 20,
        };
        let url = format!("file://{}", to.path().join("store").display());
        let store = aod_artifacts::open(&url, &cache).expect("a store");
        let snapshot = store_in(&source, store.as_ref()).await;
        let target = to.path().join("workspace");
        fs::create_dir(&target).expect("a directory");
        restore(snapshot, target.clone(), store.as_ref())
            .await
            .expect("restored");
        assert_eq!(
            fs::read_to_string(target.join("hard")).expect("a file"),
            "text"
        );
        assert!(target.join(odd).exists());
        assert!(!target.join("fifo").exists());
        let link = fs::read_link(target.join("a/link")).expect("a link");
        assert_eq!(link, Path::new("../../outside"));
        let mode_of = |path: &str| {
            let metadata = fs::metadata(target.join(path)).expect("an entry");
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!((mode_of("a/b/file"), mode_of("a/b")), (0o640, 0o500));
        mode(&source.join("a/b"), 0o700);
        mode(&target.join("a/b"), 0o700);
    }

    async fn store_in(workspace: &Path, artifacts: &dyn ArtifactStore) -> Snapshot {
        let stored = store(workspace.to_owned(), 1 << 20, artifacts).await;
        stored.expect("stored")
    }

    #[test]
    fn sparse_file_beyond_the_limit_is_refused_unread() {
        let directory = tempdir().expect("a directory");
        let file = File::create(directory.path().join("sparse")).expect("a file");
        file.set_len(8 << 40).expect("a size");
        let text = refusal(directory.path(), 8 << 30);
        assert!(
            text.starts_with("sparse: the sizes of all files together"),
            "{text}"
        );
    }

    #[test]
    fn path_that_cannot_be_restored_is_refused() {
        let directory = tempdir().expect("a directory");
        let mut here = rustix::fs::open(directory.path(), DIRECTORY, rustix::fs::Mode::empty())
            .expect("a directory");
        let name = "d".repeat(250);
        for _ in 0..13 {
            rustix::fs::mkdirat(&here, &name, rustix::fs::Mode::RWXU).expect("a directory");
            here = open_beneath(&here, &name, DIRECTORY).expect("a directory");
        }
        let text = refusal(directory.path(), 1 << 20);
        assert!(
            text.contains("the path has 3011 bytes; expected at most 3000"),
            "{text}"
        );
    }
}
