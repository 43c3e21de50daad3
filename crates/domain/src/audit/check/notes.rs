//! Notes: the notes of an attempt form a chain, and a result commits to the notes of its attempt.

use std::collections::BTreeMap;

use super::histories::End;
use super::shown;
use crate::audit::{Finding, FindingKind};
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::run::Note;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Attempt and number of each note by its hash. A number occurs twice if the broker stored a note without confirming
    /// it.
    known: BTreeMap<Digest, (RunId, u32, u32)>,
}

impl Notes {
    /// Whether a note names an unknown one is checked with all chains.
    pub(super) fn take(
        &mut self,
        run: RunId,
        place: &str,
        recorded: &Recorded<Note>,
    ) -> Option<Finding> {
        let kind = recorded.event.kind();
        let previous = kind.previous.map(|previous| self.known.get(&previous));
        let follows = match previous {
            None => kind.number == 1,
            Some(None) => true,
            Some(Some(&(of, attempt, number))) => {
                (of, attempt) == (run, kind.attempt) && number.checked_add(1) == Some(kind.number)
            }
        };
        let is_chained = recorded.previous == kind.previous;
        self.known
            .insert(recorded.hash, (run, kind.attempt, kind.number));
        (!follows || !is_chained).then(|| Finding {
            kind: FindingKind::Chain,
            place: place.to_owned(),
            found: format!("note {} after {}", kind.number, shown(kind.previous)),
            expected: format!("the next note of attempt {} of {run}", kind.attempt),
        })
    }

    /// Checks the number of the last note that each result names.
    pub(super) fn finish<'a>(&self, ends: impl Iterator<Item = (RunId, &'a End)>) -> Vec<Finding> {
        let wrong = ends.filter_map(|(run, end)| {
            let last = end.notes.as_ref()?;
            let found = self.known.get(&last.hash)?;
            (*found != (run, end.attempt, last.number)).then(|| Finding {
                kind: FindingKind::MissingEvent,
                place: end.place.clone(),
                found: format!("no note {} of attempt {}", last.number, end.attempt),
                expected: format!("the note {} that the result names", last.hash),
            })
        });
        wrong.collect()
    }
}
