//! Watches how much a capsule writes: the file systems at hand have no hard limit, so this looks.
//!
//! Between two looks a capsule can write more than its limit; by how much depends on the disk. What
//! it hands on is counted once more when it is collected.

use std::path::PathBuf;
use std::time::Duration;

use aod_ports::program::blocking;
use tokio::time::Instant;

use crate::tree::Tree;
use crate::workdir::GIVEN;

/// A look may take this share of the time at the most: with many files it looks less often.
const LOOK_SHARE: u32 = 10;

/// Entries counted in one directory tree; a tree of more is over its limit by that alone.
const ENTRIES_MAX: usize = 200_000;

/// Returns once a capsule has written more than `bytes_max`, with what it has written.
pub(crate) async fn exceeded(
    io: PathBuf,
    workspace: PathBuf,
    bytes_max: u64,
    look_every: Duration,
) -> u64 {
    let directories = [(io, GIVEN.as_slice()), (workspace, [].as_slice())];
    let mut pause = look_every;
    loop {
        tokio::time::sleep(pause).await;
        let looked = directories.clone();
        let start = Instant::now();
        let used = blocking(move || {
            let used = looked.iter().filter_map(|(directory, left_out)| {
                let tree = Tree::open(directory).ok()?;
                Some(tree.disk_usage(ENTRIES_MAX, left_out))
            });
            used.fold(0, u64::saturating_add)
        })
        .await;
        if used > bytes_max {
            return used;
        }
        pause = look_every.max(start.elapsed() * LOOK_SHARE);
    }
}
