//! Runs, as one program loads and changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_domain::digest::Digest;
use aod_domain::event::{Header, MalformedEvent};
use aod_domain::id::RunId;
use aod_domain::run::{self, BrokenHistory, Command, Rejection, Run, RunChain, decide};
use aod_domain::subject::{self, Subject};
use aod_ports::clock::Clock;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use thiserror::Error;

use crate::pages::Pages;
use crate::writer::{ChangeError, Writer, catch_up};

/// The runs of the log.
#[derive(Clone, Debug)]
pub struct Runs(Writer);

/// Why a command failed.
pub type HandleError = ChangeError<Rejection>;

/// Stored events that form no run.
#[derive(Debug, Error)]
pub enum DamagedRun {
    #[error(transparent)]
    Malformed(#[from] MalformedEvent),
    #[error(transparent)]
    Broken(#[from] BrokenHistory),
}

impl Runs {
    /// `source` names the writer in events: `/node/node_…`.
    pub fn new(log: Arc<dyn EventLog>, clock: Arc<dyn Clock>, source: &str) -> Self {
        Self(Writer::new(log, clock, source))
    }

    /// The writer of all events of this program.
    pub const fn writer(&self) -> &Writer {
        &self.0
    }

    pub fn log(&self) -> &Arc<dyn EventLog> {
        self.0.log()
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.0.clock()
    }

    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// A new header for an event of this program.
    pub fn header(&self) -> Header {
        self.0.header()
    }

    /// The callees of all attempts of `run`; for each ended one the hash of its result.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn callees(&self, run: &Run) -> Result<BTreeMap<RunId, Option<Digest>>, ReadError> {
        let (tree, after) = (subject::tree(run.id), run.launched.sequence);
        let mut pages = Pages::new(self.log().as_ref(), tree, after);
        let mut callees = BTreeMap::new();
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(callees);
            }
            for stored in &page {
                take_callee(&mut callees, run.id, stored);
            }
        }
    }

    /// The run as stored now; none if the log has no event of it.
    pub async fn load(&self, id: RunId) -> Result<Option<Run>, HandleError> {
        let mut chain = RunChain { id, run: None };
        catch_up(self.log().as_ref(), &mut chain).await?;
        Ok(chain.run)
    }

    /// Executes `command` on the run `id`; decides again whenever another writer was faster. Returns the run
    /// afterwards.
    ///
    /// `known` is the caller's idea of the run; it saves a read and is not trusted: the guard of the append checks it.
    pub async fn handle(
        &self,
        id: RunId,
        command: &Command,
        known: Option<Run>,
    ) -> Result<Run, HandleError> {
        let mut chain = RunChain { id, run: known };
        let decide = |chain: &RunChain, now| decide(chain.run.as_ref(), command, now);
        self.0.change(&mut chain, decide).await?;
        chain.run.ok_or_else(|| HandleError::Rejected {
            name: id.to_string(),
            rejection: Rejection::Unknown,
        })
    }
}

/// Applies an event of the tree to the callees of `caller`.
fn take_callee(callees: &mut BTreeMap<RunId, Option<Digest>>, caller: RunId, stored: &StoredEvent) {
    if !Subject::is_state(&stored.subject) {
        return;
    }
    let (Some(id), Ok(recorded)) = (
        Subject::run_of(&stored.subject),
        stored.decode::<run::Event>(),
    ) else {
        return;
    };
    let launched = recorded.event.launched();
    let parent = launched.and_then(|launched| launched.parent.as_ref());
    if parent.is_some_and(|parent| parent.run == caller) {
        callees.insert(id, None);
    }
    if let run::Event::Ended(_) = recorded.event {
        let ended = |result: &mut Option<_>| *result = Some(recorded.hash);
        callees.entry(id).and_modify(ended);
    }
}
