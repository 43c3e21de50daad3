//! Checks the free space on the disks of the runs, of the artifact cache and of the engine.
//!
//! A failed write on a full disk is the host's failure, not the capsule's. A node with a full disk would fail launch
//! after launch, faster than other nodes could take them.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use aod_domain::disk::Room;
use aod_services::disk::{self, Measurement};

use crate::lock::lock;

/// The disks of some directories.
#[derive(Debug)]
pub(crate) struct Disks {
    disks: disk::Disks,
    /// The last time at which a disk was full, since the boot of the host.
    full_at: Mutex<Option<Duration>>,
}

impl Disks {
    pub(crate) fn new(
        directories: impl IntoIterator<Item = PathBuf>,
        reserve: Option<u64>,
    ) -> Self {
        Self {
            disks: disk::Disks::new("the", directories, reserve),
            full_at: Mutex::default(),
        }
    }

    /// Adds the disk of a directory.
    pub(crate) fn add(&self, directory: PathBuf) {
        self.disks.add(directory);
    }

    /// Checks the disks; `now` is the time since the boot of the host.
    pub(crate) fn measure(&self, now: Duration) -> Measurement {
        let measured = self.disks.measure();
        if measured.room == Room::Full {
            *lock(&self.full_at) = Some(now);
        }
        measured
    }

    /// Whether a check found a disk full at `since` (since the boot of the host) or later.
    pub(crate) fn was_full(&self, since: Duration) -> bool {
        lock(&self.full_at).is_some_and(|full_at| full_at >= since)
    }
}
