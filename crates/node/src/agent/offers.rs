//! Takes launches that other nodes offer, as long as this node has free capacity.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::placement::fits;
use aod_ports::work_queue::Offer;
use aod_services::error::chain;
use futures::StreamExt as _;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::delivered::Delivered;
use super::fitness::Readiness;
use super::launch;
use super::take::spawn;
use crate::shared::Shared;
use crate::shared::ledger::Seat;

/// Pause before the node subscribes to offers again after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// Takes offered launches until the node stops.
pub(super) async fn take_for_ever(shared: &Arc<Shared>, readiness: Readiness) {
    loop {
        match shared.ports.queue.offers(shared.id).await {
            Ok(mut offers) => {
                while let Some(offer) = offers.next().await {
                    let is_ready = readiness.borrow().takes(offer.delivery.class);
                    consider(shared, offer, is_ready);
                }
            }
            Err(error) => {
                warn!(error = %chain(&error), "the node cannot receive offers from other nodes");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Takes the launch if this node fits it and has a seat for it.
fn consider(shared: &Arc<Shared>, offer: Offer, is_ready: bool) {
    let now = shared.runs.clock().since_boot();
    let delivered = Delivered::read(offer.delivery, now);
    let class = delivered.delivery.class;
    let has_room = || shared.host.disks.measure(now).room.takes(class);
    if !(is_ready && has_room() && fits_here(shared, &delivered)) {
        return;
    }
    if let Some(seat) = shared.host.ledger.enter(class, &delivered.claim()) {
        spawn(shared, |shared| take(shared, delivered, seat, offer.take));
    }
}

/// Takes the launch and runs it. Its lease counts from the time at which this node takes it, minus the time for which
/// the other node had it then: neither the offer nor the answer can be too late.
async fn take(
    shared: Arc<Shared>,
    mut delivered: Delivered,
    seat: Seat,
    take: oneshot::Sender<oneshot::Sender<Duration>>,
) {
    let now = shared.runs.clock().since_boot();
    let (hand_over, handed_over) = oneshot::channel();
    // If the other node does not wait, nobody hears this, and nothing is handed over.
    let _ = take.send(hand_over);
    let held = handed_over.await.ok();
    match held.and_then(|held| now.checked_sub(held)) {
        Some(asked) => {
            delivered.asked = asked;
            launch::run(shared, delivered, seat).await;
        }
        None => debug!(run = %delivered.delivery.run, "an offered launch was not handed over"),
    }
}

fn fits_here(shared: &Shared, delivered: &Delivered) -> bool {
    let (pools, equipment) = (&shared.config.pools, &shared.config.equipment);
    delivered
        .placement()
        .is_some_and(|run| fits(&run.pool, &run.requirements, pools, equipment).is_ok())
}
