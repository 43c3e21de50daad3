//! Time and fresh ids: what the rules must be handed.

use aod_domain::id::{EventId, RunId};
use jiff::Timestamp;
use uuid::Uuid;

/// The only source of time and of fresh ids.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Timestamp;

    /// A UUIDv7, so that ids sort by time.
    fn fresh_uuid(&self) -> Uuid;

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

    fn fresh_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}
