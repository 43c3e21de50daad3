//! Takes the lease of a delivered launch, or settles a delivery whose lease the log rejects.

use aod_domain::digest::Digest;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    Command, DELIVERIES_UNCOUNTED, Delivered as DeliveryBegun, Event, Holder, Rejection, Run,
};
use aod_ports::presence::Member;
use aod_ports::work_queue::Delivery;
use aod_services::runs::HandleError;
use tracing::{debug, warn};

use super::REST_AFTER_FAILURE;
use super::lease::{self, LeaseKeeper};
use crate::shared::Shared;
use aod_services::error::chain;

/// Takes the lease; returns the run and the number of this attempt.
pub(crate) async fn take_lease(
    shared: &Shared,
    delivery: &Delivery,
    launch: Option<Recorded<Event>>,
    token: &str,
) -> Result<(Run, u32), HandleError> {
    let holder = Holder::Node {
        node: shared.id,
        incarnation: shared.incarnation,
        work: delivery.position,
        ack_subject: delivery.ack_subject.clone(),
        token_sha256: Digest::of(token),
    };
    if delivery.position.delivery > DELIVERIES_UNCOUNTED {
        count_delivery(shared, delivery).await?;
    }
    // The launch is nearly always the only event of the run, so no read is needed.
    let known = launch.and_then(|launch| Run::replay(delivery.run, [launch]).ok().flatten());
    let lease = |is_holder_gone| Command::Lease {
        holder: holder.clone(),
        is_holder_gone,
    };
    let mut handled = shared.runs.handle(delivery.run, &lease(false), known).await;
    let is_held = matches!(rejection(handled.as_ref().err()), Some(Rejection::Held));
    if is_held && is_holder_gone(shared, delivery.run).await {
        handled = shared.runs.handle(delivery.run, &lease(true), None).await;
    }
    handled.map(|run| {
        let number = run.attempts;
        (run, number)
    })
}

fn rejection(error: Option<&HandleError>) -> Option<&Rejection> {
    match error {
        Some(HandleError::Rejected { rejection, .. }) => Some(rejection),
        _ => None,
    }
}

/// Records that this node begins on a launch with many deliveries and no lease. If the launch crashes the node, the
/// log shows it.
async fn count_delivery(shared: &Shared, delivery: &Delivery) -> Result<(), HandleError> {
    let run = shared.runs.load(delivery.run).await?;
    let Some(run) = run.filter(|run| run.is_suspected(&delivery.position)) else {
        return Ok(());
    };
    warn!(
        deliveries = delivery.position.delivery,
        "the launch has many deliveries and no lease"
    );
    let command = Command::CountDelivery(DeliveryBegun {
        node: shared.id,
        work: delivery.position,
    });
    let handled = shared.runs.handle(delivery.run, &command, Some(run));
    handled.await.map(drop)
}

/// Whether presence does not list the holder of `run`.
async fn is_holder_gone(shared: &Shared, run: RunId) -> bool {
    let (Ok(Some(run)), Ok(members)) = (
        shared.runs.load(run).await,
        shared.ports.presence.members().await,
    ) else {
        return false;
    };
    let Some(lease) = run.lease() else {
        return true;
    };
    let Holder::Node { incarnation, .. } = &lease.event.holder else {
        return true;
    };
    if *incarnation == shared.incarnation {
        return !shared.attempts.has(run.id, lease.event.attempt);
    }
    !members
        .iter()
        .any(|member| matches!(member, Member::Node(node) if node.incarnation == *incarnation))
}

/// Acknowledges or returns a delivery whose lease the log rejected.
pub(crate) async fn settle_refusal(
    shared: &Shared,
    delivery: &Delivery,
    lease: &LeaseKeeper,
    refusal: &HandleError,
) {
    let queue = shared.ports.queue.as_ref();
    let give_back = async |delay| {
        lease::give_back(queue, &delivery.ack_subject, delay, lease.remaining()).await;
        Ok(())
    };
    let result = match rejection(Some(refusal)) {
        // Ended, or launched by an admission that was returned.
        Some(Rejection::Ended | Rejection::NotAdmitted) => {
            queue.acknowledge(&delivery.ack_subject).await
        }
        // Another message has a holder, which may be lost: checked again later.
        Some(Rejection::Held) => give_back(shared.config.lease).await,
        // A later delivery than this one has a holder.
        Some(Rejection::Superseded) => Ok(()),
        _ => {
            warn!(error = %chain(refusal), "the node could not take the lease");
            give_back(REST_AFTER_FAILURE).await
        }
    };
    if let Err(error) = result {
        debug!(error = %chain(&error), "the delivery was not settled; the queue redelivers the launch");
    }
}
