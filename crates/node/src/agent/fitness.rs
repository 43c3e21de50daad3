//! Whether the engine and the disks of this host are fit for work.

use std::time::Duration;

use aod_domain::disk::Room;
use aod_domain::subject::Class;
use aod_services::disk::Measurement;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::shared::Shared;
use aod_services::error::chain;

/// How often the node checks the engine and the free space on its disks.
const ENGINE_EVERY: Duration = Duration::from_secs(5);

/// The classes of work that the node can take, regardless of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// Reason why the node takes no work.
    pub(super) not_ready: Option<String>,
    /// Reason why the node takes only callees of running trees.
    pub(super) no_roots: Option<String>,
}

impl Fitness {
    /// The fitness of a stopped node.
    pub(crate) fn stopped() -> Self {
        Self {
            not_ready: Some("stopped".to_owned()),
            no_roots: None,
        }
    }

    /// Whether the node takes work of this class while it has slots.
    pub(crate) fn takes(&self, class: Class) -> bool {
        let is_kept_out = class == Class::Root && self.no_roots.is_some();
        self.not_ready.is_none() && !is_kept_out
    }

    /// Whether `other` takes the same classes of work; reasons may differ.
    fn is_like(&self, other: &Self) -> bool {
        let takes = |fitness: &Self| (fitness.not_ready.is_none(), fitness.no_roots.is_none());
        takes(self) == takes(other)
    }
}

pub(crate) type Readiness = watch::Receiver<Fitness>;

/// Checks whether engine and disks are fit for work.
pub(super) async fn watch_readiness(shared: &Shared, readiness: &watch::Sender<Fitness>) {
    loop {
        let engine = shared.ports.runtime.describe().await;
        if let Ok(info) = &engine
            && let Some(directory) = &info.directory
        {
            shared.host.disks.add(directory.clone());
        }
        let Measurement { room, reason } =
            shared.host.disks.measure(shared.runs.clock().since_boot());
        let (full, no_roots) = match room {
            Room::Full => (reason, None),
            Room::Enough | Room::NoRoots => (None, reason),
        };
        let fitness = Fitness {
            not_ready: engine.err().map(|error| chain(&error)).or(full),
            no_roots,
        };
        readiness.send_if_modified(|current| {
            // The reason contains the free space, which changes all the time.
            let is_changed = *current != fitness;
            match (&fitness.not_ready, &fitness.no_roots) {
                _ if current.is_like(&fitness) => (),
                (Some(reason), _) => warn!(reason, "the node takes no work"),
                (None, Some(reason)) => warn!(reason, "the node takes no new trees"),
                (None, None) => info!("the node takes work"),
            }
            *current = fitness;
            is_changed
        });
        // Without the notification, a node whose engine has just failed would take launch after launch.
        let _ = tokio::time::timeout(ENGINE_EVERY, shared.host.doubt.notified()).await;
    }
}
