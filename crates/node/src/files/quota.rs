//! Watches how much a capsule writes: the file systems at hand have no hard limit, so the node counts.
//!
//! Between two counts a capsule can write more than its limit; by how much depends on the disk. The node counts
//! outputs again when it collects them. A tree that cannot be counted is over the limit. Deleted files that are still
//! open count as far as the gate finds them.

mod usage;

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aod_ports::container_runtime::{Container, IoPaths};
use aod_services::error::chain;
use aod_services::program::blocking;
use tokio::time::Instant;
use tracing::debug;

pub(crate) use self::usage::Gap;
use self::usage::count;
use crate::files::workdir::GIVEN;

/// Counting takes at most this share of the time: with many files the node counts less often.
const COUNT_SHARE: u32 = 10;

/// Entries counted in one directory tree; a tree of more is over its limit by that alone.
const ENTRIES_MAX: usize = 200_000;

/// Consecutive counts that a capsule may disturb by moving directories.
const DISTURBED_MAX: u32 = 25;

/// Why a capsule is over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    Bytes(u64),
    Uncounted(Gap),
}

impl fmt::Display for Excess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "the capsule wrote {bytes} bytes"),
            Self::Uncounted(gap) => write!(
                formatter,
                "the node cannot measure the disk usage of the capsule: {gap}"
            ),
        }
    }
}

/// Returns once a capsule has written more than `bytes_max`, or something that cannot be counted.
pub(crate) async fn exceeded(
    paths: &IoPaths,
    container: &dyn Container,
    bytes_max: u64,
    count_every: Duration,
) -> Excess {
    let deleted = AtomicU64::new(0);
    tokio::select! {
        excess = watch_directories(paths, &deleted, bytes_max, count_every) => excess,
        never = watch_deleted(container, &deleted, count_every) => match never {},
    }
}

async fn watch_directories(
    paths: &IoPaths,
    deleted: &AtomicU64,
    bytes_max: u64,
    count_every: Duration,
) -> Excess {
    let directories = [
        (paths.io.clone(), GIVEN.as_slice()),
        (paths.workspace.clone(), &[]),
        (paths.volumes.clone(), &[]),
    ];
    let mut pause = count_every;
    let mut disturbed = 0;
    loop {
        tokio::time::sleep(pause).await;
        let counted = directories.clone();
        let start = Instant::now();
        // Read before the count: a file that is deleted meanwhile counts once.
        let deleted = deleted.load(Ordering::Relaxed);
        let counts = blocking(move || {
            counted.map(|(directory, left_out)| count(&directory, ENTRIES_MAX, left_out))
        })
        .await;
        let bytes = counts.iter().map(|count| count.bytes);
        let bytes = bytes.fold(deleted, u64::saturating_add);
        if bytes > bytes_max {
            return Excess::Bytes(bytes);
        }
        match counts.iter().find_map(|count| count.gap) {
            None => disturbed = 0,
            Some(Gap::Moved) if disturbed < DISTURBED_MAX => disturbed += 1,
            Some(gap) => return Excess::Uncounted(gap),
        }
        pause = count_every.max(start.elapsed() * COUNT_SHARE);
    }
}

/// Counts deleted files that are still open, beside the directories: a gate that is slow, because its capsule takes all
/// processor time, must not delay their count.
async fn watch_deleted(
    container: &dyn Container,
    deleted: &AtomicU64,
    count_every: Duration,
) -> Infallible {
    let mut pause = count_every;
    loop {
        tokio::time::sleep(pause).await;
        let start = Instant::now();
        match container.deleted_bytes().await {
            Ok(bytes) => deleted.store(bytes, Ordering::Relaxed),
            // The gate is slow or has ended: the last count stays.
            Err(error) => debug!(error = %chain(&error), "deleted files were not counted"),
        }
        pause = count_every.max(start.elapsed() * COUNT_SHARE);
    }
}
