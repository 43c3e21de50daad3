//! Rejects new trees while the rest of a disk, or of a store with a limit, is reserved for running trees.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aod_domain::disk::{reason, room};
use aod_domain::error_code::ErrorCode;
use aod_ports::artifact_store::ArtifactStore;
use aod_services::disk::{Disks, Measurement};

use crate::error::{Error, Result};
use aod_services::error::chain;

/// Whether this gateway's disks and the artifact store have space for new trees.
#[derive(Debug)]
pub(crate) struct DiskRoom {
    /// Bytes reserved for running trees, if the operator set them.
    reserve: Option<u64>,
    disks: Disks,
    /// Result of the last check of the store.
    store: Mutex<Measurement>,
}

impl DiskRoom {
    pub(crate) fn new(
        directories: impl IntoIterator<Item = PathBuf>,
        reserve: Option<u64>,
    ) -> Self {
        Self {
            reserve,
            disks: Disks::new("the gateway's", directories, reserve),
            store: Mutex::default(),
        }
    }

    /// Admits one more root, or returns the reason for rejecting it.
    pub(crate) fn admit(&self) -> Result<()> {
        let why = self.disks.measure().reason;
        let why = why.or_else(|| self.store().reason.clone());
        match why {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorCode::DiskFull, why)),
        }
    }

    /// Checks the store. If the store does not answer, the previous result applies.
    pub(crate) async fn check_store(&self, artifacts: &dyn ArtifactStore) {
        let space = match artifacts.space().await {
            Ok(Some(space)) => space,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(
                    error = chain(&error),
                    "cannot read the free space of the artifact store"
                );
                return;
            }
        };
        let mut store = self.store();
        let before = store.room;
        store.room = room(before, space, self.reserve);
        store.reason = reason(store.room, space, self.reserve, "the artifact store");
        if before != store.room {
            tracing::warn!(room = ?store.room, ?space, "the free space of the artifact store crossed a limit");
        }
    }

    fn store(&self) -> MutexGuard<'_, Measurement> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
