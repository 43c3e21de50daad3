//! The archive: closed segments of the log as artifacts, so that the broker may let the old ones go.
//!
//! The log is cut into segments from its first event on, without gaps. Each is an artifact, with another one as
//! its index. What the broker may let go of is said, in events, well before it is done: whoever has looked at
//! these within [`FRESH`] knows where to read. All of them are one chain under one guard, and each has all that
//! is known, so that the last one tells it.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::event::Recorded;
use crate::subject::{self, Subject};

/// Events of a segment that is closed because it is full: some ten megabytes, and a minute of a busy cluster.
pub const SEGMENT_EVENTS: u64 = 20_000;

/// Between the event that lets go of a part of the log and the deed.
pub const RELEASE_DELAY: Duration = Duration::from_secs(60);

/// For how long a look at the last event of the archive is good enough: far shorter than [`RELEASE_DELAY`],
/// which leaves room for what is done with it.
pub const FRESH: Duration = Duration::from_secs(10);

/// An artifact that the archive is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// A closed part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The sequences of its first and its last event.
    pub first: u64,
    pub last: u64,
    /// The latest time that one of its events names.
    pub latest: Timestamp,
    /// Its events.
    pub events: Artifact,
    /// Where they are in there, and all segments before this one.
    pub index: Artifact,
}

/// All that is known of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The last one.
    pub segment: Segment,
    /// The broker need not have the events before this sequence.
    pub floor: u64,
}

/// What became of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// A segment more is in the artifact store.
    #[serde(rename = "dev.aod.archive.archived.v1")]
    Archived(Archive),
    /// The floor was raised.
    #[serde(rename = "dev.aod.archive.released.v1")]
    Released(Archive),
}

impl Event {
    pub const fn archive(&self) -> &Archive {
        match self {
            Self::Archived(archive) | Self::Released(archive) => archive,
        }
    }

    pub fn subject(&self) -> Subject {
        subject::archive_event(match self {
            Self::Archived(_) => "archived",
            Self::Released(_) => "released",
        })
    }
}

/// The floor by the last event of the archive: below it the artifact store has everything.
pub fn floor(last: Option<&Recorded<Event>>) -> u64 {
    last.map_or(1, |last| last.event.archive().floor)
}

/// What the archive is decided on.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub now: Timestamp,
    /// How long events stay in the broker at least.
    pub age: SignedDuration,
    /// Where the log ends.
    pub last_sequence: u64,
    /// When the first event that is not in the archive was stored; none if all are.
    pub oldest: Option<Timestamp>,
    /// The first launch whose run has not ended; what comes after the log if all have.
    pub first_needed: u64,
}

/// The events of the segment that is to be closed: full ones at once, others at half of their age, so that there
/// is as much time again to get it done.
pub fn next_segment(last: Option<&Segment>, seen: &Seen) -> Option<RangeInclusive<u64>> {
    let first = last.map_or(1, |segment| segment.last + 1);
    let full = first + SEGMENT_EVENTS - 1;
    if seen.last_sequence >= full {
        return Some(first..=full);
    }
    let is_old = seen
        .oldest
        .is_some_and(|oldest| oldest + seen.age / 2 <= seen.now);
    (is_old && seen.last_sequence >= first).then_some(first..=seen.last_sequence)
}

/// What the floor is to be raised to: behind whole segments that are old enough, and before all runs that live,
/// so that a tree which may still grow is in the broker as a whole.
pub fn next_floor(floor: u64, segments: &[Segment], seen: &Seen) -> Option<u64> {
    let may_go = |segment: &&Segment| {
        segment.latest + seen.age <= seen.now && segment.last < seen.first_needed
    };
    let last = segments.iter().take_while(may_go).last()?;
    (last.last + 1 > floor).then_some(last.last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: SignedDuration = SignedDuration::from_hours(24);

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    fn segment(first: u64, last: u64, hours: i64) -> Segment {
        let artifact = Artifact {
            digest: Digest::of([]),
            size_bytes: 0,
        };
        Segment {
            first,
            last,
            latest: at(hours),
            events: artifact,
            index: artifact,
        }
    }

    fn seen(hours: i64, last_sequence: u64) -> Seen {
        Seen {
            now: at(hours),
            age: AGE,
            last_sequence,
            oldest: Some(at(0)),
            first_needed: u64::MAX,
        }
    }

    #[test]
    fn a_segment_is_closed_when_it_is_full_or_half_as_old_as_it_may_be() {
        let check = |last: Option<&Segment>, seen: Seen, expected| {
            assert_eq!(next_segment(last, &seen), expected);
        };
        check(None, seen(0, 0), None);
        check(None, seen(11, SEGMENT_EVENTS - 1), None);
        check(None, seen(12, 7), Some(1..=7));
        check(None, seen(0, SEGMENT_EVENTS), Some(1..=SEGMENT_EVENTS));
        let before = segment(1, 10, 0);
        check(Some(&before), seen(12, 10), None);
        check(Some(&before), seen(12, 11), Some(11..=11));
        let full = 11..=SEGMENT_EVENTS + 10;
        check(Some(&before), seen(0, 3 * SEGMENT_EVENTS), Some(full));
        let none_left = Seen {
            oldest: None,
            ..seen(100, 10)
        };
        check(Some(&before), none_left, None);
    }

    #[test]
    fn the_floor_stays_below_what_is_young_and_what_lives() {
        let segments = [
            segment(1, 10, 0),
            segment(11, 20, 5),
            segment(21, 30, 3),
            segment(31, 40, 20),
        ];
        let check = |floor, seen: Seen, expected| {
            assert_eq!(next_floor(floor, &segments, &seen), expected);
        };
        check(1, seen(23, 40), None);
        check(1, seen(24, 40), Some(11));
        // A later segment goes only when those before it do.
        check(1, seen(28, 40), Some(11));
        check(1, seen(29, 40), Some(31));
        check(11, seen(28, 40), None);
        check(1, seen(100, 40), Some(41));
        let first_needed = 15;
        let lives = Seen {
            first_needed,
            ..seen(100, 40)
        };
        check(1, lives, Some(11));
        check(11, lives, None);
    }

    #[test]
    fn it_is_known_where_to_read_long_before_anything_goes() {
        assert!(FRESH * 3 < RELEASE_DELAY);
    }
}
