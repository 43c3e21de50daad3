//! The clocks of one host: the wall clock is inaccurate and jumps; the time since boot is exact.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aod_ports::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::world::World;

/// Start of simulated time, in seconds since 1970.
const EPOCH_SECONDS: i64 = 1_800_000_000;

/// Maximum difference between clocks, in milliseconds.
const SKEW_MILLISECONDS_MAX: u64 = 5_000;

#[derive(Debug)]
pub(crate) struct HostClock {
    world: World,
    skew: Mutex<SignedDuration>,
}

impl HostClock {
    pub(crate) fn new(world: &World) -> Self {
        let clock = Self {
            world: world.clone(),
            skew: Mutex::default(),
        };
        clock.jump();
        clock
    }

    /// Sets the wall clock to another time.
    pub(crate) fn jump(&self) {
        let skew = self.world.below(2 * SKEW_MILLISECONDS_MAX).cast_signed();
        let skew = SignedDuration::from_millis(skew - SKEW_MILLISECONDS_MAX.cast_signed());
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = skew;
    }
}

/// The exact time after `elapsed`.
pub(crate) fn after(elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or_default();
    let epoch = Timestamp::from_second(EPOCH_SECONDS).expect("a time of this century");
    epoch + elapsed
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        let skew = *self.skew.lock().unwrap_or_else(PoisonError::into_inner);
        after(self.world.elapsed()) + skew
    }

    fn since_boot(&self) -> Duration {
        self.world.since_boot()
    }

    fn fresh_uuid(&self) -> Uuid {
        let milliseconds = u64::try_from(self.now().as_millisecond()).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(milliseconds, &self.world.bytes()).into_uuid()
    }

    fn fresh_secret(&self) -> [u8; 32] {
        self.world.bytes()
    }
}

#[cfg(test)]
mod tests {
    //! The double passes the conformance suite of the host's clock.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_double_passes_conformance_suite() {
        aod_testkit::clock::check_all(&HostClock::new(&World::new(0, false))).await;
    }
}
