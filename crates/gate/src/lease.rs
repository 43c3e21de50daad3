//! The deadline by which the node must renew the lease.
//!
//! Clock and timer use `CLOCK_BOOTTIME`: the lease also expires while the host sleeps or the container is
//! paused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// A running lease.
#[derive(Debug)]
pub(crate) struct Lease {
    deadline: Timespec,
    timer: OwnedFd,
}

impl Lease {
    /// A lease that ends in `milliseconds`.
    pub(crate) fn begin(milliseconds: u64) -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let mut lease = Self {
            deadline: now(),
            timer,
        };
        lease.extend(milliseconds)?;
        Ok(lease)
    }

    /// Moves the end to `milliseconds` from now. An ended lease stays ended.
    pub(crate) fn renew(&mut self, milliseconds: u64) -> Result<(), Errno> {
        if self.has_ended() {
            Ok(())
        } else {
            self.extend(milliseconds)
        }
    }

    /// Whether the lease has ended.
    pub(crate) fn has_ended(&self) -> bool {
        now() >= self.deadline
    }

    fn extend(&mut self, milliseconds: u64) -> Result<(), Errno> {
        self.deadline = later(now(), milliseconds);
        let once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timer = Itimerspec {
            it_interval: once,
            it_value: self.deadline,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }
}

impl AsFd for Lease {
    /// Readable when the lease has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

fn now() -> Timespec {
    clock_gettime(ClockId::Boottime)
}

/// `milliseconds` after `instant`, at most the end of time.
fn later(instant: Timespec, milliseconds: u64) -> Timespec {
    const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;
    let seconds = i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(milliseconds % 1000).unwrap_or(0) * 1_000_000 + instant.tv_nsec;
    Timespec {
        tv_sec: instant
            .tv_sec
            .saturating_add(seconds)
            .saturating_add(nanoseconds / NANOSECONDS_PER_SECOND),
        tv_nsec: nanoseconds % NANOSECONDS_PER_SECOND,
    }
}

#[cfg(test)]
mod tests {
    //! The deadline.

    use super::*;

    #[test]
    fn lease_without_time_has_ended_and_stays_ended() {
        let mut lease = Lease::begin(0).expect("a timer");
        assert!(lease.has_ended());
        lease.renew(60_000).expect("a timer");
        assert!(lease.has_ended());
    }

    #[test]
    fn running_lease_can_be_renewed_and_shortened() {
        let mut lease = Lease::begin(60_000).expect("a timer");
        assert!(!lease.has_ended());
        lease.renew(u64::MAX).expect("a timer");
        assert!(!lease.has_ended());
        lease.renew(0).expect("a timer");
        assert!(lease.has_ended());
    }

    #[test]
    fn milliseconds_carry_over_into_seconds() {
        let instant = Timespec {
            tv_sec: 5,
            tv_nsec: 999_000_000,
        };
        assert_eq!(
            later(instant, 2_001),
            Timespec {
                tv_sec: 8,
                tv_nsec: 0
            }
        );
        assert_eq!(later(instant, 0), instant);
        let end = Timespec {
            tv_sec: i64::MAX - 1,
            tv_nsec: 0,
        };
        assert_eq!(later(end, u64::MAX).tv_sec, i64::MAX);
    }
}
