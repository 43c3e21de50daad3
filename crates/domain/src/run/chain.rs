//! The state events of one run as a chain.

use super::{BrokenHistory, Event, Run};
use crate::chain::Chain;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::subject::{self, Subject};

/// A run that may not exist yet.
#[derive(Clone, Debug)]
pub struct RunChain {
    pub id: RunId,
    pub run: Option<Run>,
}

impl Chain for RunChain {
    type Event = Event;
    type Broken = BrokenHistory;

    fn name(&self) -> String {
        self.id.to_string()
    }

    fn filter(&self) -> String {
        subject::run_state(self.id)
    }

    fn subject(&self, event: &Event) -> Subject {
        // The launch names the tenant; all later events follow it.
        let launched = self.run.as_ref().map(|run| &run.launched.event);
        let launched = launched.or(event.launched());
        let tenant = launched.map(|launched| launched.tenant.clone());
        event.subject(&tenant.unwrap_or_default(), self.id)
    }

    fn about(&self, _event: &Event) -> String {
        self.id.to_string()
    }

    fn last(&self) -> Option<(u64, Digest)> {
        let last = self.run.as_ref()?.last;
        Some((last.sequence, last.hash))
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), BrokenHistory> {
        match &mut self.run {
            Some(run) => run.apply(recorded),
            None => {
                self.run = Some(Run::begin(self.id, recorded)?);
                Ok(())
            }
        }
    }
}
