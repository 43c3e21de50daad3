//! What this node has taken on: slots, containers and memory, counted in one place.
//!
//! A run computes, or waits for a callee, or is leaving; whoever changes that does it here, and
//! the puller wakes when there may be room.

use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::admission::{Capacity, Load, Room, room};
use tokio::sync::Notify;

/// The counts of a node, shared by all its attempts.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: Capacity,
    load: Mutex<Counts>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    load: Load,
    waiting: usize,
    /// The most containers that were alive at one time.
    containers_peak: usize,
    /// The most memory that was reserved at one time.
    memory_peak_bytes: u64,
}

/// What an attempt holds until it is dropped: a slot while it computes, a container, memory.
#[derive(Debug)]
pub(crate) struct Seat {
    ledger: Arc<Ledger>,
    memory_bytes: u64,
    is_waiting: bool,
}

impl Ledger {
    pub(crate) fn new(capacity: Capacity) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            load: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(crate) fn room(&self) -> Room {
        room(self.capacity, self.counts().load)
    }

    pub(crate) fn load(&self) -> Load {
        self.counts().load
    }

    pub(crate) fn waiting(&self) -> usize {
        self.counts().waiting
    }

    pub(crate) fn containers_peak(&self) -> usize {
        self.counts().containers_peak
    }

    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        self.counts().memory_peak_bytes
    }

    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.change(|counts| counts.load.is_draining = is_draining);
    }

    /// Takes a slot and room for a container of `memory_bytes`; whether there is room is up to the
    /// puller, who asked [`Ledger::room`] before.
    pub(crate) fn enter(self: &Arc<Self>, memory_bytes: u64) -> Seat {
        self.change(|counts| {
            counts.load.running += 1;
            counts.load.containers += 1;
            counts.load.memory_reserved_bytes += memory_bytes;
            counts.containers_peak = counts.containers_peak.max(counts.load.containers);
            let reserved = counts.load.memory_reserved_bytes;
            counts.memory_peak_bytes = counts.memory_peak_bytes.max(reserved);
        });
        Seat {
            ledger: Arc::clone(self),
            memory_bytes,
            is_waiting: false,
        }
    }

    /// Returns once something has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn counts(&self) -> Counts {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.load.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

impl Seat {
    /// Says whether the run waits for a callee: a waiting run holds no slot, and a resumed one has
    /// its slot back at once.
    pub(crate) fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting == is_waiting {
            return;
        }
        self.is_waiting = is_waiting;
        self.ledger.change(|counts| {
            if is_waiting {
                counts.load.running -= 1;
                counts.waiting += 1;
            } else {
                counts.load.running += 1;
                counts.waiting -= 1;
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.set_waiting(false);
        self.ledger.change(|counts| {
            counts.load.running -= 1;
            counts.load.containers -= 1;
            counts.load.memory_reserved_bytes -= self.memory_bytes;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_gives_back_all_it_took() {
        let ledger = Ledger::new(Capacity {
            slots: 1,
            containers_max: 4,
            memory_bytes: 100,
        });
        let mut seat = ledger.enter(60);
        assert_eq!(
            ledger.room(),
            Room {
                children: 0,
                roots: 0
            }
        );
        seat.set_waiting(true);
        assert_eq!(
            ledger.room(),
            Room {
                children: 1,
                roots: 1
            }
        );
        assert_eq!(ledger.waiting(), 1);
        drop(seat);
        assert_eq!(ledger.load(), Load::default());
        assert_eq!((ledger.waiting(), ledger.containers_peak()), (0, 1));
    }
}
