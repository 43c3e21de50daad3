//! Notes: those of an attempt are a chain, and a result commits to that of its attempt.

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
    /// The numbers of the notes of each attempt, by their hashes. A number comes twice where the broker
    /// stored a note without saying so.
    attempts: BTreeMap<(RunId, u32), BTreeMap<Digest, u32>>,
}

impl Notes {
    pub(super) fn take(
        &mut self,
        run: RunId,
        place: &str,
        recorded: &Recorded<Note>,
    ) -> Option<Finding> {
        let kind = recorded.event.kind();
        let known = self.attempts.entry((run, kind.attempt)).or_default();
        let follows = match kind.previous {
            None => Some(1),
            Some(previous) => known
                .get(&previous)
                .and_then(|number| number.checked_add(1)),
        };
        known.insert(recorded.hash, kind.number);
        let is_chained = recorded.previous == kind.previous;
        (follows != Some(kind.number) || !is_chained).then(|| Finding {
            kind: FindingKind::Chain,
            place: place.to_owned(),
            found: format!("note {} after {}", kind.number, shown(kind.previous)),
            expected: format!(
                "a note that follows one of attempt {} of {run}",
                kind.attempt
            ),
        })
    }

    /// The last note that each end names is there.
    pub(super) fn finish<'a>(&self, ends: impl Iterator<Item = (RunId, &'a End)>) -> Vec<Finding> {
        let missing = ends.filter_map(|(run, end)| {
            let last = end.notes.as_ref()?;
            let known = self.attempts.get(&(run, end.attempt));
            let found = known.and_then(|known| known.get(&last.hash));
            (found != Some(&last.number)).then(|| Finding {
                kind: FindingKind::MissingEvent,
                place: end.place.clone(),
                found: format!("no note {} of attempt {}", last.number, end.attempt),
                expected: format!("the note {}, which it names", last.hash),
            })
        });
        missing.collect()
    }
}
