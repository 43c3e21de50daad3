//! How full a disk, or a store with a limit, may get before new work is left to others.
//!
//! New trees stop first, so that those under way find room to end; then everything does. Both begin again only
//! with some more room than they stopped at, so that they do not come and go with each file.

use crate::subject::Class;

/// With less room nothing at all is begun, in bytes: as much as the output of one container may take.
pub const FULL_BELOW_BYTES: u64 = 64 << 20;

/// Room that is kept for trees under way unless an operator says otherwise, in bytes: a tenth of the disk, but not
/// more than this and not less than twice what counts as full.
pub const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// What may be begun on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Everything.
    #[default]
    Enough,
    /// What belongs to trees that are under way.
    NoRoots,
    /// Nothing.
    Full,
}

impl Room {
    /// Whether runs of this class may begin.
    pub fn takes(self, class: Class) -> bool {
        match class {
            Class::Child => self < Self::Full,
            Class::Root => self == Self::Enough,
        }
    }
}

/// A disk as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub size_bytes: u64,
}

/// The room that is kept on a disk of `size_bytes`; `reserve` is what the operator says.
pub fn reserve_bytes(size_bytes: u64, reserve: Option<u64>) -> u64 {
    let usual = (size_bytes / 10).clamp(2 * FULL_BELOW_BYTES, RESERVE_BYTES_MAX);
    reserve.unwrap_or(usual)
}

/// What may be begun now, when it was `before`.
pub fn room(before: Room, space: Space, reserve: Option<u64>) -> Room {
    // A quarter more than it stopped at.
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

/// Why not everything may be begun, by the name of the reason first; none with enough room. `place` says where.
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
                "{left}, and {kept} MiB are kept for trees under way"
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
    fn they_begin_again_with_more_room_than_they_stopped_at() {
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
    fn an_operator_may_say_how_much_is_kept() {
        let space = Space {
            free_bytes: 500 * MIB,
            size_bytes: 1_000 * MIB,
        };
        assert_eq!(room(Room::Enough, space, Some(501 * MIB)), Room::NoRoots);
        assert_eq!(room(Room::Enough, space, Some(0)), Room::Enough);
        let told = |room| reason(room, space, Some(501 * MIB), "/srv");
        assert_eq!(told(Room::Enough), None);
        let no_roots = "disk_full: /srv has 500 MiB of 1000 MiB left, and 501 MiB are kept for trees under way";
        assert_eq!(told(Room::NoRoots).as_deref(), Some(no_roots));
        let full = "disk_full: /srv has 500 MiB of 1000 MiB left";
        assert_eq!(told(Room::Full).as_deref(), Some(full));
    }
}
