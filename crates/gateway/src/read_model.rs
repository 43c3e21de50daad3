//! The read model: a SQLite file for lists and search, which follows the log and can be deleted at any time.
//!
//! No decision depends on the read model alone: it lags behind the log, and reports its sequence.

mod conditions;
mod feed;
mod files;
mod query;
pub(crate) mod record;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_api::dead_letters::DeadLetterPage;
use aod_api::runs::{RunPage, RunSummary};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{EventLog, ReadError};
use aod_services::program::blocking;
use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::query::{Filter, Suspect};
pub(crate) use self::record::Kept;
use crate::error::{Error, Result};
use aod_domain::access::Principal;

/// Maximum time that a list waits for the read model to reach `at_least`.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time that a list waits for the events that the log has already stored.
const FRESH_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of open connections for reading.
const READERS_KEPT_MAX: usize = 8;

/// Errors of the read model.
#[derive(Debug, thiserror::Error)]
pub enum ReadModelError {
    /// The file cannot be created, opened or read: check the disk.
    #[error("cannot use the read model {}: check its disk and permissions", path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The directory cannot be created.
    #[error("cannot create the directory of the read model {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The log does not answer: try again.
    #[error(transparent)]
    Log(#[from] ReadError),
}

impl From<ReadModelError> for Error {
    fn from(error: ReadModelError) -> Self {
        Self::new(ErrorCode::Internal, "the read model of this gateway failed").because(error)
    }
}

/// The read model of one gateway.
pub(crate) struct ReadModel {
    path: PathBuf,
    /// Time that an event waits for more events.
    delay: Duration,
    /// The connection of [`Self::open`], for the first [`Self::follow`].
    writer: Mutex<Option<Connection>>,
    readers: Arc<Mutex<Vec<Connection>>>,
    /// Sequence of the last applied event.
    applied: watch::Sender<u64>,
}

impl fmt::Debug for ReadModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadModel")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ReadModel {
    /// Opens the file in `directory`; rebuilds a file that belongs to another log.
    pub(crate) async fn open(
        directory: &Path,
        delay: Duration,
        log: &dyn EventLog,
    ) -> Result<Self, ReadModelError> {
        let path = directory.join(schema::FILE_NAME);
        let (writer, applied) = schema::open(directory, &path, log).await?;
        Ok(Self {
            path,
            delay,
            writer: Mutex::new(Some(writer)),
            readers: Arc::default(),
            applied: watch::Sender::new(applied),
        })
    }

    /// Applies stored and new events until the gateway stops. After an error, the next call continues at the same
    /// position. Only one call may run at a time.
    pub(crate) async fn follow(
        &self,
        log: &dyn EventLog,
        shutdown: CancellationToken,
    ) -> Result<(), ReadModelError> {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        feed::follow(&self.path, writer, self.delay, log, &self.applied, shutdown).await
    }

    /// Sequence of the last applied event.
    pub(crate) fn sequence(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Waits until `sequence` is applied, without a limit.
    pub(crate) async fn reach(&self, sequence: u64) {
        let mut applied = self.applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence).await;
        seen.expect("its sender is in this read model");
    }

