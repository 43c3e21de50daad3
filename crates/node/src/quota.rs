//! Watches how much a capsule writes: the file systems at hand have no hard limit, so this looks.
//!
//! Between two looks a capsule can write more than its limit; by how much depends on the disk.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::stage::blocking;
use crate::tree::Tree;

/// Time between two looks. Source: the settled points of the design.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A look may take this share of the time at the most: with many files it looks less often.
const LOOK_SHARE: u32 = 10;

/// Entries counted in one directory tree; a tree of more is over its limit by that alone.
const ENTRIES_MAX: usize = 200_000;

/// Returns once `directories` together take more than `bytes_max`, with what they take.
pub(crate) async fn exceeded(directories: Vec<PathBuf>, bytes_max: u64) -> u64 {
    loop {
        let looked = directories.clone();
        let (used, took) = blocking(move || {
            let start = Instant::now();
            let trees = looked
                .iter()
                .filter_map(|directory| Tree::open(directory).ok());
            let used = trees
                .map(|tree| tree.disk_usage(ENTRIES_MAX))
                .fold(0, u64::saturating_add);
            (used, start.elapsed())
        })
        .await;
        if used > bytes_max {
            return used;
        }
        tokio::time::sleep(LOOK_EVERY.max(took * LOOK_SHARE)).await;
    }
}
