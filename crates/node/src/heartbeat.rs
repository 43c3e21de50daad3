//! Whether a capsule still shows life, if its request asks for that: output, or a request on its channel.
//! While it waits for a callee, or for the answer to another request, nothing is expected of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A limit on silence.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    limit: Option<Duration>,
    last: Instant,
    is_waiting: bool,
    /// How many requests of the capsule are being served.
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

    /// The capsule has shown life.
    pub(crate) fn beat(&mut self) {
        self.last = Instant::now();
    }

    /// That a call begins or ends is a sign of life, too.
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.beat();
    }

    /// Returns when the silence has lasted too long. Dropped before, it has changed nothing.
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

/// What comes of `work`; none if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
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
    async fn silence_counts_from_the_last_sign() {
        let (served, receiver) = watch::channel(0);
        let mut heartbeat = Heartbeat::start(Some(LIMIT), receiver);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        heartbeat.beat();
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        // A request that was answered at once.
        served.send_replace(1);
        served.send_replace(0);
        assert!(!is_missed_within(&mut heartbeat, 9).await);
        assert!(is_missed_within(&mut heartbeat, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_expected_of_who_waits_or_without_a_limit() {
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

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_broken_off() {
        let work = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(within(Some(LIMIT), work()).await, None);
        assert_eq!(within(Some(LIMIT * 7), work()).await, Some(()));
        assert_eq!(within(None, work()).await, Some(()));
    }
}
