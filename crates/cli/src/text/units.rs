//! Durations, sizes, numbers and states as readable text.

use aod_api::runs::RunState;
use jiff::{SignedDuration, Timestamp};

/// `850 ms`, `3.2 s`, `4 min 10 s`, `2 h 3 min`, `5 d 1 h`; a negative duration is `0 ms`.
pub(crate) fn duration(duration: SignedDuration) -> String {
    let milliseconds = duration.as_millis().max(0);
    let seconds = milliseconds / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1_000 / 100),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The duration from `from` to `until`.
pub(crate) fn between(from: Timestamp, until: Timestamp) -> String {
    duration(until.duration_since(from))
}

/// `812 B`, `4.1 KiB`, `3.0 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1_024 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1_024;
    let mut units = UNITS.iter();
    let mut unit = units.next().expect("there are units");
    while tenths >= 10_240 {
        let Some(next) = units.next() else { break };
        tenths /= 1_024;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// `1 run`, `3 runs`.
pub(crate) fn count(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// A state as the end of a sentence: `the run … failed`.
pub(crate) const fn state_words(state: RunState) -> &'static str {
    match state {
        RunState::TimedOut => "timed out",
        RunState::Cancelled => "was cancelled",
        state => state.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_parts() {
        let cases = [
            (-5, "0 ms"),
            (850, "850 ms"),
            (3_250, "3.2 s"),
            (59_999, "59.9 s"),
            (250_000, "4 min 10 s"),
            (7_380_000, "2 h 3 min"),
            (435_600_000, "5 d 1 h"),
        ];
        for (milliseconds, expected) in cases {
            assert_eq!(
                duration(SignedDuration::from_millis(milliseconds)),
                expected
            );
        }
    }

    #[test]
    fn sizes_have_one_unit() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (4_250, "4.1 KiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }
}
