//! Ends everything that an attempt has while its capsule runs, and leaves the clean-up of its container.

use std::sync::Arc;

use aod_ports::container_runtime::Container;
use aod_services::program::blocking;
use tracing::{debug, warn};

use super::{Active, Services};
use crate::attempt::Finish;
use crate::attempt::leftover::Leftover;
use crate::shared::Shared;
use crate::shared::ledger::Seat;
use crate::work::common::store_logs;
use aod_services::error::chain;

impl Active<'_> {
    /// Stores the logs and closes the channel; returns the leftover to clean up.
    pub(super) async fn leave(
        self,
        finish: Finish,
        container: Option<Box<dyn Container>>,
        seat: Seat,
    ) -> (Finish, Leftover) {
        let left = self.left_to_collect();
        let Self {
            directory,
            services: Services { channel, stop, .. },
            records,
            ..
        } = self;
        channel.calls.stop();
        let children = channel.calls.children();
        stop.cancel();
        channel.egress.close().await;
        if !matches!(finish, Finish::Fenced) {
            channel.models.settled().await;
        }
        let shared = Arc::clone(&self.attempt.shared);
        let notes = records.notes.finish().await;
        let artifacts = Arc::clone(&shared.ports.artifacts);
        let logs = store_logs(records.logs, artifacts.as_ref(), left);
        let finish = match finish {
            Finish::Ended(mut ended) => {
                ended.notes = notes;
                ended.logs = logs.await;
                Finish::Ended(ended)
            }
            Finish::Failed(mut failed) => {
                failed.logs = logs.await;
                Finish::Failed(failed)
            }
            other => other,
        };
        let clearing = Box::pin(async move {
            let is_gone = match container {
                Some(container) => clear_container(&shared, container).await,
                // The preparation may still be writing: no other run may get the directory.
                None => false,
            };
            let cleared = blocking(move || {
                if is_gone {
                    shared.host.directories.take_back(directory)
                } else {
                    shared.host.directories.discard(directory)
                }
            });
            if let Err(error) = cleared.await {
                warn!(%error, "a directory of an ended run was not removed");
            }
        });
        let leftover = Leftover {
            children,
            clearing: Some(clearing),
            seat: Some(seat),
        };
        (finish, leftover)
    }
}

/// Removes a container. True if nothing of the container is left.
async fn clear_container(shared: &Shared, container: Box<dyn Container>) -> bool {
    let ended = container.gone().await;
    if let Err(error) = &ended {
        warn!(container = container.name(), error = %chain(error), "the node does not know whether a container has ended");
    }
    let removed = shared.ports.runtime.remove(container.name()).await;
    if let Err(error) = &removed {
        debug!(container = container.name(), error = %chain(error), "a container was not removed; the next reconciliation removes it");
    }
    ended.is_ok() && removed.is_ok()
}
