//! Output files that a result leaves out: refused by the node, or too many for one event.

use serde::{Deserialize, Serialize};

use super::error::cut;
use super::{Ended, FileEntry, Outcome, RunError};
use crate::error_code::ErrorCode;
use crate::event::EVENT_SIZE_BYTES_MAX;

/// Output files that are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub count: u64,
    /// Why, for each of the first [`LEFT_OUT_NAMED_MAX`] files: a text that names the file.
    pub reasons: Vec<String>,
}

/// Files that a result names of those that it leaves out.
pub const LEFT_OUT_NAMED_MAX: usize = 10;

/// Maximum bytes of one reason, and of the whole value, as JSON.
const REASON_BYTES_MAX: usize = 256;
const LEFT_OUT_BYTES_MAX: usize = LEFT_OUT_NAMED_MAX * (REASON_BYTES_MAX + 1) + 64;

/// Maximum bytes of an event's envelope: ids, hashes, times and names of fields.
const ENVELOPE_BYTES_MAX: usize = 2 * 1024;

impl LeftOut {
    /// Adds a file for each of `reasons`; none if there is no file.
    pub fn with(known: Option<Self>, reasons: impl Iterator<Item = String>) -> Option<Self> {
        let mut left_out = known.unwrap_or_default();
        for mut reason in reasons {
            left_out.count += 1;
            if left_out.reasons.len() < LEFT_OUT_NAMED_MAX {
                cut(&mut reason, REASON_BYTES_MAX);
                left_out.reasons.push(reason);
            }
        }
        (left_out.count > 0).then_some(left_out)
    }
}

impl Ended {
    /// Makes the result fit an event: bounds its error, and keeps as many files as fit. A success with fewer files than
    /// the capsule created becomes a failure.
    pub fn fit(&mut self) {
        self.error = self.error.take().map(RunError::bounded);
        if self.room() >= 0 {
            return;
        }
        let files = std::mem::take(&mut self.files);
        if self.outcome == Outcome::Succeeded {
            let text = format!(
                "{} files do not fit into one result; pack them into fewer files",
                files.len()
            );
            self.outcome = Outcome::Failed;
            self.error = Some(RunError::new(ErrorCode::OutputTooLarge, text));
        }
        if self.room() < 0 {
            self.output = None;
        }
        self.keep_what_fits(files);
    }

    fn keep_what_fits(&mut self, mut files: Vec<FileEntry>) {
        let known = self.left_out.take();
        let mut room = self.room() - signed(LEFT_OUT_BYTES_MAX);
        let kept = files.iter().take_while(|file| {
            // With its comma.
            room -= json_bytes(file) + 1;
            room >= 0
        });
        let kept = kept.count();
        let left = files.split_off(kept);
        self.files = files;
        let reasons = left.into_iter();
        let reasons = reasons.map(|file| format!("{}: the list of files is too long", file.name));
        self.left_out = LeftOut::with(known, reasons);
    }

    /// Free bytes in the event of the result; negative if it does not fit.
    fn room(&self) -> i64 {
        signed(EVENT_SIZE_BYTES_MAX - ENVELOPE_BYTES_MAX) - json_bytes(self)
    }
}

fn json_bytes(value: &impl Serialize) -> i64 {
    serde_json::to_vec(value).map_or(i64::MAX, |bytes| signed(bytes.len()))
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn ended(files: usize, outcome: Outcome) -> Ended {
        let error = RunError::new(ErrorCode::CapsuleExit, "the capsule ended with exit code 3");
        let file = |number: usize| FileEntry {
            name: format!("page-{number:05}.txt").parse().unwrap(),
            digest: Digest::of(number.to_string()),
            size_bytes: 1,
        };
        Ended {
            files: (0..files).map(file).collect(),
            ..Ended::without_start(1, outcome, error)
        }
    }

    #[test]
    fn result_with_too_many_files_keeps_those_that_fit() {
        for outcome in [Outcome::Failed, Outcome::Succeeded] {
            let mut ended = ended(10_000, outcome);
            ended.fit();
            assert!(ended.room() >= 0);
            assert_eq!(ended.outcome, Outcome::Failed);
            assert!(ended.files.len() > 150, "{}", ended.files.len());
            let left_out = ended.left_out.unwrap();
            assert_eq!(left_out.count + ended.files.len() as u64, 10_000);
            let first = format!("page-{:05}.txt: the list", ended.files.len());
            assert!(left_out.reasons[0].starts_with(&first), "{left_out:?}");
            assert_eq!(left_out.reasons.len(), LEFT_OUT_NAMED_MAX);
        }
    }

    #[test]
    fn result_that_fits_stays_as_it_is() {
        let mut small = ended(3, Outcome::Failed);
        small.fit();
        assert_eq!(small, ended(3, Outcome::Failed));
    }

    #[test]
    fn reasons_are_counted_beyond_those_that_are_named() {
        let reasons = (0..12).map(|number| format!("{number}: {}", "x".repeat(1_000)));
        let left_out = LeftOut::with(None, reasons).unwrap();
        assert_eq!((left_out.count, left_out.reasons.len()), (12, 10));
        assert!(json_bytes(&left_out) <= signed(LEFT_OUT_BYTES_MAX));
        assert_eq!(LeftOut::with(None, std::iter::empty()), None);
    }
}
