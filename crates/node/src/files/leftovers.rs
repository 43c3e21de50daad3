//! Trees that could not be removed yet: they are set aside, reported and tried again.
//!
//! A capsule can make trees that take long to remove, and a file system can refuse to remove one. Neither keeps the
//! node from starting or from taking work.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aod_services::program::blocking;
use tracing::warn;

use crate::files::descent::removal::remove_tree;

/// How often the node tries to remove what was set aside.
const RETRY_EVERY: Duration = Duration::from_secs(600);

/// The directory that holds them, each below a number of its own.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers(PathBuf);

impl Leftovers {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Moves the tree at `path` here, whatever is in it; a missing one is fine.
    pub(crate) fn set_aside(&self, path: &Path) -> io::Result<()> {
        if !path.try_exists()? {
            return Ok(());
        }
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&self.0)?;
        for number in 0_u64.. {
            match fs::rename(path, self.0.join(number.to_string())) {
                Err(error) if is_taken(&error) => (),
                renamed => return renamed,
            }
        }
        unreachable!("a directory holds fewer entries than there are numbers")
    }

    /// Tries to remove everything; returns how many trees are still there. Blocks.
    pub(crate) fn remove(&self) -> usize {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return 0,
            Err(error) => {
                warn!(path = %self.0.display(), %error, "the leftovers of earlier runs cannot be listed");
                return 0;
            }
            Ok(entries) => entries,
        };
        let mut left = 0;
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Err(error) = remove_tree(&path) {
                left += 1;
                warn!(
                    path = %path.display(),
                    %error,
                    "a leftover of an earlier run cannot be removed; remove it by hand, or wait for the next attempt"
                );
            }
        }
        left
    }
}

/// Whether a directory that is not empty has the name. Linux answers one or the other, by file system.
fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(
        error.kind(),
        AlreadyExists | DirectoryNotEmpty | NotADirectory
    )
}

/// Removes what was set aside, now and every ten minutes.
pub(crate) async fn remove_for_ever(leftovers: &Leftovers) {
    loop {
        let leftovers = leftovers.clone();
        blocking(move || leftovers.remove()).await;
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_the_same_name_are_set_aside_side_by_side_and_removed() {
        let data = tempfile::tempdir().unwrap();
        let leftovers = Leftovers::new(data.path().join("leftovers"));
        let tree = data.path().join("runs");
        leftovers.set_aside(&tree).unwrap();
        assert_eq!(leftovers.remove(), 0);
        for _ in 0..2 {
            fs::create_dir_all(tree.join("below")).unwrap();
            leftovers.set_aside(&tree).unwrap();
            assert!(!tree.exists());
        }
        assert_eq!(fs::read_dir(&leftovers.0).unwrap().count(), 2);
        assert_eq!(leftovers.remove(), 0);
        assert_eq!(fs::read_dir(&leftovers.0).unwrap().count(), 0);
    }
}
