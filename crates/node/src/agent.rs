//! The loops of a node.
//!
//! `pull` and `offers` bring launches, `take` decides which of them start, `handover` gives some to better-placed nodes,
//! and `launch` runs one to its end. The other loops announce the node, follow the log, and remove unused containers,
//! images and directories.

pub(crate) mod announce;
mod delivered;
pub(crate) mod fitness;
mod handover;
mod images;
mod launch;
mod offers;
mod orders;
mod prefetch;
mod pull;
mod queues;
pub(crate) mod reconcile;
mod take;

use std::sync::Arc;

use tokio::sync::watch;

use self::fitness::Fitness;
use self::queues::Queues;
use crate::files::leftovers;
use crate::shared::Shared;

/// Runs all loops until the node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let stop = shared.lifetime.stop.clone();
    stop.run_until_cancelled(run_loops(&shared)).await;
}

async fn run_loops(shared: &Arc<Shared>) {
    let asked = orders::heed_operators(shared).await;
    let readiness = watch::Sender::new(Fitness::default());
    let queues = Queues::default();
    tokio::join!(
        pull::pull(
            Arc::clone(shared),
            readiness.subscribe(),
            queues.subscribe()
        ),
        announce::announce(shared, readiness.subscribe()),
        fitness::watch_readiness(shared, &readiness),
        orders::follow_operators(shared, asked),
        orders::signal_end_of_drain(shared),
        queues::follow_for_ever(shared, &queues),
        offers::take_for_ever(shared, readiness.subscribe()),
        orders::follow_cancels(shared),
        prefetch::prefetch_for_ever(shared),
        reconcile::reconcile_for_ever(shared),
        images::collect_for_ever(shared),
        leftovers::remove_for_ever(&shared.host.directories.leftovers),
    );
}
