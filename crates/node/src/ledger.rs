//! What this node has taken on: slots, containers and memory, counted in one place.
//!
//! A run computes, or waits for a callee, or is leaving; whoever changes that does it here, and
//! the puller wakes when there may be room.

use std::sync::Arc;

use aod_domain::admission::{Capacity, Load, Room, room};
use aod_domain::subject::Class;
use tokio::sync::watch;

/// The counts of a node, shared by all its attempts; whoever wants to know of changes subscribes.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: Capacity,
    counts: watch::Sender<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
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
            counts: watch::Sender::default(),
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

    /// Takes a slot and room for a container of `memory_bytes`; none if there is no room for one of `class`.
    pub(crate) fn enter(self: &Arc<Self>, class: Class, memory_bytes: u64) -> Option<Seat> {
        let has_entered = self.counts.send_if_modified(|counts| {
            let has_room = room(self.capacity, counts.load).of(class) > 0;
            if has_room {
                counts.enter(memory_bytes);
            }
            has_room
        });
        has_entered.then(|| Seat {
            ledger: Arc::clone(self),
            memory_bytes,
            is_waiting: false,
        })
    }

    /// Tells of all that changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

impl Counts {
    fn enter(&mut self, memory_bytes: u64) {
        self.load.running += 1;
        self.load.containers += 1;
        self.load.memory_reserved_bytes += memory_bytes;
        self.containers_peak = self.containers_peak.max(self.load.containers);
        let reserved = self.load.memory_reserved_bytes;
        self.memory_peak_bytes = self.memory_peak_bytes.max(reserved);
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

    const CAPACITY: Capacity = Capacity {
        slots: 1,
        containers_max: 4,
        memory_bytes: 100,
    };

    #[test]
    fn nobody_enters_where_there_is_no_room() {
        let ledger = Ledger::new(CAPACITY);
        let seat = ledger.enter(Class::Root, 60).unwrap();
        assert!(ledger.enter(Class::Child, 0).is_none());
        let changes = ledger.subscribe();
        drop(seat);
        assert!(changes.has_changed().unwrap());
        assert!(ledger.enter(Class::Child, 0).is_some());
    }

    #[test]
    fn a_seat_gives_back_all_it_took() {
        let ledger = Ledger::new(CAPACITY);
        let mut seat = ledger.enter(Class::Root, 60).unwrap();
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
