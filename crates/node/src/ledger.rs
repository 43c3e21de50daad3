//! What this node has taken on: slots, containers, memory, processors and devices, counted in one place.
//!
//! A run computes, or waits for a callee, or is leaving; whoever changes that does it here, and
//! the puller wakes when there may be room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::admission::{Capacity, Lack, Load, Room, lack, room};
use aod_domain::placement::{Devices, Name};
use aod_domain::subject::Class;
use tokio::sync::watch;

/// Thousandths of a processor that a slot stands for.
const MILLIS_PER_SLOT: u64 = 1_000;

/// The counts of a node, shared by all its attempts; whoever wants to know of changes subscribes.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: Capacity,
    /// Thousandths of processors that runs may be promised together, if they are counted.
    cpu_millis: Option<u64>,
    devices: Mutex<Devices>,
    counts: watch::Sender<Counts>,
}

/// What a run takes of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_millis: u32,
    pub(crate) devices: BTreeMap<Name, u16>,
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

/// What an attempt holds until it is dropped: a slot and processors while it computes, a container, memory, devices.
#[derive(Debug)]
pub(crate) struct Seat {
    ledger: Arc<Ledger>,
    memory_bytes: u64,
    cpu_millis: u64,
    devices: Devices,
    is_waiting: bool,
}

impl Ledger {
    /// `cpu_millis` are the processors of the machine, if they are counted: each slot is promised one in any case.
    pub(crate) fn new(capacity: Capacity, cpu_millis: Option<u32>, devices: Devices) -> Arc<Self> {
        let of_slots = capacity.slots as u64 * MILLIS_PER_SLOT;
        Arc::new(Self {
            capacity,
            cpu_millis: cpu_millis.map(|millis| of_slots.max(millis.into())),
            devices: Mutex::new(devices),
            counts: watch::Sender::default(),
        })
    }

    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(crate) fn room(&self) -> Room {
        room(self.capacity, self.cpu_millis, self.counts().load)
    }

    /// What stops new roots, if anything but slots does.
    pub(crate) fn roots_lack(&self) -> Option<Lack> {
        lack(self.capacity, self.cpu_millis, self.counts().load)
    }

    /// The room for runs that take these devices.
    pub(crate) fn room_with(&self, devices: &BTreeMap<Name, u16>) -> Room {
        if self.devices().has(devices) {
            self.room()
        } else {
            Room::default()
        }
    }

    /// How many devices of each kind no run has.
    pub(crate) fn devices_free(&self) -> BTreeMap<Name, usize> {
        self.devices().counts()
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

    /// Takes a slot and what a container claims; none if there is no room for one of `class`.
    pub(crate) fn enter(self: &Arc<Self>, class: Class, claim: &Claim) -> Option<Seat> {
        let mut devices = None;
        let has_entered = self.counts.send_if_modified(|counts| {
            if room(self.capacity, self.cpu_millis, counts.load).of(class) > 0 {
                devices = self.devices().take(&claim.devices);
            }
            if devices.is_some() {
                counts.enter(claim);
            }
            devices.is_some()
        });
        has_entered.then(|| Seat {
            ledger: Arc::clone(self),
            memory_bytes: claim.memory_bytes,
            cpu_millis: claim.cpu_millis.into(),
            devices: devices.unwrap_or_default(),
            is_waiting: false,
        })
    }

    /// Tells of all that changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

impl Counts {
    fn enter(&mut self, claim: &Claim) {
        self.load.running += 1;
        self.load.containers += 1;
        self.load.memory_reserved_bytes += claim.memory_bytes;
        self.load.cpu_reserved_millis += u64::from(claim.cpu_millis);
        self.containers_peak = self.containers_peak.max(self.load.containers);
        let reserved = self.load.memory_reserved_bytes;
        self.memory_peak_bytes = self.memory_peak_bytes.max(reserved);
    }
}

impl Seat {
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

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
                counts.load.cpu_reserved_millis -= self.cpu_millis;
                counts.waiting += 1;
            } else {
                counts.load.running += 1;
                counts.load.cpu_reserved_millis += self.cpu_millis;
                counts.waiting -= 1;
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.set_waiting(false);
        let devices = std::mem::take(&mut self.devices);
        self.ledger.devices().give_back(devices);
        self.ledger.change(|counts| {
            counts.load.running -= 1;
            counts.load.containers -= 1;
            counts.load.memory_reserved_bytes -= self.memory_bytes;
            counts.load.cpu_reserved_millis -= self.cpu_millis;
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

    fn ledger() -> Arc<Ledger> {
        let files = ["/dev/a", "/dev/b"].map(|file| Some(file.to_owned()));
        let devices = BTreeMap::from([("gpu".parse().expect("a name"), files.to_vec())]);
        Ledger::new(CAPACITY, Some(1_000), Devices::new(devices))
    }

    fn files(seat: &Seat) -> Vec<&str> {
        seat.devices()
            .files()
            .flat_map(|(_, files)| files)
            .collect()
    }

    fn claim(memory_bytes: u64, gpus: u16) -> Claim {
        let gpu = ("gpu".parse().expect("a name"), gpus);
        Claim {
            memory_bytes,
            cpu_millis: 1_000,
            devices: [gpu].into_iter().filter(|(_, gpus)| *gpus > 0).collect(),
        }
    }

    #[test]
    fn nobody_enters_where_there_is_no_room() {
        let ledger = ledger();
        let seat = ledger.enter(Class::Root, &claim(60, 0)).unwrap();
        assert!(ledger.enter(Class::Child, &claim(0, 0)).is_none());
        let changes = ledger.subscribe();
        drop(seat);
        assert!(changes.has_changed().unwrap());
        assert!(ledger.enter(Class::Child, &claim(0, 0)).is_some());
    }

    #[test]
    fn a_seat_gives_back_all_it_took() {
        let ledger = ledger();
        let mut seat = ledger.enter(Class::Root, &claim(60, 1)).unwrap();
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

    #[test]
    fn who_waits_keeps_its_devices_and_nobody_else_has_them() {
        let ledger = ledger();
        let mut first = ledger.enter(Class::Root, &claim(0, 1)).unwrap();
        first.set_waiting(true);
        assert_eq!(files(&first), ["/dev/a"]);
        let both = claim(0, 2).devices;
        assert_eq!(ledger.room_with(&both), Room::default());
        assert!(ledger.enter(Class::Child, &claim(0, 2)).is_none());
        let second = ledger.enter(Class::Child, &claim(0, 1)).unwrap();
        assert_eq!(files(&second), ["/dev/b"]);
        drop((first, second));
        assert_eq!(ledger.load(), Load::default());
        let both = ledger.enter(Class::Root, &claim(0, 2)).unwrap();
        assert_eq!(files(&both).len(), 2);
    }

    #[test]
    fn a_root_waits_for_processors_that_others_were_promised() {
        let capacity = Capacity {
            slots: 2,
            ..CAPACITY
        };
        let ledger = Ledger::new(capacity, Some(500), Devices::default());
        let wide = Claim {
            cpu_millis: 2_000,
            ..Claim::default()
        };
        let mut seat = ledger.enter(Class::Root, &wide).unwrap();
        assert!(ledger.enter(Class::Root, &wide).is_none());
        seat.set_waiting(true);
        assert!(ledger.enter(Class::Root, &wide).is_some());
    }
}
