//! Trees of runs, looked at afterwards: what a run waited for, and in what two trees differ.

mod comparison;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use self::comparison::{Comparison, DIFFERENCES_MAX, OneSided, Pair, compare};
use crate::id::RunId;
use crate::run::{Phase, Run, RunError};
use crate::spending::Spent;
use crate::subject::Label;

/// A run with everything that it called, its callees in the order of their launches.
#[derive(Clone, Debug)]
pub struct Branch<'a> {
    pub run: &'a Run,
    /// What the run alone spent on models.
    pub spent: Spent,
    pub callees: Vec<Self>,
}

/// What a run waits for, as far as stored events alone tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// Its admission, since a rule is for it.
    Admission,
    /// A node with this label.
    Node(&'a Label),
    /// The end of the pause after a failed attempt.
    Rest {
        until: Timestamp,
        error: &'a RunError,
    },
    /// What it called, and has no answer from.
    Callees(Vec<RunId>),
}

impl Branch<'_> {
    /// What the run waits for; nothing for one that has ended, or that has everything that it asked for.
    pub fn waits_for(&self) -> Option<Wait<'_>> {
        match (&self.run.phase, &self.run.rests) {
            (Phase::Ended(_), _) => None,
            (Phase::Requested, _) => Some(Wait::Admission),
            (Phase::Queued, Some(rest)) => Some(Wait::Rest {
                until: rest.until,
                error: &rest.error,
            }),
            (Phase::Queued, None) => Some(Wait::Node(&self.run.launched.event.placement.label)),
            (Phase::Leased(_), _) => {
                let open = self
                    .callees
                    .iter()
                    .filter(|callee| callee.run.ended().is_none());
                let open: Vec<RunId> = open.map(|callee| callee.run.id).collect();
                (!open.is_empty()).then_some(Wait::Callees(open))
            }
        }
    }
}
