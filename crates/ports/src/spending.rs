//! What trees spend on models: load, decide, append, as [`crate::runs`] does for runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::event::{CloudEvent, MalformedEvent, Recorded};
use aod_domain::id::RunId;
use aod_domain::spending::{Account, Command, Event, Refusal, decide};
use aod_domain::subject;
use aod_domain::tenant::Tenant;
use thiserror::Error;
use tokio::time::timeout;

use crate::event_log::{Append, AppendError, EventLog, Guard, ReadError};
use crate::runs::Runs;

/// Events of an account that are read at a time.
const PAGE_SIZE: usize = 1_000;

/// How often a decision is taken anew before the contention itself is the error: each round lost means
/// that another call of the tree got on, and a tree has at most 256 calls of one run in flight.
const DECIDE_ATTEMPTS_MAX: u32 = 1_000;

/// How long a reservation waits for others of its tree on this node.
const RESERVE_PATIENCE: Duration = Duration::from_secs(5);

/// Accounts that are remembered; a node works for few trees at a time.
const ACCOUNTS_MAX: usize = 256;

/// Why a command was not carried out.
#[derive(Debug, Error)]
pub enum SpendingError {
    /// The rules say no: tell whoever asked.
    #[error("the call is refused: {0:?}")]
    Refused(Refusal),
    /// The broker does not answer: try again later.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The broker does not answer, or the log is full.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Others kept spending: try again later.
    #[error("the account of {0} keeps changing")]
    Contended(RunId),
    /// What is stored cannot be read: a person must look.
    #[error("the account of {root} is damaged")]
    Damaged { root: RunId, source: MalformedEvent },
}

type Known = Arc<tokio::sync::Mutex<Account>>;

/// The accounts of the trees that one program works for.
#[derive(Debug)]
pub struct Accounts {
    runs: Runs,
    known: Mutex<HashMap<RunId, Known>>,
}

impl Accounts {
    pub fn new(runs: Runs) -> Self {
        Self {
            runs,
            known: Mutex::default(),
        }
    }

    /// Carries `command` out on the tree of `root`, which is `tenant`'s, deciding anew whenever another writer was faster.
    pub async fn handle(
        &self,
        tenant: &Tenant,
        root: RunId,
        command: &Command,
    ) -> Result<(), SpendingError> {
        let known = self.known(root);
        // One at a time here: those of one program would only stand in each other's way.
        let mut account = match command {
            // Who has not spent yet need not wait for a broker that is away; the others must be heard.
            Command::Reserve { .. } => timeout(RESERVE_PATIENCE, known.lock())
                .await
                .map_err(|_| SpendingError::Contended(root))?,
            Command::Settle(_) => known.lock().await,
        };
        let mut is_fresh = false;
        for _ in 0..DECIDE_ATTEMPTS_MAX {
            let event = match decide(&account, command) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(refusal) if is_fresh => return Err(SpendingError::Refused(refusal)),
                // Others may have settled meanwhile: only what was read is final.
                Err(_) => {
                    catch_up(self.runs.log().as_ref(), root, &mut account).await?;
                    is_fresh = true;
                    continue;
                }
            };
            match self.append(tenant, root, &account, event).await {
                Ok(recorded) => {
                    account.apply(&recorded);
                    return Ok(());
                }
                Err(AppendError::Conflict { .. }) => {
                    catch_up(self.runs.log().as_ref(), root, &mut account).await?;
                    is_fresh = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(SpendingError::Contended(root))
    }

    fn known(&self, root: RunId) -> Known {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ACCOUNTS_MAX {
            known.retain(|_, account| Arc::strong_count(account) > 1);
        }
        Arc::clone(known.entry(root).or_default())
    }

    async fn append(
        &self,
        tenant: &Tenant,
        root: RunId,
        account: &Account,
        event: Event,
    ) -> Result<Recorded<Event>, AppendError> {
        let subject = event.subject(tenant);
        let about = event.call().run.to_string();
        let (sequence, previous) = account
            .last
            .map_or((0, None), |(sequence, hash)| (sequence, Some(hash)));
        let cloud_event = CloudEvent::new(self.runs.header(), about, previous, event);
        let guard = Guard::Last {
            filter: subject::spending(root),
            sequence,
        };
        let append = Append::of(subject.clone(), guard, &cloud_event).map_err(|source| {
            AppendError::Unconfirmed {
                subject: subject.to_string(),
                source: Box::new(source),
            }
        })?;
        let bytes = append.bytes.clone();
        let sequence = self.runs.log().append(append).await?;
        Ok(Recorded::decode(sequence, &bytes).expect("what was just encoded can be read"))
    }
}

/// What the tree of `root` has spent so far.
pub async fn load(log: &dyn EventLog, root: RunId) -> Result<Account, SpendingError> {
    let mut account = Account::default();
    catch_up(log, root, &mut account).await?;
    Ok(account)
}

async fn catch_up(
    log: &dyn EventLog,
    root: RunId,
    account: &mut Account,
) -> Result<(), SpendingError> {
    let filter = subject::spending(root);
    loop {
        let after = account.last.map_or(0, |(sequence, _)| sequence);
        let page = log.read(&filter, after, PAGE_SIZE).await?;
        for stored in &page {
            let recorded = stored
                .decode()
                .map_err(|source| SpendingError::Damaged { root, source })?;
            account.apply(&recorded);
        }
        if page.len() < PAGE_SIZE {
            return Ok(());
        }
    }
}
