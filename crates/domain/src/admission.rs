//! How many launches a node may pull: roots never take what their descendants need.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::subject::Class;

/// What a node may have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Runs that compute; a run that waits for a callee does not count.
    pub slots: usize,
    /// Live containers, waiting ones included, above which no new root starts.
    pub containers_max: usize,
    /// Memory that live containers may reserve before no new root starts.
    pub memory_bytes: u64,
}

/// What a node has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Runs that compute, launches being taken on included.
    pub running: usize,
    pub containers: usize,
    pub memory_reserved_bytes: u64,
    /// Thousandths of processors of runs that compute.
    pub cpu_reserved_millis: u64,
    pub is_draining: bool,
}

/// How many launches of each class may be pulled now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub children: usize,
    /// At most this many of the launches may be roots.
    pub roots: usize,
}

impl Room {
    pub const fn of(self, class: Class) -> usize {
        match class {
            Class::Child => self.children,
            Class::Root => self.roots,
        }
    }
}

/// What of a node is used up so that no new root starts there although it has a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    Containers,
    Memory,
    Processors,
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Containers => "has as many containers as it may have",
            Self::Memory => "has promised all its memory",
            Self::Processors => "has promised all its processors",
        })
    }
}

/// What stops new roots, if anything but slots does.
pub fn lack(capacity: Capacity, cpu_millis: Option<u64>, load: Load) -> Option<Lack> {
    if load.containers >= capacity.containers_max {
        Some(Lack::Containers)
    } else if load.memory_reserved_bytes >= capacity.memory_bytes {
        Some(Lack::Memory)
    } else {
        let is_promised = cpu_millis.is_some_and(|has| load.cpu_reserved_millis >= has);
        is_promised.then_some(Lack::Processors)
    }
}

/// The room that `load` leaves on a node with `capacity`, and with so many thousandths of processors if they are counted.
///
/// Children need a slot only: the containers that wait for them are there already, so refusing
/// them for memory would hold these for ever. (A resumed caller runs at once, even above `slots`.)
pub fn room(capacity: Capacity, cpu_millis: Option<u64>, load: Load) -> Room {
    if load.is_draining {
        return Room::default();
    }
    let children = capacity.slots.saturating_sub(load.running);
    let containers = capacity.containers_max.saturating_sub(load.containers);
    Room {
        children,
        roots: match lack(capacity, cpu_millis, load) {
            None => children.min(containers),
            Some(_) => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Capacity = Capacity {
        slots: 2,
        containers_max: 4,
        memory_bytes: 100,
    };

    #[test]
    fn waiting_parents_leave_their_slots_to_children() {
        let load = Load {
            running: 0,
            containers: 4,
            memory_reserved_bytes: 100,
            ..Load::default()
        };
        assert_eq!(
            room(CAPACITY, None, load),
            Room {
                children: 2,
                roots: 0
            }
        );
    }

    #[test]
    fn resumed_callers_above_the_limit_leave_no_room() {
        let load = Load {
            running: 3,
            containers: 3,
            ..Load::default()
        };
        assert_eq!(room(CAPACITY, None, load), Room::default());
    }

    #[test]
    fn a_draining_node_pulls_nothing() {
        assert_eq!(
            room(
                CAPACITY,
                None,
                Load {
                    is_draining: true,
                    ..Load::default()
                }
            ),
            Room::default()
        );
    }

    #[test]
    fn roots_stop_at_the_memory_of_the_node() {
        let load = Load {
            running: 1,
            containers: 1,
            memory_reserved_bytes: 100,
            ..Load::default()
        };
        assert_eq!(
            room(CAPACITY, None, load),
            Room {
                children: 1,
                roots: 0
            }
        );
    }

    #[test]
    fn roots_stop_at_the_processors_of_the_node() {
        let load = |cpu_reserved_millis| Load {
            running: 1,
            containers: 1,
            cpu_reserved_millis,
            ..Load::default()
        };
        let roots = |reserved| room(CAPACITY, Some(4_000), load(reserved)).roots;
        assert_eq!((roots(3_999), roots(4_000)), (1, 0));
        assert_eq!(room(CAPACITY, Some(4_000), load(9_000)).children, 1);
        assert_eq!(room(CAPACITY, None, load(9_000)).roots, 1);
    }
}
