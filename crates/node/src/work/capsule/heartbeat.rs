//! Watches the signs of life of a capsule, if its request limits the time between two: output, or a request on its
//! channel. The limit does not apply while the capsule waits for a callee or for the answer to another request.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A limit on silence.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    limit: Option<Duration>,
    last: Instant,
    is_waiting: bool,
    /// The number of requests of the capsule that the channel serves.
    served: watch::Receiver<usize>,
}

impl Heartbeat {
    pub(crate) fn start(limit: Option<Duration>, served: watch::Receiver<usize>) -> Self {
        Self {
            limit,
            last: Instant::now(),
            is_waiting: false,
            served,
        }
    }

    /// Records a sign of life.
    pub(crate) fn beat(&mut self) {
        self.last = Instant::now();
    }

    /// Records the begin or the end of waiting; both are signs of life.
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.beat();
    }

    /// Returns when the silence has lasted too long. Cancel-safe.
    pub(crate) async fn missed(&mut self) {
        let Some(limit) = self.limit else {
            return std::future::pending().await;
        };
        loop {
            let is_expected = !self.is_waiting && *self.served.borrow() == 0;
            let missed_at = self.last + limit;
            tokio::select! {
                biased;
                Ok(()) = self.served.changed() => self.last = Instant::now(),
                () = tokio::time::sleep_until(missed_at), if is_expected => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    async fn is_missed_within(heartbeat: &mut Heartbeat, seconds: u64) -> bool {
        let time = Duration::from_secs(seconds);
        tokio::time::timeout(time, heartbeat.missed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeat_is_missed_when_limit_passes_since_last_sign() {
        let (served, receiver) = watch::channel(0);
        let mut heartbeat = Heartbeat::start(Some(LIMIT), receiver);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        heartbeat.beat();
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        // A request that was answered immediately.
        served.send_replace(1);
        served.send_replace(0);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        assert!(is_missed_within(&mut heartbeat, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeat_is_not_missed_while_waiting_or_without_limit() {
        let (served, receiver) = watch::channel(0);
        let mut heartbeat = Heartbeat::start(Some(LIMIT), receiver.clone());
        heartbeat.set_waiting(true);
        assert!(!is_missed_within(&mut heartbeat, 1_000).await);
        heartbeat.set_waiting(false);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        served.send_replace(1);
        assert!(!is_missed_within(&mut heartbeat, 1_000).await);
        served.send_replace(0);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        assert!(is_missed_within(&mut heartbeat, 2).await);
        let mut unlimited = Heartbeat::start(None, receiver);
        assert!(!is_missed_within(&mut unlimited, 1_000_000).await);
    }
}
