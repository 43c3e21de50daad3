//! The spending of trees on models, as one program changes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::id::RunId;
use aod_domain::spending::{Account, AccountChain, Command, Refusal, decide};
use aod_domain::tenant::Tenant;
use aod_ports::event_log::EventLog;
use tokio::time::timeout;

use crate::writer::{ChangeError, LoadError, Writer, catch_up};

/// Maximum wait of a reservation for other calls of its tree on this node.
const RESERVE_PATIENCE: Duration = Duration::from_secs(5);

/// Cached accounts; a node works for few trees at a time.
const ACCOUNTS_MAX: usize = 256;

/// Why a command failed.
pub type SpendingError = ChangeError<Refusal>;

type Known = Arc<tokio::sync::Mutex<AccountChain>>;

/// The accounts of the trees of one program.
#[derive(Debug)]
pub struct Accounts {
    writer: Writer,
    known: Mutex<HashMap<RunId, Known>>,
}

impl Accounts {
    pub fn new(writer: Writer) -> Self {
        Self {
            writer,
            known: Mutex::default(),
        }
    }

    /// Executes `command` on the tree of `root` of `tenant`; decides again whenever another writer was faster.
    ///
    /// # Errors
    /// [`SpendingError`].
    pub async fn handle(
        &self,
        tenant: &Tenant,
        root: RunId,
        command: &Command,
    ) -> Result<(), SpendingError> {
        let known = self.known(tenant, root);
        // One command at a time: commands of one program would only conflict with each other.
        let mut account = match command {
            // A reservation need not wait for an unavailable broker; all other commands must be stored.
            Command::Reserve { .. } => {
                let locked = timeout(RESERVE_PATIENCE, known.lock()).await;
                locked.map_err(|_| ChangeError::Contended {
                    name: format!("the spending of {root}"),
                })?
            }
            Command::Settle(_) => known.lock().await,
        };
        let decide = |chain: &AccountChain, _| decide(&chain.account, command);
        self.writer.change(&mut *account, decide).await?;
        Ok(())
    }

    fn known(&self, tenant: &Tenant, root: RunId) -> Known {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ACCOUNTS_MAX {
            known.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let new = || Arc::new(AccountChain::new(tenant.clone(), root).into());
        Arc::clone(known.entry(root).or_insert_with(new))
    }
}

/// The spending of the tree of `root` so far.
///
/// # Errors
/// [`LoadError`].
pub async fn load(log: &dyn EventLog, root: RunId) -> Result<Account, LoadError> {
    // Only writers need the tenant.
    let mut chain = AccountChain::new(Tenant::default(), root);
    catch_up(log, &mut chain).await?;
    Ok(chain.account)
}
