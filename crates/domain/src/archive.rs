//! The archive: closed segments of the log as artifacts, so that the broker may delete old events.
//!
//! Segments cover the log from its first event, without gaps. Each segment is two artifacts: its events, and an index.
//! An event announces each release well before the broker deletes anything: a reader that checked the archive within
//! [`FRESH`] knows where to read. All archive events form one chain under one guard, and each contains the whole state,
//! so the last one is enough.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::event::Recorded;
use crate::subject::{self, Subject};

/// Events of a segment that is closed because it is full: about ten megabytes, a minute of a busy cluster.
pub const SEGMENT_EVENTS: u64 = 20_000;

/// Time between the event that releases a part of the log and its deletion by the broker.
pub const RELEASE_DELAY: Duration = Duration::from_secs(60);

/// How long a check of the last archive event stays valid: far shorter than [`RELEASE_DELAY`], which leaves time to act
/// on it.
pub const FRESH: Duration = Duration::from_secs(10);

/// An artifact of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub digest: Digest,
    pub size_bytes: u64,
}

/// A closed part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The sequences of the first and the last event.
    pub first: u64,
    pub last: u64,
    /// The latest time of its events.
    pub latest: Timestamp,
    /// The events.
    pub events: Artifact,
    /// The offsets of the events, and all earlier segments.
    pub index: Artifact,
}

/// The whole state of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The last segment.
    pub segment: Segment,
    /// The broker may lack events before this sequence.
    pub floor: u64,
}

/// A change of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// One more segment is in the artifact store.
    #[serde(rename = "dev.aod.archive.archived.v1")]
    Archived(Archive),
    /// The floor is raised.
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

/// The floor by the last archive event: below it, the artifact store has all events.
pub fn floor(last: Option<&Recorded<Event>>) -> u64 {
    last.map_or(1, |last| last.event.archive().floor)
}

/// The facts that archive decisions depend on.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub now: Timestamp,
    /// Minimum time that events stay in the broker.
    pub age: SignedDuration,
    /// The last sequence of the log.
    pub last_sequence: u64,
    /// Storage time of the first event that is not archived; none if all are.
    pub oldest: Option<Timestamp>,
    /// The first launch whose run has not ended; if all have ended, the sequence after the log.
    pub first_needed: u64,
}

/// The events of the segment to close: a full segment immediately, any other at half of the minimum age, so that as
/// much time is left to store it.
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

/// The new floor: after whole segments that are old enough, and before all live runs, so that the broker has the whole
/// of a tree that may still grow.
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
    fn segment_is_closed_when_full_or_at_half_the_minimum_age() {
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
    fn floor_stays_below_young_events_and_live_runs() {
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
        // A later segment is only released after all earlier ones.
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
    fn release_is_announced_long_before_the_deletion() {
        assert!(FRESH * 3 < RELEASE_DELAY);
    }
}
