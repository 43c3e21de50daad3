//! Follows the orders for this node in the log: drain and resume, and the cancellations of its runs.

use std::time::Duration;

use aod_domain::node::Event as Asked;
use aod_domain::subject::{CANCELS, Subject, asked_of};
use aod_ports::event_log::{Followed, From, StoredEvent};
use futures::StreamExt;
use jiff::SignedDuration;
use tracing::{info, warn};

use crate::shared::Shared;
use aod_services::error::chain;

/// Pause before the node reads the log again after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// Applies the last request of an operator to this node, before the node takes any work; returns its sequence in the
/// log.
pub(super) async fn heed_operators(shared: &Shared) -> u64 {
    loop {
        let asked = shared.runs.log().read_last(&asked_of(shared.id)).await;
        match asked {
            Ok(Some(stored)) => {
                heed(shared, &stored);
                return stored.sequence;
            }
            Ok(None) => return 0,
            Err(error) => {
                warn!(error = %chain(&error), "the node cannot read the requests of operators; retrying");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

pub(super) async fn follow_operators(shared: &Shared, after: u64) {
    let asked = asked_of(shared.id);
    follow(shared, &asked, From::After(after), |event| {
        heed(shared, event);
    })
    .await;
}

fn heed(shared: &Shared, stored: &StoredEvent) {
    let Ok(recorded) = stored.decode::<Asked>() else {
        return;
    };
    let (is_draining, drained_at) = match recorded.event {
        Asked::Drained { within_seconds, .. } => {
            let within = within_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
            (true, within.map(|within| recorded.time + within))
        }
        Asked::Resumed { .. } => (false, None),
    };
    info!(is_draining, ?drained_at, "drain or resume applied");
    shared.host.ledger.set_draining(is_draining);
    shared.lifetime.drained_at.send_replace(drained_at);
}

/// Signals when the time to drain is over, unless an operator resumes the node before.
pub(super) async fn signal_end_of_drain(shared: &Shared) {
    let mut drained_at = shared.lifetime.drained_at.subscribe();
    loop {
        shared.lifetime.is_drained.send_replace(false);
        let at = *drained_at.borrow_and_update();
        let over = async {
            let Some(at) = at else {
                return std::future::pending().await;
            };
            let left = at.duration_since(shared.runs.clock().now());
            tokio::time::sleep(left.try_into().unwrap_or_default()).await;
            info!("the drain time has expired: the node returns its launches to the queue");
            shared.lifetime.is_drained.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            changed = drained_at.changed() => if changed.is_err() { return },
            () = over => (),
        }
    }
}

pub(super) async fn follow_cancels(shared: &Shared) {
    follow(shared, CANCELS, From::Now, |event| {
        if let Some(run) = Subject::run_of(&event.subject) {
            shared.attempts.cancel(run);
        }
    })
    .await;
}

/// Passes each event to `take`, until the node stops.
pub(super) async fn follow(
    shared: &Shared,
    filter: &str,
    from: From,
    mut take: impl FnMut(&StoredEvent),
) {
    loop {
        match shared.runs.log().follow(filter, from).await {
            Ok(mut followed) => {
                while let Some(followed) = followed.next().await {
                    if let Followed::Event(event) = followed {
                        take(&event);
                    }
                }
            }
            Err(error) => warn!(filter, error = %chain(&error), "cannot follow the log; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
