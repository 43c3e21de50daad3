//! How full a disk, or a store with a limit, may get before a node or gateway takes no new work.
//!
//! New trees stop first, so that running trees have space to end; then everything stops. Both resume only with more
//! free space than they stopped at, so that the state does not change with each file.

use crate::subject::Class;

/// With less free space no run starts, in bytes: the maximum output of one container.
pub const FULL_BELOW_BYTES: u64 = 64 << 20;

/// Space reserved for running trees unless an operator sets it, in bytes: a tenth of the disk, at most this and at
/// least twice [`FULL_BELOW_BYTES`].
pub const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// The work that a disk allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// All work.
    #[default]
    Enough,
    /// Only runs of running trees.
    NoRoots,
    /// No work.
    Full,
}

impl Room {
    /// Whether runs of this class may start.
    pub fn takes(self, class: Class) -> bool {
        match class {
            Class::Child => self < Self::Full,
            Class::Root => self == Self::Enough,
        }
    }
}

/// The measured size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub size_bytes: u64,
}

/// The reserved space on a disk of `size_bytes`; `reserve` is the operator's setting.
pub fn reserve_bytes(size_bytes: u64, reserve: Option<u64>) -> u64 {
    let usual = (size_bytes / 10).clamp(2 * FULL_BELOW_BYTES, RESERVE_BYTES_MAX);
    reserve.unwrap_or(usual)
}

/// The work that is allowed now, after `before`.
pub fn room(before: Room, space: Space, reserve: Option<u64>) -> Room {
    // A quarter above the limit.
    let mark = |bytes: u64, is_below: bool| if is_below { bytes + bytes / 4 } else { bytes };
    let reserve = reserve_bytes(space.size_bytes, reserve);
    if space.free_bytes < mark(FULL_BELOW_BYTES, before == Room::Full) {
        Room::Full
    } else if space.free_bytes < mark(reserve, before >= Room::NoRoots) {
        Room::NoRoots
    } else {
        Room::Enough
    }
}

/// Why some work is not allowed, with the name of the reason first; none if all is. `place` names the disk.
pub fn reason(room: Room, space: Space, reserve: Option<u64>, place: &str) -> Option<String> {
    let Space {
        free_bytes,
        size_bytes,
    } = space;
    let left = format!(
        "disk_full: {place} has {} MiB of {} MiB left",
        free_bytes >> 20,
        size_bytes >> 20
    );
    match room {
        Room::Enough => None,
        Room::NoRoots => {
            let kept = reserve_bytes(size_bytes, reserve) >> 20;
            Some(format!(
                "{left}, and {kept} MiB are reserved for running trees"
            ))
        }
        Room::Full => Some(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(before: Room, free_mib: u64, size_mib: u64, expected: Room) {
        let space = Space {
            free_bytes: free_mib * MIB,
            size_bytes: size_mib * MIB,
        };
        assert_eq!(room(before, space, None), expected, "{space:?}");
    }

    #[test]
    fn roots_stop_first_and_everything_later() {
        for (free_mib, expected) in [
            (2_000, Room::Enough),
            (1_024, Room::Enough),
            (1_023, Room::NoRoots),
            (64, Room::NoRoots),
            (63, Room::Full),
            (0, Room::Full),
        ] {
            check(Room::Enough, free_mib, 100_000, expected);
        }
    }

    #[test]
    fn work_resumes_with_more_space_than_it_stopped_at() {
        check(Room::NoRoots, 1_279, 100_000, Room::NoRoots);
        check(Room::NoRoots, 1_280, 100_000, Room::Enough);
        check(Room::Full, 79, 100_000, Room::Full);
        check(Room::Full, 80, 100_000, Room::NoRoots);
        check(Room::Full, 1_279, 100_000, Room::NoRoots);
        check(Room::Full, 1_280, 100_000, Room::Enough);
    }

    #[test]
    fn a_small_disk_keeps_less() {
        check(Room::Enough, 300, 3_000, Room::Enough);
        check(Room::Enough, 299, 3_000, Room::NoRoots);
        check(Room::Enough, 128, 512, Room::Enough);
        check(Room::Enough, 127, 512, Room::NoRoots);
    }

    #[test]
    fn operator_can_set_the_reserved_space() {
        let space = Space {
            free_bytes: 500 * MIB,
            size_bytes: 1_000 * MIB,
        };
        assert_eq!(room(Room::Enough, space, Some(501 * MIB)), Room::NoRoots);
        assert_eq!(room(Room::Enough, space, Some(0)), Room::Enough);
        let text = |room| reason(room, space, Some(501 * MIB), "/srv");
        assert_eq!(text(Room::Enough), None);
        let no_roots = "disk_full: /srv has 500 MiB of 1000 MiB left, and 501 MiB are reserved for running trees";
        assert_eq!(text(Room::NoRoots).as_deref(), Some(no_roots));
        let full = "disk_full: /srv has 500 MiB of 1000 MiB left";
        assert_eq!(text(Room::Full).as_deref(), Some(full));
    }
}
