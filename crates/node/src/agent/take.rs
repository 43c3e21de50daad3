//! Starts delivered launches, holds those that do not fit yet, and leaves others to other nodes.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::disk::Room;
use aod_ports::work_queue::Delivery;
use aod_services::program::inherit;

use super::delivered::Delivered;
use super::handover::{Missing, hand_over};
use super::launch;
use crate::attempt::lease;
use crate::shared::Shared;

/// How long the node holds a launch that does not fit, in case a slot becomes free.
const HOLD: Duration = Duration::from_secs(1);

/// Pause before the queue redelivers a launch that this node has refused: the queue does not deliver it to this node
/// in a loop.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(1);

/// Starts the launches that fit. Holds the others for a moment, then returns them to the queue. Their leases count from
/// `asked`, the time of the pull.
pub(super) fn take(shared: &Arc<Shared>, deliveries: Vec<Delivery>, asked: Duration) {
    let now = shared.runs.clock().since_boot();
    let room = shared.host.disks.measure(now).room;
    if room != Room::Enough {
        // The next pull waits for the result of this check.
        shared.host.doubt.notify_one();
    }
    for delivery in deliveries {
        let delivered = Delivered::read(delivery, asked);
        if !room.takes(delivered.delivery.class) {
            spawn(shared, |shared| pass_on(shared, delivered, Duration::ZERO));
        } else if shared.others.is_left(delivered.delivery.run) {
            spawn(shared, |shared| leave_to_others(shared, delivered));
        } else if let Some(missing) = Missing::of(shared, &delivered) {
            spawn(shared, |shared| {
                hand_over_or_begin(shared, delivered, missing)
            });
        } else {
            begin(shared, delivered);
        }
    }
}

/// Starts the launch, or holds it for a moment until it fits.
fn begin(shared: &Arc<Shared>, delivered: Delivered) {
    if let Some(delivered) = start(shared, delivered) {
        spawn(shared, |shared| hold(shared, delivered));
    }
}

async fn hand_over_or_begin(shared: Arc<Shared>, delivered: Delivered, missing: Missing) {
    if let Some(delivered) = hand_over(&shared, delivered, &missing).await {
        begin(&shared, delivered);
    }
}

/// This node has refused the run: it retries only if no other node can take the run.
async fn leave_to_others(shared: Arc<Shared>, delivered: Delivered) {
    let loaded = shared.runs.load(delivered.delivery.run).await;
    let has_others = match loaded.ok().flatten() {
        Some(run) if run.ended().is_none() => {
            let placement = &run.launched.event.placement;
            shared.others.may_take(placement, &run.refusals).await
        }
        _ => false,
    };
    if has_others {
        pass_on(shared, delivered, LEFT_TO_OTHERS).await;
    } else {
        begin(&shared, delivered);
    }
}

/// Returns `delivered` if it does not fit.
fn start(shared: &Arc<Shared>, delivered: Delivered) -> Option<Delivered> {
    let class = delivered.delivery.class;
    let Some(seat) = shared.host.ledger.enter(class, &delivered.claim()) else {
        return Some(delivered);
    };
    spawn(shared, |shared| launch::run(shared, delivered, seat));
    None
}

/// Waits for free capacity, for a small part of the lease.
async fn hold(shared: Arc<Shared>, mut delivered: Delivered) {
    let end = tokio::time::Instant::now() + HOLD;
    let mut counts = shared.host.ledger.subscribe();
    loop {
        let Some(left) = start(&shared, delivered) else {
            return;
        };
        delivered = left;
        let changed = shared.lifetime.stop.run_until_cancelled(counts.changed());
        if !matches!(
            tokio::time::timeout_at(end, changed).await,
            Ok(Some(Ok(())))
        ) {
            return pass_on(shared, delivered, Duration::ZERO).await;
        }
    }
}

/// Returns a launch to the queue; another node may take it after `delay`.
async fn pass_on(shared: Arc<Shared>, delivered: Delivered, delay: Duration) {
    let until = lease::kill_after(delivered.asked, shared.config.lease);
    let left = until.saturating_sub(shared.runs.clock().since_boot());
    let queue = shared.ports.queue.as_ref();
    let ack_subject = &delivered.delivery.ack_subject;
    lease::give_back(queue, ack_subject, delay, left).await;
}

pub(super) fn spawn<F>(shared: &Arc<Shared>, work: impl FnOnce(Arc<Shared>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let work = work(Arc::clone(shared));
    shared.lifetime.tasks.spawn(inherit(work));
}
