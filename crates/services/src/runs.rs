//! Runs, as one program loads and changes them.

use std::sync::Arc;

use aod_domain::event::{Header, MalformedEvent};
use aod_domain::id::RunId;
use aod_domain::run::{BrokenHistory, Command, Rejection, Run, RunChain, decide};
use aod_ports::clock::Clock;
use aod_ports::event_log::EventLog;
use thiserror::Error;

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
