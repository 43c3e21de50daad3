//! Whether there is room on the disk on which runs work.
//!
//! A capsule that cannot write fails, but it is the host's failure and not its own; and a node that has no
//! room would fail one launch after the other, sooner than others could take them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Below so many bytes a disk counts as full: as much as the output of one container may take
/// ([`crate::config::LOG_BYTES_MAX_DEFAULT`]).
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The disk below a directory.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    /// When it was full last, since the host's start.
    full_at: Mutex<Option<Duration>>,
}

impl Disk {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            full_at: Mutex::default(),
        }
    }

    /// Looks at the disk `now`, which is the time since the host's start; answers why there is no room,
    /// if there is none. A disk that cannot be looked at is left to those who write.
    pub(crate) fn look(&self, now: Duration) -> Option<String> {
        let found = rustix::fs::statvfs(&self.directory).ok()?;
        let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        if free_bytes >= ROOM_BYTES_MIN {
            return None;
        }
        *self.full_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        let directory = self.directory.display();
        Some(format!(
            "the disk of {directory} is full: {free_bytes} bytes are left"
        ))
    }

    /// Whether the disk was seen full at `since`, a time since the host's start, or later.
    pub(crate) fn was_full(&self, since: Duration) -> bool {
        let full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        full_at.is_some_and(|full_at| full_at >= since)
    }
}
