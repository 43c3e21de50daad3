//! How many launches a node may pull: roots never take what their descendants need.

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

/// The room that `load` leaves.
///
/// Children need a slot only: the containers that wait for them are there already, so refusing
/// them for memory would hold these for ever. (A resumed caller runs at once, even above `slots`.)
pub fn room(capacity: Capacity, load: Load) -> Room {
    if load.is_draining {
        return Room::default();
    }
    let children = capacity.slots.saturating_sub(load.running);
    let has_memory = load.memory_reserved_bytes < capacity.memory_bytes;
    let containers = capacity.containers_max.saturating_sub(load.containers);
    Room {
        children,
        roots: if has_memory {
            children.min(containers)
        } else {
            0
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
            is_draining: false,
        };
        assert_eq!(
            room(CAPACITY, load),
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
        assert_eq!(room(CAPACITY, load), Room::default());
    }

    #[test]
    fn a_draining_node_pulls_nothing() {
        assert_eq!(
            room(
                CAPACITY,
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
            is_draining: false,
        };
        assert_eq!(
            room(CAPACITY, load),
            Room {
                children: 1,
                roots: 0
            }
        );
    }
}
