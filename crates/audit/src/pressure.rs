//! Whether runs are ending now: callers that wait for results have priority over seals.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Time without an ended run after which the cluster counts as quiet.
const QUIET: Duration = Duration::from_secs(2);

/// The latest end that was seen.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    newest: Mutex<Option<Newest>>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    stored_at: Timestamp,
    came_at: Instant,
}

impl Pressure {
    /// Records when new ends were stored; returns whether one is later than all before.
    pub(crate) fn see(&self, stored_at: impl Iterator<Item = Timestamp>) -> bool {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = stored_at.max();
        let latest = latest.filter(|&at| newest.is_none_or(|before| at > before.stored_at));
        if let Some(stored_at) = latest {
            let came_at = Instant::now();
            *newest = Some(Newest { stored_at, came_at });
        }
        latest.is_some()
    }

    /// Whether no run has ended recently. A redelivered end does not count.
    pub(crate) fn is_low(&self) -> bool {
        let newest = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.is_none_or(|newest| newest.came_at.elapsed() >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_new_ends_raise_pressure_and_it_expires() {
        let (one, two) = (
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH + Duration::from_secs(1),
        );
        let pressure = Pressure::default();
        assert!(pressure.is_low());
        assert!(pressure.see([two, one].into_iter()));
        assert!(!pressure.is_low());
        tokio::time::advance(QUIET).await;
        assert!(pressure.is_low());
        assert!(!pressure.see([one, two].into_iter()));
        assert!(pressure.is_low());
        assert!(pressure.see(std::iter::once(two + Duration::from_secs(1))));
        assert!(!pressure.is_low());
    }
}
