//! New trees are refused while the rest of a disk, or of a store with a limit, is kept for those that run.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aod_domain::disk::{Room, Space, reason, room};
use aod_domain::error_code::ErrorCode;
use aod_ports::artifact_store::ArtifactStore;

use crate::http::error::{ApiError, ApiResult, chain};

/// Whether this gateway's disks and the artifact store take new trees.
#[derive(Debug)]
pub(crate) struct DiskRoom {
    /// What the operator wants to be kept for trees under way.
    reserve: Option<u64>,
    disks: Mutex<Vec<(PathBuf, Room)>>,
    /// What was found of the store last, and why it takes no new trees.
    store: Mutex<(Room, Option<String>)>,
}

impl DiskRoom {
    pub(crate) fn new(
        directories: impl IntoIterator<Item = PathBuf>,
        reserve: Option<u64>,
    ) -> Self {
        let disks = directories.into_iter();
        Self {
            reserve,
            disks: Mutex::new(disks.map(|directory| (directory, Room::Enough)).collect()),
            store: Mutex::default(),
        }
    }

    /// Admits one more root, or says why not.
    pub(crate) fn admit(&self) -> ApiResult<()> {
        let why = self.look_at_disks().or_else(|| lock(&self.store).1.clone());
        match why {
            None => Ok(()),
            Some(why) => Err(ApiError::new(ErrorCode::DiskFull, why)),
        }
    }

    /// Looks at the store. While it cannot be looked at, the last look counts.
    pub(crate) async fn look_at_store(&self, artifacts: &dyn ArtifactStore) {
        let space = match artifacts.space().await {
            Ok(Some(space)) => space,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(
                    error = chain(&error),
                    "the room of the store is not known now"
                );
                return;
            }
        };
        let mut store = lock(&self.store);
        let before = store.0;
        store.0 = room(before, space, self.reserve);
        store.1 = reason(store.0, space, self.reserve, "the artifact store");
        if before != store.0 {
            tracing::warn!(room = ?store.0, ?space, "the room of the artifact store changed");
        }
    }

    /// Why one of the disks takes no new trees. One that cannot be looked at is left to those who write.
    fn look_at_disks(&self) -> Option<String> {
        let mut why = None;
        for (directory, known) in lock(&self.disks).iter_mut() {
            let Ok(found) = rustix::fs::statvfs(&*directory) else {
                continue;
            };
            let space = Space {
                free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
                size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            };
            *known = room(*known, space, self.reserve);
            let place = format!("the gateway's disk of {}", directory.display());
            why = why.or(reason(*known, space, self.reserve, &place));
        }
        why
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
