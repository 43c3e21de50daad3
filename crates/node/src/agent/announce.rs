//! Announces this node: what it is, what it can take, and what runs on it.

use std::time::Duration;

use aod_ports::presence::{Member, NodeMember, PRESENCE_SECONDS, Place};
use tracing::debug;

use super::fitness::{Fitness, Readiness};
use crate::shared::Shared;
use aod_services::error::chain;

/// How often a node announces itself: three times before presence drops it.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(PRESENCE_SECONDS * 1_000 / 3);

pub(super) async fn announce(shared: &Shared, readiness: Readiness) {
    loop {
        let member = Member::Node(member(shared, readiness.borrow().clone()));
        if let Err(error) = shared.ports.presence.announce(&member).await {
            debug!(error = %chain(&error), "the node could not announce itself");
        }
        tokio::time::sleep(ANNOUNCE_EVERY).await;
    }
}

/// The announcement of this node.
pub(crate) fn member(shared: &Shared, fitness: Fitness) -> NodeMember {
    let load = shared.host.ledger.load();
    NodeMember {
        node: shared.id,
        incarnation: shared.incarnation,
        host: shared.config.host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pools: shared.config.pools.clone(),
        slots: shared.host.ledger.capacity().slots,
        running: load.running,
        waiting: shared.host.ledger.waiting(),
        containers: load.containers,
        draining: load.is_draining,
        place: Place {
            equipment: shared.config.equipment.clone(),
            devices_free: shared.host.ledger.devices_free(),
            roots_lack: shared.host.ledger.roots_lack(),
            images: shared.host.images.announced(),
        },
        not_ready: fitness.not_ready,
        no_roots: fitness.no_roots,
    }
}
