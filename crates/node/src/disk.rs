//! Whether there is room on the disks on which runs work, and where copies of artifacts lie.
//!
//! A capsule that cannot write fails, but it is the host's failure and not its own; and a node that has no
//! room would fail one launch after the other, sooner than others could take them.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::disk::{Room, Space, reason, room};

/// The disks below some directories.
#[derive(Debug)]
pub(crate) struct Disks {
    /// What the operator wants to be kept for trees under way.
    reserve: Option<u64>,
    looked_at: Mutex<Vec<Disk>>,
    /// When one was full last, since the host's start.
    full_at: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Disk {
    directory: PathBuf,
    room: Room,
}

/// What may be begun, and why not more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) room: Room,
    /// None with enough room.
    pub(crate) reason: Option<String>,
}

impl Disks {
    pub(crate) fn new(
        directories: impl IntoIterator<Item = PathBuf>,
        reserve: Option<u64>,
    ) -> Self {
        let disk = |directory| Disk {
            directory,
            room: Room::Enough,
        };
        Self {
            reserve,
            looked_at: Mutex::new(directories.into_iter().map(disk).collect()),
            full_at: Mutex::default(),
        }
    }

    /// Looks at the disks `now`, which is the time since the host's start; the one with the least room counts.
    /// A disk that cannot be looked at is left to those who write.
    pub(crate) fn look(&self, now: Duration) -> Look {
        let mut worst = Look::default();
        for disk in lock(&self.looked_at).iter_mut() {
            let Ok(found) = rustix::fs::statvfs(&disk.directory) else {
                continue;
            };
            let space = Space {
                free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
                size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            };
            disk.room = room(disk.room, space, self.reserve);
            if disk.room > worst.room {
                let place = format!("the disk of {}", disk.directory.display());
                worst = Look {
                    room: disk.room,
                    reason: reason(disk.room, space, self.reserve, &place),
                };
            }
        }
        if worst.room == Room::Full {
            *lock(&self.full_at) = Some(now);
        }
        worst
    }

    /// Whether a disk was seen full at `since`, a time since the host's start, or later.
    pub(crate) fn was_full(&self, since: Duration) -> bool {
        lock(&self.full_at).is_some_and(|full_at| full_at >= since)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
