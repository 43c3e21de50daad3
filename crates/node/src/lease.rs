//! Keeps an attempt's lease, and says when it must stop.
//!
//! Progress is asked for every quarter of the lease. What counts is the time at which the last
//! confirmed request was *sent*: at 0.6 of the lease after it the holder kills its capsule, well
//! before the broker can hand the launch to another node, and never renews again. A confirmation
//! proves nothing more: the broker confirms a stale holder, too.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::work_queue::WorkQueue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::boottime::BootTime;

/// The share of a lease after which its holder stops without a confirmation, in tenths.
const KILL_AFTER_TENTHS: u32 = 6;

/// The share of a lease between two requests for progress.
const RENEW_PARTS: u32 = 4;

/// A lease that is being kept until this is dropped.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    kill_at: watch::Receiver<BootTime>,
    lost: CancellationToken,
    stop: CancellationToken,
}

impl LeaseKeeper {
    /// Keeps the delivery that was asked for at `sent`, confirmed since.
    pub(crate) fn start(
        queue: Arc<dyn WorkQueue>,
        ack_subject: String,
        lease: Duration,
        sent: BootTime,
    ) -> Self {
        let (kill_at_sender, kill_at) = watch::channel(sent.after(lease * KILL_AFTER_TENTHS / 10));
        let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
        let keeper = Self {
            kill_at,
            lost: lost.clone(),
            stop: stop.clone(),
        };
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => (),
                () = keep(queue.as_ref(), &ack_subject, lease, &kill_at_sender) => {
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

    /// Marks the lease as lost: another holder is known to have it.
    pub(crate) fn give_up(&self) {
        self.lost.cancel();
        self.stop.cancel();
    }

    /// How long the capsule may live if nothing is confirmed from now on.
    pub(crate) fn remaining(&self) -> Duration {
        self.kill_at.borrow().remaining()
    }

    /// Tells each renewal.
    pub(crate) fn renewals(&self) -> watch::Receiver<BootTime> {
        self.kill_at.clone()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns when the lease is lost.
async fn keep(
    queue: &dyn WorkQueue,
    ack_subject: &str,
    lease: Duration,
    kill_at: &watch::Sender<BootTime>,
) {
    let mut wait = lease / RENEW_PARTS;
    loop {
        let remaining = kill_at.borrow().remaining();
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(wait.min(remaining)).await;
        let remaining = kill_at.borrow().remaining();
        if remaining.is_zero() {
            return;
        }
        let sent = BootTime::now();
        match tokio::time::timeout(remaining, queue.progress(ack_subject)).await {
            // A host that slept may read the confirmation too late: the old deadline decides.
            Ok(Ok(())) if !kill_at.borrow().remaining().is_zero() => {
                kill_at.send_replace(sent.after(lease * KILL_AFTER_TENTHS / 10));
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