    /// Waits until `sequence` is applied, at most [`CATCH_UP_PATIENCE`].
    pub(crate) async fn wait_for(&self, sequence: u64) -> Result<()> {
        match tokio::time::timeout(CATCH_UP_PATIENCE, self.reach(sequence)).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let detail = format!(
                    "the lists of this gateway are at event {} and have not reached {sequence} yet",
                    self.sequence()
                );
                Err(Error::new(ErrorCode::BrokerUnavailable, detail))
            }
        }
    }

    /// Waits until all events that `log` has now are applied, so that no list shows an ended run as running. If the log
    /// does not answer within [`FRESH_PATIENCE`], lists are as old as `as_of` says.
    pub(crate) async fn catch_up(&self, log: &dyn EventLog) {
        let fresh = async {
            if let Ok(fill) = log.fill().await {
                self.reach(fill.last_sequence).await;
            }
        };
        let _ = tokio::time::timeout(FRESH_PATIENCE, fresh).await;
    }

    /// A page of runs, latest first.
    pub(crate) async fn page(
        &self,
        filter: Filter,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<RunPage> {
        let before = place(cursor)?;
        // Read before the page, so that the page is at least as new.
        let as_of = self.sequence();
        let (items, next) = self
            .read(move |connection| query::page(connection, &filter, before, limit))
            .await?;
        Ok(RunPage { items, next, as_of })
    }

    /// A page of dead letters, latest launch first.
    pub(crate) async fn dead_letters(
        &self,
        tenant: Option<Tenant>,
        is_all: bool,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<DeadLetterPage> {
        let before = place(cursor)?;
        let as_of = self.sequence();
        let (items, next) = self
            .read(move |connection| {
                query::dead_letters(connection, tenant.as_ref(), is_all, before, limit)
            })
            .await?;
        Ok(DeadLetterPage { items, next, as_of })
    }

    /// The latest `limit` runs that `principal` may see.
    pub(crate) async fn latest(
        &self,
        principal: &Principal,
        limit: usize,
    ) -> Result<Vec<RunSummary>> {
        let filter = Filter::seen_by(principal);
        let (items, _) = self
            .read(move |connection| query::page(connection, &filter, i64::MAX, limit))
            .await?;
        Ok(items)
    }

    /// Number of runs in the tree of `root`, counted up to `limit`.
    pub(crate) async fn count_tree(&self, root: RunId, limit: u64) -> Result<u64> {
        Ok(self
            .read(move |connection| query::count_tree(connection, root, limit))
            .await?)
    }

    /// Whether `tenant` has a file with this content: from a run, a capsule or an upload.
    pub(crate) async fn has_file(&self, tenant: &Tenant, digest: Digest) -> Result<bool> {
        let tenant = tenant.clone();
        Ok(self
            .read(move |connection| query::has_file(connection, &tenant, digest))
            .await?)
    }

    /// The records of the tree of `root`.
    pub(crate) async fn records(&self, root: RunId) -> Result<Kept, ReadModelError> {
        self.read(move |connection| record::read(connection, root))
            .await
    }

    /// Live runs that a gateway may have to end, at most `limit`.
    pub(crate) async fn suspects(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Suspect>, ReadModelError> {
        self.read(move |connection| query::suspects(connection, now, limit))
            .await
    }

    /// Sequence of the first launch that is still needed.
    pub(crate) async fn first_needed(&self) -> Result<u64, ReadModelError> {
        self.read(query::first_needed).await
    }

    /// The sequence of the first launch whose run has ended since `since`.
    pub(crate) async fn first_ended_since(
        &self,
        since: Timestamp,
    ) -> Result<Option<u64>, ReadModelError> {
        self.read(move |connection| query::first_ended_since(connection, since))
            .await
    }

    /// For each queue, the time since when its oldest run waits, in milliseconds since 1970.
    pub(crate) async fn oldest_queued(&self) -> Result<Vec<(String, i64)>, ReadModelError> {
        self.read(query::oldest_queued).await
    }

    /// Whether a run waits for admission.
    pub(crate) async fn has_requested(&self) -> Result<bool, ReadModelError> {
        self.read(query::has_requested).await
    }

    /// Runs `query` on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ReadModelError> {
        let (path, readers) = (self.path.clone(), Arc::clone(&self.readers));
        let work = move || {
            let kept = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = kept.map_or_else(|| schema::open_reader(&path), Ok)?;
            let found = query(&connection);
            let mut readers = readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < READERS_KEPT_MAX {
                readers.push(connection);
            }
            found
        };
        blocking(work)
            .await
            .map_err(|source| ReadModelError::Sqlite {
                path: self.path.clone(),
                source,
            })
    }
}

/// The start of a page.
fn place(cursor: Option<String>) -> Result<i64> {
    let Some(cursor) = cursor else {
        return Ok(i64::MAX);
    };
    query::parse_cursor(&cursor).ok_or_else(|| {
        Error::malformed("invalid `cursor`: expected the `next` of the previous page")
    })
}
