//! Counts the running time of a capsule. The clock stops while the capsule waits for a callee.

use std::time::Duration;

use tokio::time::Instant;

/// A limit on running time.
#[derive(Debug)]
pub(crate) struct RunClock {
    left: Duration,
    waited: Duration,
    since: Instant,
    is_waiting: bool,
}

impl RunClock {
    pub(crate) fn start(limit: Duration) -> Self {
        Self {
            left: limit,
            waited: Duration::ZERO,
            since: Instant::now(),
            is_waiting: false,
        }
    }

    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting == is_waiting {
            return;
        }
        let passed = self.since.elapsed();
        if self.is_waiting {
            self.waited += passed;
        } else {
            self.left = self.left.saturating_sub(passed);
        }
        self.since = Instant::now();
        self.is_waiting = is_waiting;
    }

    /// Returns when the capsule reaches its limit; never while it waits.
    pub(crate) async fn expired(&self) {
        if self.is_waiting {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(self.since + self.left).await;
    }

    /// The total waiting time.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
            + if self.is_waiting {
                self.since.elapsed()
            } else {
                Duration::ZERO
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_time_does_not_count_as_running_time() {
        let start = Instant::now();
        let mut clock = RunClock::start(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(4)).await;
        clock.set_waiting(true);
        assert!(
            tokio::time::timeout(Duration::from_secs(100), clock.expired())
                .await
                .is_err()
        );
        clock.set_waiting(false);
        clock.expired().await;
        assert_eq!(start.elapsed().as_secs(), 110);
        assert_eq!(clock.waited().as_secs(), 100);
    }
}
