//! Counts the blocks of deleted files that processes of the container still have open. The node cannot see such files:
//! they are in no directory.
//!
//! A count is a lower bound: it ends after a fixed time, because the gate must enforce its lease, and it does not see
//! processes that forbid it, tables of descriptors of single threads, descriptors in messages of sockets, and files that
//! are only mapped into memory.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, stat, statfs};
use rustix::process::{Pid, getpid};

use crate::protocol::Deleted;

/// Maximum duration of a count: some 20,000 descriptors on a free processor, and a small part of a lease.
const DURATION_MAX: Duration = Duration::from_millis(50);

/// The unit of `st_blocks`, in bytes. Source: `stat(2)`.
const BLOCK_BYTES: u64 = 512;

/// The type of file systems in memory. Source: the kernel's `magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Counts the deleted files of all processes except this one.
pub(crate) fn count() -> Deleted {
    let end = Instant::now() + DURATION_MAX;
    // Outside a container (in tests) the processes belong to others.
    let processes = (getpid() == Pid::INIT).then(|| fs::read_dir("/proc"));
    let mut counted = HashSet::new();
    let mut deleted = Deleted { bytes: 0 };
    let files = processes
        .into_iter()
        .flatten()
        .flatten()
        .flatten()
        .take_while(|_| Instant::now() < end)
        .filter(is_other_process)
        // An error: the process has ended, or forbids it.
        .filter_map(|process| fs::read_dir(process.path().join("fd")).ok())
        .flatten()
        .flatten()
        .take_while(|_| Instant::now() < end)
        .filter_map(|descriptor| deleted_file(&descriptor));
    for (file, bytes) in files {
        if counted.insert(file) {
            deleted.bytes = deleted.bytes.saturating_add(bytes);
        }
    }
    deleted
}

fn is_other_process(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let pid = name.to_str().and_then(|name| name.parse::<i32>().ok());
    pid.is_some_and(|pid| pid != getpid().as_raw_nonzero().get())
}

/// Device, inode and bytes of blocks of a deleted file on a disk; none for every other descriptor.
fn deleted_file(descriptor: &DirEntry) -> Option<((u64, u64), u64)> {
    let path = descriptor.path();
    let found = stat(&path).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || found.st_nlink != 0 || found.st_blocks == 0 {
        return None;
    }
    // The memory limit counts files in memory.
    let is_in_memory = statfs(&path).is_ok_and(|system| system.f_type == TMPFS_MAGIC);
    let bytes = u64::try_from(found.st_blocks).unwrap_or(0) * BLOCK_BYTES;
    (!is_in_memory).then_some(((found.st_dev, found.st_ino), bytes))
}
