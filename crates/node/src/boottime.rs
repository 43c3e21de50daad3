//! `CLOCK_BOOTTIME`: goes on while the host sleeps, so that a lease is not overslept.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point of this host's boot time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("boot time is not negative");
        let nanoseconds = u32::try_from(time.tv_nsec).expect("below a second");
        Self(Duration::new(seconds, nanoseconds))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }

    /// How long until this point; zero when it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }
}
