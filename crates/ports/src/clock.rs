//! Time and new ids, which the domain rules receive as values.

use aod_domain::id::{EventId, RunId};
use jiff::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use uuid::Uuid;

/// The only source of time and of new ids.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Timestamp;

    /// Time since the host started; includes sleep, and cannot be set.
    fn since_boot(&self) -> Duration;

    /// A UUIDv7, so that ids sort by time.
    fn fresh_uuid(&self) -> Uuid;

    /// An unguessable value.
    fn fresh_secret(&self) -> [u8; 32];

    fn fresh_event_id(&self) -> EventId {
        EventId::new(self.fresh_uuid())
    }

    fn fresh_root(&self) -> RunId {
        RunId::root_of(self.fresh_uuid())
    }
}

/// The host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn since_boot(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("boot time is not negative");
        let nanoseconds = u32::try_from(time.tv_nsec).expect("below a second");
        Duration::new(seconds, nanoseconds)
    }

    fn fresh_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn fresh_secret(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
                .expect("Linux gives random bytes");
        }
        bytes
    }
}
