//! The number of launches that a node may pull: roots never take the capacity that their descendants need.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::subject::Class;

/// The maximum load of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum running runs; a run that waits for a callee does not count.
    pub slots: usize,
    /// Number of live containers, including waiting ones, at which no new root starts.
    pub containers_max: usize,
    /// Reserved memory of live containers at which no new root starts.
    pub memory_bytes: u64,
}

/// The current load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Running runs, including launches that are being taken.
    pub running: usize,
    pub containers: usize,
    pub memory_reserved_bytes: u64,
    /// Reserved CPUs of running runs, in thousandths.
    pub cpu_reserved_millis: u64,
    pub is_draining: bool,
}

/// The number of launches of each class that may be pulled now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeCapacity {
    pub children: usize,
    /// Maximum number of roots among the launches.
    pub roots: usize,
}

impl FreeCapacity {
    pub const fn of(self, class: Class) -> usize {
        match class {
            Class::Child => self.children,
            Class::Root => self.roots,
        }
    }
}

/// The exhausted resource of a node, which stops new roots although a slot is free.
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
            Self::Containers => "has reached its maximum number of containers",
            Self::Memory => "has reserved all its memory",
            Self::Processors => "has reserved all its processors",
        })
    }
}

/// The resource that stops new roots, except slots.
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

/// The free capacity of a node with `capacity` and `load`; `cpu_millis` is the number of thousandths of CPUs, if they
/// are counted.
///
/// Children need only a slot: the containers that wait for them exist already, so refusing children for memory would
/// block these for ever. (A resumed caller runs immediately, even above `slots`.)
pub fn free_capacity(capacity: Capacity, cpu_millis: Option<u64>, load: Load) -> FreeCapacity {
    if load.is_draining {
        return FreeCapacity::default();
    }
    let children = capacity.slots.saturating_sub(load.running);
    let containers = capacity.containers_max.saturating_sub(load.containers);
    FreeCapacity {
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
            free_capacity(CAPACITY, None, load),
            FreeCapacity {
                children: 2,
                roots: 0
            }
        );
    }

    #[test]
    fn resumed_callers_above_the_limit_leave_nothing_free() {
        let load = Load {
            running: 3,
            containers: 3,
            ..Load::default()
        };
        assert_eq!(free_capacity(CAPACITY, None, load), FreeCapacity::default());
    }

    #[test]
    fn a_draining_node_pulls_nothing() {
        assert_eq!(
            free_capacity(
                CAPACITY,
                None,
                Load {
                    is_draining: true,
                    ..Load::default()
                }
            ),
            FreeCapacity::default()
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
            free_capacity(CAPACITY, None, load),
            FreeCapacity {
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
        let roots = |reserved| free_capacity(CAPACITY, Some(4_000), load(reserved)).roots;
        assert_eq!((roots(3_999), roots(4_000)), (1, 0));
        assert_eq!(
            free_capacity(CAPACITY, Some(4_000), load(9_000)).children,
            1
        );
        assert_eq!(free_capacity(CAPACITY, None, load(9_000)).roots, 1);
    }
}
