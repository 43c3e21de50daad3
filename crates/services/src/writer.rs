//! Load, decide, append: how gateways and nodes change a chain of events.

use std::sync::Arc;

use aod_domain::chain::Chain;
use aod_domain::event::{CloudEvent, EventTooLarge, Header, Recorded};
use aod_ports::BoxError;
use aod_ports::clock::Clock;
use aod_ports::event_log::{Append, AppendError, EventLog, Guard, ReadError};
use jiff::Timestamp;
use thiserror::Error;

use crate::pages::Pages;

/// The log, as one program writes it.
#[derive(Clone, Debug)]
pub struct Writer {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    source: Arc<str>,
}

/// Why a change failed, sorted by what the caller does about it. `R` is the domain's rejection.
#[derive(Debug, Error)]
pub enum ChangeError<R> {
    /// The domain rules reject it: report that to the caller.
    #[error("{name}: {rejection}")]
    Rejected { name: String, rejection: R },
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The broker does not answer, or the log is full.
    #[error("cannot store an event of {name}")]
    Append { name: String, source: AppendError },
    /// The event is too large: the request contains too much.
    #[error("an event of {name} is too large")]
    TooLarge { name: String, source: EventTooLarge },
    /// Other writers were always faster: retry later.
    #[error("concurrent requests keep changing {name}; retry the request")]
    Contended { name: String },
}

/// Why events were not read.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The broker does not answer: retry later.
    #[error("cannot read {name}")]
    Read { name: String, source: ReadError },
    /// Stored events are unreadable: the operator must act.
    #[error("the events of {name} are damaged")]
    Damaged { name: String, source: BoxError },
}

/// Applies the stored events that `chain` lacks.
///
/// # Errors
/// [`LoadError`].
pub async fn catch_up<C: Chain>(log: &dyn EventLog, chain: &mut C) -> Result<(), LoadError> {
    let name = chain.name();
    let after = chain.last().map_or(0, |(sequence, _)| sequence);
    let mut pages = Pages::new(log, chain.filter(), after);
    loop {
        let page = pages.next().await.map_err(|source| LoadError::Read {
            name: name.clone(),
            source,
        })?;
        for stored in &page {
            let damaged = |source| LoadError::Damaged {
                name: name.clone(),
                source,
            };
            let recorded = stored.decode().map_err(|error| damaged(error.into()))?;
            chain
                .apply(recorded)
                .map_err(|error| damaged(error.into()))?;
        }
        if page.is_empty() {
            return Ok(());
        }
    }
}

impl Writer {
    /// `source` names the writer in events: `/node/node_…`.
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

    /// A new header for an event of this program.
    pub fn header(&self) -> Header {
        Header {
            id: self.clock.fresh_event_id(),
            source: self.source.to_string(),
            time: self.clock.now(),
        }
    }

    /// Stores the event that `decide` returns after the last event of `chain`; decides again whenever another writer was
    /// faster. Returns the sequence of the event; none if the state is already as wanted.
    ///
    /// `chain` may lack events, even all of them: the guard of the append notices that, and no rejection is final before
    /// all events are read. Afterwards, `chain` has all events up to the stored one.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change<C: Chain, R>(
        &self,
        chain: &mut C,
        decide: impl Fn(&C, Timestamp) -> Result<Option<C::Event>, R>,
    ) -> Result<Option<u64>, ChangeError<R>> {
        let mut is_whole = false;
        for _ in 0..C::DECISIONS_MAX {
            match decide(chain, self.clock.now()) {
                Ok(Some(event)) => {
                    if let Some(sequence) = self.append(chain, event).await? {
                        return Ok(Some(sequence));
                    }
                }
                Ok(None) if is_whole => return Ok(None),
                Err(rejection) if is_whole => {
                    let name = chain.name();
                    return Err(ChangeError::Rejected { name, rejection });
                }
                Ok(None) | Err(_) => (),
            }
            catch_up(self.log.as_ref(), chain).await?;
            is_whole = true;
        }
        let name = chain.name();
        Err(ChangeError::Contended { name })
    }

    /// Stores and applies the next event of `chain`; none if another writer was faster.
    async fn append<C: Chain, R>(
        &self,
        chain: &mut C,
        event: C::Event,
    ) -> Result<Option<u64>, ChangeError<R>> {
        let name = || chain.name();
        let (sequence, previous) = chain.last().unzip();
        let guard = Guard::Last {
            filter: chain.filter(),
            sequence: sequence.unwrap_or_default(),
        };
        let (subject, about) = (chain.subject(&event), chain.about(&event));
        let event = CloudEvent::new(self.header(), about, previous, event);
        let append = Append::of(subject, guard, &event).map_err(|source| {
            let name = name();
            ChangeError::TooLarge { name, source }
        })?;
        let bytes = append.bytes.clone();
        let sequence = match self.log.append(append).await {
            Ok(sequence) => sequence,
            Err(AppendError::Conflict { .. }) => return Ok(None),
            Err(source) => {
                let name = name();
                return Err(ChangeError::Append { name, source });
            }
        };
        let recorded = Recorded::decode(sequence, &bytes);
        let recorded = recorded.expect("an event that was just encoded can be decoded");
        let applied = chain.apply(recorded);
        applied.map_err(|error| LoadError::Damaged {
            name: chain.name(),
            source: error.into(),
        })?;
        Ok(Some(sequence))
    }
}
