//! Runs one attempt from its launch to its clean-up: lease, work, result.

use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_domain::run::{Ended, Timings};
use tracing::{Instrument, debug, info_span};

use super::delivered::Delivered;
use crate::attempt::ending::store_loss;
use crate::attempt::lease::{LeaseKeeper, kill_after};
use crate::attempt::leftover::Leftover;
use crate::attempt::taking::{settle_refusal, take_lease};
use crate::attempt::{Attempt, Finish};
use crate::gateways::speaker::Speaker;
use crate::shared::Shared;
use crate::shared::ledger::Seat;
use crate::work;

/// Runs a launch to its end; frees `seat` when nothing of the launch is left on this host.
pub(super) async fn run(shared: Arc<Shared>, delivered: Delivered, seat: Seat) {
    let span = info_span!("run", id = %delivered.delivery.run);
    run_delivery(shared, delivered, seat).instrument(span).await;
}

async fn run_delivery(shared: Arc<Shared>, delivered: Delivered, seat: Seat) {
    let delivery = delivered.delivery;
    let stop_at = kill_after(delivered.asked, shared.config.lease);
    if stop_at <= shared.runs.clock().since_boot() {
        debug!("the launch arrived too late; the queue delivers it again");
        return;
    }
    let lease = LeaseKeeper::start(
        Arc::clone(&shared.ports.queue),
        Arc::clone(shared.runs.clock()),
        delivery.ack_subject.clone(),
        shared.config.lease,
        delivered.asked,
    );
    // The hash of a secret is as hard to guess as the secret, and is text.
    let token = Digest::of(shared.runs.clock().fresh_secret()).to_string();
    let (run, number) = match take_lease(&shared, &delivery, delivered.launch, &token).await {
        Ok(taken) => taken,
        Err(refusal) => {
            settle_refusal(&shared, &delivery, &lease, &refusal).await;
            return;
        }
    };
    let id = run.id;
    let attempt = Attempt {
        number,
        speaker: Speaker {
            gateways: Arc::clone(&shared.gateways),
            run: id,
            attempt: number,
            token,
        },
        lease,
        cancelled: shared.attempts.begin(id, number),
        timings: Timings {
            leased_at: Some(shared.runs.clock().now()),
            ..Timings::default()
        },
        shared: Arc::clone(&shared),
        run,
    };
    let watcher = attempt.watch();
    let (finish, mut leftover) = if attempt.await_predecessor(&delivery).await {
        start(&attempt, seat).await
    } else {
        (Finish::Fenced, Leftover::of(seat))
    };
    let settled = attempt.settle(&delivery, finish, &mut leftover).await;
    debug!(attempt = number, settled, "the attempt ended");
    watcher.cancel();
    let is_lost = attempt.lease.lost().is_cancelled();
    drop(attempt);
    // The result is stored. The clean-up still holds the seat.
    leftover.clear().await;
    shared.attempts.forget(id, number);
    if is_lost {
        store_loss(&shared, id, number).await;
    }
}

/// Does the work of `attempt`, unless its run may not start any more.
async fn start(attempt: &Attempt, seat: Seat) -> (Finish, Leftover) {
    let now = attempt.shared.runs.clock().now();
    if let Some((outcome, error)) = attempt.run.forbids_start(now) {
        let ended = Ended::without_start(attempt.number, outcome, error);
        return (Finish::ended(ended), Leftover::of(seat));
    }
    let capsule = attempt.run.launched.event.work.name();
    debug!(attempt = attempt.number, %capsule, "the attempt starts");
    work::run(attempt, seat).await
}
