//! A whole tree, read from the log.

use std::collections::BTreeMap;

use aod_domain::event::{MalformedEvent, Recorded};
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Event, Launched, Note};
use aod_domain::spending;
use aod_domain::subject::{self, Subject};
use aod_domain::trace::TraceId;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use thiserror::Error;

/// Events per read.
const PAGE_SIZE: usize = 1_000;

/// Maximum events of an exported tree: the maximum number of runs in a tree, with twenty events each.
const EVENTS_MAX: usize = 200_000;

/// Why a tree cannot be read, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum ReadTreeError {
    /// The broker does not answer: retry later.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Stored events are unreadable: the operator must act.
    #[error("the events of the tree of {root} are damaged")]
    Damaged { root: RunId, source: MalformedEvent },
    /// Too many events to export.
    #[error("the tree of {0} has more than {EVENTS_MAX} events")]
    TooLarge(RunId),
}

/// A run and its exported events.
#[derive(Clone, Debug)]
pub(crate) struct RunHistory {
    pub(crate) id: RunId,
    pub(crate) launched: Recorded<Launched>,
    /// The state events after its launch.
    pub(crate) events: Vec<Recorded<Event>>,
    pub(crate) notes: Vec<Recorded<Note>>,
}

impl RunHistory {
    pub(crate) fn ended(&self) -> Option<Recorded<&Ended>> {
        self.events
            .iter()
            .find_map(|recorded| match &recorded.event {
                Event::Ended(ended) => Some(recorded.clone().map(|_| &**ended)),
                _ => None,
            })
    }
}

/// All runs below a root, and what they spent on models.
#[derive(Clone, Debug)]
pub struct TreeHistory {
    pub(crate) root: RunId,
    pub(crate) runs: BTreeMap<RunId, RunHistory>,
    pub(crate) spending: Vec<Recorded<spending::Event>>,
}

impl TreeHistory {
    pub(crate) const fn new(root: RunId) -> Self {
        Self {
            root,
            runs: BTreeMap::new(),
            spending: Vec::new(),
        }
    }

    /// Reads the tree of `root`.
    ///
    /// # Errors
    /// [`ReadTreeError`].
    pub async fn read(log: &dyn EventLog, root: RunId) -> Result<Self, ReadTreeError> {
        let mut tree = Self::new(root);
        let damaged = |source| ReadTreeError::Damaged { root, source };
        for event in read_all(log, root, &subject::tree(root)).await? {
            tree.take(&event).map_err(damaged)?;
        }
        Ok(tree)
    }

    /// Adds the next event of the tree.
    pub(crate) fn take(&mut self, stored: &StoredEvent) -> Result<(), MalformedEvent> {
        let Some(id) = Subject::run_of(&stored.subject) else {
            return Ok(());
        };
        if Subject::is_spending(&stored.subject) {
            let recorded = stored.decode()?;
            self.spending.push(recorded);
            return Ok(());
        }
        if !Subject::is_state(&stored.subject) {
            // Nothing depends on notes: one of a later version of AOD is skipped.
            let note = stored.decode::<Note>();
            if let (Some(run), Ok(note)) = (self.runs.get_mut(&id), note) {
                run.notes.push(note);
            }
            return Ok(());
        }
        let recorded = stored.decode::<Event>()?;
        if let Some(launched) = recorded.event.launched() {
            let launched = recorded.clone().map(|_| launched.clone());
            self.runs.entry(id).or_insert(RunHistory {
                id,
                launched,
                events: Vec::new(),
                notes: Vec::new(),
            });
        } else if let Some(run) = self.runs.get_mut(&id) {
            run.events.push(recorded);
        }
        Ok(())
    }

    /// The trace of the tree.
    pub(crate) fn trace(&self) -> TraceId {
        let origin = self.runs.get(&self.root);
        TraceId::of(self.root, origin.and_then(|root| root.launched.event.trace))
    }
}

async fn read_all(
    log: &dyn EventLog,
    root: RunId,
    filter: &str,
) -> Result<Vec<StoredEvent>, ReadTreeError> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.sequence);
        let page = log.read(filter, after, PAGE_SIZE).await?;
        let is_last = page.len() < PAGE_SIZE;
        events.extend(page);
        if is_last {
            return Ok(events);
        }
        if events.len() >= EVENTS_MAX {
            return Err(ReadTreeError::TooLarge(root));
        }
    }
}
