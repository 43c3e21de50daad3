//! The unfinished parts of a tree: a seal waits for them.

use std::collections::BTreeSet;

use crate::event::{MalformedEvent, Recorded};
use crate::id::{EventId, RunId};
use crate::spending;
use crate::subject::Subject;

/// Runs that have not ended and model calls that are not settled, according to the events so far.
#[derive(Clone, Debug, Default)]
pub struct Open {
    runs: BTreeSet<RunId>,
    calls: BTreeSet<EventId>,
}

impl Open {
    /// Applies the next event of the tree, in the order of the log.
    ///
    /// # Errors
    /// If `bytes` do not match `subject`.
    pub fn take(
        &mut self,
        sequence: u64,
        subject: &str,
        bytes: &[u8],
    ) -> Result<(), MalformedEvent> {
        let Some(run) = Subject::run_of(subject) else {
            return Ok(());
        };
        if Subject::begins_run(subject) {
            self.runs.insert(run);
        } else if Subject::is_result(subject) {
            self.runs.remove(&run);
        } else if Subject::is_spending(subject) {
            let recorded = Recorded::decode(sequence, bytes)?;
            match &recorded.event {
                spending::Event::Reserved { call, .. } => self.calls.insert(call.id),
                spending::Event::Settled(settled) => self.calls.remove(&settled.call.id),
            };
        }
        Ok(())
    }

    /// Whether everything in the tree has ended.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.calls.is_empty()
    }
}
