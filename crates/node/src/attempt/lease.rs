//! Renews the lease of an attempt, and determines when the attempt must stop.
//!
//! The holder reports progress every quarter of the lease. The deadline counts from the time at which it *sent* the
//! last confirmed report: at 0.6 of the lease after that time it kills its capsule, well before the broker can deliver
//! the launch to another node, and never renews again. A confirmation proves nothing else: the broker also confirms a
//! stale holder.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::clock::Clock;
use aod_ports::work_queue::{QueueError, WorkQueue};
use aod_services::program::spawn;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The share of a lease after which its holder stops without a confirmation, in tenths.
const KILL_AFTER_TENTHS: u32 = 6;

/// The reports of progress per lease.
const RENEW_PARTS: u32 = 4;

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    /// Since the boot of the host.
    kill_at: watch::Receiver<Duration>,
    clock: Arc<dyn Clock>,
    lost: CancellationToken,
    stop: CancellationToken,
}

impl LeaseKeeper {
    /// Starts to renew the lease of a delivery that was requested at `sent`.
    pub(crate) fn start(
        queue: Arc<dyn WorkQueue>,
        clock: Arc<dyn Clock>,
        ack_subject: String,
        lease: Duration,
        sent: Duration,
    ) -> Self {
        let (kill_at_sender, kill_at) = watch::channel(kill_after(sent, lease));
        let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
        let keeper = Self {
            kill_at,
            clock: Arc::clone(&clock),
            lost: lost.clone(),
            stop: stop.clone(),
        };
        spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => (),
                () = keep(queue.as_ref(), clock.as_ref(), &ack_subject, lease, &kill_at_sender) => {
                    warn!(ack_subject, "the lease was not confirmed in time");
                    lost.cancel();
                }
            }
        });
        keeper
    }

    /// Cancelled when the lease is lost for good.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Marks the lease as lost: another attempt holds the run.
    pub(crate) fn give_up(&self) {
        self.lost.cancel();
        self.stop.cancel();
    }

    /// How long the capsule may run without another confirmation.
    pub(crate) fn remaining(&self) -> Duration {
        remaining(&self.kill_at.borrow(), self.clock.as_ref())
    }

    /// Reports each renewal.
    pub(crate) fn renewals(&self) -> watch::Receiver<Duration> {
        self.kill_at.clone()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns a delivery to the queue, at most `left` from now: after its lease, another node may hold the launch, and a
/// late return would make that node look dead.
pub(crate) async fn give_back(
    queue: &dyn WorkQueue,
    ack_subject: &str,
    delay: Duration,
    left: Duration,
) {
    if left.is_zero() {
        return;
    }
    return_within(left, queue.give_back(ack_subject, delay), ack_subject).await;
}

async fn return_within(
    left: Duration,
    returning: impl Future<Output = Result<(), QueueError>>,
    ack_subject: &str,
) {
    match tokio::time::timeout(left, returning).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => debug!(%error, ack_subject, "launch not returned to the queue"),
        Err(_) => debug!(ack_subject, "launch not returned to the queue in time"),
    }
}

/// When the capsule of a lease confirmed at `sent` is killed; both since the boot of the host.
pub(crate) fn kill_after(sent: Duration, lease: Duration) -> Duration {
    sent + lease * KILL_AFTER_TENTHS / 10
}

/// The time until `kill_at`; zero if it has passed.
fn remaining(kill_at: &Duration, clock: &dyn Clock) -> Duration {
    kill_at.saturating_sub(clock.since_boot())
}

/// Returns when the lease is lost.
async fn keep(
    queue: &dyn WorkQueue,
    clock: &dyn Clock,
    ack_subject: &str,
    lease: Duration,
    kill_at: &watch::Sender<Duration>,
) {
    let left = || remaining(&kill_at.borrow(), clock);
    let mut wait = lease / RENEW_PARTS;
    loop {
        let remaining = left();
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(wait.min(remaining)).await;
        let remaining = left();
        if remaining.is_zero() {
            return;
        }
        let sent = clock.since_boot();
        match tokio::time::timeout(remaining, queue.progress(ack_subject)).await {
            // After a suspend of the host the confirmation may be too late: the old deadline decides.
            Ok(Ok(())) if !left().is_zero() => {
                kill_at.send_replace(kill_after(sent, lease));
                wait = lease / RENEW_PARTS;
            }
            Ok(Ok(())) | Err(_) => return,
            Ok(Err(error)) => {
                debug!(%error, ack_subject, "progress was not confirmed");
                wait = lease / (RENEW_PARTS * 10);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delivery_is_not_returned_after_its_lease() {
        let (returned, start) = (Cell::new(0), Instant::now());
        // The queue is unreachable for a minute.
        let returning = || async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            returned.set(returned.get() + 1);
            Ok(())
        };
        return_within(Duration::from_secs(18), returning(), "ack").await;
        assert_eq!(start.elapsed().as_secs(), 18);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(returned.get(), 0);
        return_within(Duration::from_secs(90), returning(), "ack").await;
        assert_eq!(returned.get(), 1);
    }
}
