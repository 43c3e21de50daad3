//! Keeps an attempt's lease, and says when it must stop.
//!
//! Progress is asked for every quarter of the lease. What counts is the time at which the last
//! confirmed request was *sent*: at 0.6 of the lease after it the holder kills its capsule, well
//! before the broker can hand the launch to another node, and never renews again. A confirmation
//! proves nothing more: the broker confirms a stale holder, too.

use std::sync::Arc;
use std::time::Duration;

use aod_ports::clock::Clock;
use aod_ports::program::spawn;
use aod_ports::work_queue::WorkQueue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The share of a lease after which its holder stops without a confirmation, in tenths.
const KILL_AFTER_TENTHS: u32 = 6;

/// The share of a lease between two requests for progress.
const RENEW_PARTS: u32 = 4;

/// A lease that is being kept until this is dropped.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    /// Since the boot of the host.
    kill_at: watch::Receiver<Duration>,
    clock: Arc<dyn Clock>,
    lost: CancellationToken,
    stop: CancellationToken,
}

impl LeaseKeeper {
    /// Keeps the delivery that was asked for at `sent`, confirmed since.
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

    /// Marks the lease as lost: another holder is known to have it.
    pub(crate) fn give_up(&self) {
        self.lost.cancel();
        self.stop.cancel();
    }

    /// How long the capsule may live if nothing is confirmed from now on.
    pub(crate) fn remaining(&self) -> Duration {
        remaining(&self.kill_at.borrow(), self.clock.as_ref())
    }

    /// Tells each renewal.
    pub(crate) fn renewals(&self) -> watch::Receiver<Duration> {
        self.kill_at.clone()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Gives a delivery back, but no later than `left` from now: when its lease is over another may have
/// the launch, who would be taken for dead by what comes late.
pub(crate) async fn give_back(
    queue: &dyn WorkQueue,
    ack_subject: &str,
    delay: Duration,
    left: Duration,
) {
    match tokio::time::timeout(left, queue.give_back(ack_subject, delay)).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => debug!(%error, ack_subject, "comes again when its lease has passed"),
        Err(_) => debug!(ack_subject, "not given back in time"),
    }
}

/// When the capsule of a lease confirmed at `sent` is killed; both since the boot of the host.
pub(crate) fn kill_after(sent: Duration, lease: Duration) -> Duration {
    sent + lease * KILL_AFTER_TENTHS / 10
}

/// How long until `kill_at`; zero when it has passed.
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
            // A host that slept may read the confirmation too late: the old deadline decides.
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
    use aod_domain::id::NodeId;
    use aod_domain::subject::{Class, Label};
    use aod_ports::work_queue::{Delivery, Offer, QueueError, Waiting};
    use async_trait::async_trait;
    use futures::StreamExt as _;
    use futures::stream::BoxStream;
    use tokio::time::Instant;

    use super::*;

    /// A queue that cannot be reached for a minute, and counts what is given back.
    #[derive(Debug, Default)]
    struct Away(std::sync::atomic::AtomicU32);

    #[async_trait]
    impl WorkQueue for Away {
        async fn ensure(&self, _: &Label) -> Result<(), QueueError> {
            Ok(())
        }

        async fn begin_at(&self, _: u64) -> Result<(), QueueError> {
            Ok(())
        }

        async fn pull(
            &self,
            _: &Label,
            _: Class,
            _: usize,
            _: Duration,
        ) -> Result<Vec<Delivery>, QueueError> {
            Ok(Vec::new())
        }

        async fn progress(&self, _: &str) -> Result<(), QueueError> {
            Ok(())
        }

        async fn acknowledge(&self, _: &str) -> Result<(), QueueError> {
            Ok(())
        }

        async fn give_back(&self, _: &str, _: Duration) -> Result<(), QueueError> {
            tokio::time::sleep(Duration::from_secs(60)).await;
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }

        async fn forget(&self, _: &Label) -> Result<(), QueueError> {
            Ok(())
        }

        async fn offer(
            &self,
            _: NodeId,
            _: &Delivery,
            _: Duration,
            _: Duration,
        ) -> Result<bool, QueueError> {
            Ok(false)
        }

        async fn offers(&self, _: NodeId) -> Result<BoxStream<'static, Offer>, QueueError> {
            Ok(futures::stream::pending().boxed())
        }

        async fn waiting(&self) -> Result<Vec<Waiting>, QueueError> {
            Ok(Vec::new())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_come_late_is_not_given_back() {
        let (queue, start) = (Away::default(), Instant::now());
        give_back(&queue, "ack", Duration::ZERO, Duration::from_secs(18)).await;
        assert_eq!(start.elapsed().as_secs(), 18);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(queue.0.load(std::sync::atomic::Ordering::Relaxed), 0);
        give_back(&queue, "ack", Duration::ZERO, Duration::from_secs(90)).await;
        assert_eq!(queue.0.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
