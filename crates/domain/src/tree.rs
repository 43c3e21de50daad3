//! Trees of runs after the fact: why a run waits, and how two trees differ.

mod comparison;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use self::comparison::{Comparison, DIFFERENCES_MAX, OneSided, Pair, compare};
use crate::id::RunId;
use crate::run::{Phase, Run, RunError};
use crate::spending::Spent;
use crate::subject::Pool;

/// A run with all its callees, in the order of their launches.
#[derive(Clone, Debug)]
pub struct Branch<'a> {
    pub run: &'a Run,
    /// The spending of the run alone.
    pub spent: Spent,
    pub callees: Vec<Self>,
}

/// Why a run waits, as far as stored events show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// For admission by a rule.
    Admission,
    /// For a node of this pool.
    Node(&'a Pool),
    /// For the end of the pause after a failed attempt.
    Rest {
        until: Timestamp,
        error: &'a RunError,
    },
    /// For these callees.
    Callees(Vec<RunId>),
}

impl Branch<'_> {
    /// Why the run waits; none if it has ended or does not wait.
    pub fn waits_for(&self) -> Option<Wait<'_>> {
        match (&self.run.phase, &self.run.rests) {
            (Phase::Ended(_), _) => None,
            (Phase::Requested, _) => Some(Wait::Admission),
            (Phase::Queued, Some(rest)) => Some(Wait::Rest {
                until: rest.until,
                error: &rest.error,
            }),
            (Phase::Queued, None) => Some(Wait::Node(&self.run.launched.event.placement.pool)),
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
