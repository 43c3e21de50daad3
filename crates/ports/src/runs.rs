//! Load, decide, append: the one way in which gateways and nodes change a run.

use std::sync::Arc;

use aod_domain::event::{CloudEvent, Header, MalformedEvent, Recorded};
use aod_domain::id::RunId;
use aod_domain::run::{BrokenHistory, Command, Event, Rejection, Run, decide};
use aod_domain::subject;
use thiserror::Error;

use crate::clock::Clock;
use crate::event_log::{Append, AppendError, EventLog, Guard, ReadError, StoredEvent};

/// State events that a run can have at the most: its launch, a lease and a loss or a failure for
/// each of the attempts that the rules allow, a cancel, a result, a seal; with room to spare.
const HISTORY_MAX: usize = 1_000;

/// How often a decision is taken anew before the contention itself is the error: each round lost
/// means that another writer got on, and a run has few.
const DECIDE_ATTEMPTS_MAX: u32 = 16;

/// The runs of the log, as one program changes them.
#[derive(Clone, Debug)]
pub struct Runs {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    source: Arc<str>,
}

/// Why a command was not carried out, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum HandleError {
    /// The rules say no: tell whoever asked.
    #[error("{id}: {rejection}")]
    Rejected { id: RunId, rejection: Rejection },
    /// The broker does not answer: try again later.
    #[error("{id} cannot be read")]
    Read { id: RunId, source: ReadError },
    /// The broker does not answer, or the log is full.
    #[error("an event of {id} cannot be stored")]
    Append { id: RunId, source: AppendError },
    /// Others kept changing the run: try again later.
    #[error("{id} keeps changing")]
    Contended { id: RunId },
    /// What is stored cannot be read: a person must look.
    #[error("the events of {id} are damaged")]
    Damaged { id: RunId, source: DamagedRun },
}

/// Stored events that make no run.
#[derive(Debug, Error)]
pub enum DamagedRun {
    #[error(transparent)]
    Malformed(#[from] MalformedEvent),
    #[error(transparent)]
    Broken(#[from] BrokenHistory),
}

impl Runs {
    /// `source` is what events name as their writer: `/node/node_…`.
    pub fn new(log: Arc<dyn EventLog>, clock: Arc<dyn Clock>, source: &str) -> Self {
        Self {
            log,
            clock,
            source: source.into(),
        }
    }

    pub fn log(&self) -> &Arc<dyn EventLog> {
        &self.log
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// A fresh header for an event of this program.
    pub fn header(&self) -> Header {
        Header {
            id: self.clock.fresh_event_id(),
            source: self.source.to_string(),
            time: self.clock.now(),
        }
    }

    /// The run as the log has it now; nothing if it has nothing.
    pub async fn load(&self, id: RunId) -> Result<Option<Run>, HandleError> {
        let stored = self
            .log
            .read(&subject::run_state(id), 0, HISTORY_MAX)
            .await
            .map_err(|source| HandleError::Read { id, source })?;
        let history: Result<Vec<Recorded<Event>>, MalformedEvent> =
            stored.iter().map(StoredEvent::decode).collect();
        let damaged = |source| HandleError::Damaged { id, source };
        Run::replay(id, history.map_err(|error| damaged(error.into()))?)
            .map_err(|error| damaged(error.into()))
    }

    /// Carries `command` out on the run `id`, deciding anew whenever another writer was faster.
    /// Answers with the run as it is afterwards.
    ///
    /// `known` is what the caller believes the run to be; it saves a read and is not trusted: the
    /// guard of the append checks it.
    pub async fn handle(
        &self,
        id: RunId,
        command: &Command,
        known: Option<Run>,
    ) -> Result<Run, HandleError> {
        // A launch is the first event nearly always, so it is tried before anything is read.
        let is_first_try_blind = known.is_some() || matches!(command, Command::Launch(_));
        let mut run = if is_first_try_blind {
            known
        } else {
            self.load(id).await?
        };
        for attempt in 0..DECIDE_ATTEMPTS_MAX {
            let decision = decide(run.as_ref(), command, self.clock.now());
            let event = match decision {
                Ok(Some(event)) => event,
                // What is believed may be old: only what was read is final.
                _ if attempt == 0 && is_first_try_blind && run.is_some() => {
                    run = self.load(id).await?;
                    continue;
                }
                Ok(None) => {
                    return run.ok_or(HandleError::Rejected {
                        id,
                        rejection: Rejection::Unknown,
                    });
                }
                Err(rejection) => return Err(HandleError::Rejected { id, rejection }),
            };
            match self.append(id, run.as_ref(), event).await {
                Ok(stored) => return Self::advance(id, run, stored),
                Err(AppendError::Conflict { .. }) => run = self.load(id).await?,
                Err(source) => return Err(HandleError::Append { id, source }),
            }
        }
        Err(HandleError::Contended { id })
    }

    async fn append(
        &self,
        id: RunId,
        run: Option<&Run>,
        event: Event,
    ) -> Result<Recorded<Event>, AppendError> {
        // What begins a run says whose it is; all else is where that is.
        let launched = run.map(|run| &run.launched.event).or(event.launched());
        let tenant = launched.map(|launched| launched.tenant.clone());
        let subject = event.subject(&tenant.unwrap_or_default(), id);
        let guard = Guard::Last {
            filter: subject::run_state(id),
            sequence: run.map_or(0, |run| run.last.sequence),
        };
        let cloud_event = CloudEvent::new(
            self.header(),
            id.to_string(),
            run.map(|run| run.last.hash),
            event,
        );
        let append = Append::of(subject.clone(), guard, &cloud_event).map_err(|source| {
            AppendError::Unconfirmed {
                subject: subject.to_string(),
                source: Box::new(source),
            }
        })?;
        let bytes = append.bytes.clone();
        let sequence = self.log.append(append).await?;
        Ok(Recorded::decode(sequence, &bytes).expect("what was just encoded can be read"))
    }

    fn advance(id: RunId, run: Option<Run>, stored: Recorded<Event>) -> Result<Run, HandleError> {
        let damaged = |error: BrokenHistory| HandleError::Damaged {
            id,
            source: error.into(),
        };
        match run {
            None => Run::replay(id, [stored])
                .map_err(damaged)?
                .ok_or(HandleError::Contended { id }),
            Some(mut run) => {
                run.apply(stored).map_err(damaged)?;
                Ok(run)
            }
        }
    }
}
