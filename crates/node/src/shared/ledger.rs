//! Counts the used slots, containers, memory, processors and devices of this node.
//!
//! Every change between running and waiting, and every end of a run, passes here; each change wakes the puller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aod_domain::admission::{Capacity, FreeCapacity, Lack, Load, free_capacity, lack};
use aod_domain::placement::{Devices, Name};
use aod_domain::subject::Class;
use tokio::sync::watch;

use crate::lock::lock;

/// Thousandths of a processor for each slot.
const MILLIS_PER_SLOT: u64 = 1_000;

/// The counts of a node, shared by all its attempts.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: Capacity,
    /// Thousandths of processors that the node may reserve in total, if counted.
    cpu_millis: Option<u64>,
    devices: Mutex<Devices>,
    counts: watch::Sender<Counts>,
}

/// The capacity that a run takes.
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
    /// Maximum number of concurrent containers.
    containers_peak: usize,
    /// Maximum memory reserved concurrently.
    memory_peak_bytes: u64,
}

/// The capacity that an attempt holds until it is dropped: a container, memory and devices, and while its capsule is
/// not waiting a slot and processors.
#[derive(Debug)]
pub(crate) struct Seat {
    ledger: Arc<Ledger>,
    memory_bytes: u64,
    cpu_millis: u64,
    devices: Devices,
    is_waiting: bool,
}

impl Ledger {
    /// `cpu_millis` are the processors of the machine, if counted; at least one for each slot.
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

    pub(crate) fn free_capacity(&self) -> FreeCapacity {
        free_capacity(self.capacity, self.cpu_millis, self.counts().load)
    }

    /// The capacity other than slots that is missing for new roots, if any.
    pub(crate) fn roots_lack(&self) -> Option<Lack> {
        lack(self.capacity, self.cpu_millis, self.counts().load)
    }

    /// The free capacity for runs that take these devices.
    pub(crate) fn free_capacity_with(&self, devices: &BTreeMap<Name, u16>) -> FreeCapacity {
        if lock(&self.devices).has(devices) {
            self.free_capacity()
        } else {
            FreeCapacity::default()
        }
    }

    /// The number of free devices of each kind.
    pub(crate) fn devices_free(&self) -> BTreeMap<Name, usize> {
        lock(&self.devices).counts()
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

    /// Takes a slot and the claimed capacity; none if the node has no free capacity for a run of `class`.
    pub(crate) fn enter(self: &Arc<Self>, class: Class, claim: &Claim) -> Option<Seat> {
        let mut devices = None;
        let has_entered = self.counts.send_if_modified(|counts| {
            if free_capacity(self.capacity, self.cpu_millis, counts.load).of(class) > 0 {
                devices = lock(&self.devices).take(&claim.devices);
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

    /// Reports all changes from now on.
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

    /// Records whether the run waits for a callee. A waiting run holds no slot; a resumed run gets a slot immediately.
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
        lock(&self.ledger.devices).give_back(devices);
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
    fn run_cannot_enter_a_node_without_free_capacity() {
        let ledger = ledger();
        let seat = ledger.enter(Class::Root, &claim(60, 0)).unwrap();
        assert!(ledger.enter(Class::Child, &claim(0, 0)).is_none());
        let changes = ledger.subscribe();
        drop(seat);
        assert!(changes.has_changed().unwrap());
        assert!(ledger.enter(Class::Child, &claim(0, 0)).is_some());
    }

    #[test]
    fn dropped_seat_frees_all_its_capacity() {
        let ledger = ledger();
        let mut seat = ledger.enter(Class::Root, &claim(60, 1)).unwrap();
        let free = |children, roots| FreeCapacity { children, roots };
        assert_eq!(ledger.free_capacity(), free(0, 0));
        seat.set_waiting(true);
        assert_eq!(ledger.free_capacity(), free(1, 1));
        assert_eq!(ledger.waiting(), 1);
        drop(seat);
        assert_eq!(ledger.load(), Load::default());
        assert_eq!((ledger.waiting(), ledger.containers_peak()), (0, 1));
    }

    #[test]
    fn waiting_run_keeps_its_devices_exclusively() {
        let ledger = ledger();
        let mut first = ledger.enter(Class::Root, &claim(0, 1)).unwrap();
        first.set_waiting(true);
        assert_eq!(files(&first), ["/dev/a"]);
        let both = claim(0, 2).devices;
        assert_eq!(ledger.free_capacity_with(&both), FreeCapacity::default());
        assert!(ledger.enter(Class::Child, &claim(0, 2)).is_none());
        let second = ledger.enter(Class::Child, &claim(0, 1)).unwrap();
        assert_eq!(files(&second), ["/dev/b"]);
        drop((first, second));
        assert_eq!(ledger.load(), Load::default());
        let both = ledger.enter(Class::Root, &claim(0, 2)).unwrap();
        assert_eq!(files(&both).len(), 2);
    }

    #[test]
    fn root_waits_for_processors_reserved_by_other_runs() {
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
