//! Lists and search: a SQLite file that follows the log and can be thrown away at any time.
//!
//! Nothing is decided by it alone: it is behind by design, and says how far it is.

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
use aod_ports::program::blocking;
use jiff::Timestamp;
use rusqlite::Connection;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::query::{Filter, Suspect};
pub(crate) use self::record::Kept;
use crate::http::access::Principal;
use crate::http::error::{ApiError, ApiResult};

/// How long a list waits for the read model to reach `at_least`.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(10);

/// Connections for reading that are kept open.
const READERS_KEPT_MAX: usize = 8;

/// Why the read model does not work.
#[derive(Debug, Error)]
pub enum ReadModelError {
    /// The file cannot be made, opened or read: look at the disk.
    #[error("the read model {} does not work", path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The directory for it cannot be made.
    #[error("the directory of the read model {} cannot be made", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The log does not answer: try again.
    #[error(transparent)]
    Log(#[from] ReadError),
}

impl From<ReadModelError> for ApiError {
    fn from(error: ReadModelError) -> Self {
        Self::new(ErrorCode::Internal, "the read model does not work").because(error)
    }
}

/// The read model of one gateway.
pub(crate) struct ReadModel {
    path: PathBuf,
    /// How long an event waits for others.
    delay: Duration,
    /// From the opening, for whoever follows first.
    writer: Mutex<Option<Connection>>,
    readers: Arc<Mutex<Vec<Connection>>>,
    /// The last event taken in.
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
    /// Opens the file in `directory`, or makes it anew if it is not of this log.
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

    /// Takes in what the log has and gets, until the gateway ends. After an error it goes on where
    /// it was when called again; only one may follow at a time.
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

    /// The sequence of the last event taken in.
    pub(crate) fn sequence(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Waits until `sequence` is taken in, however long that takes.
    pub(crate) async fn reach(&self, sequence: u64) {
        let mut applied = self.applied.subscribe();
        let seen = applied.wait_for(|&last| last >= sequence).await;
        seen.expect("its sender is in this read model");
    }

    /// Waits until `sequence` is taken in, with patience for as long as people have it.
    pub(crate) async fn wait_for(&self, sequence: u64) -> ApiResult<()> {
        match tokio::time::timeout(CATCH_UP_PATIENCE, self.reach(sequence)).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let detail = format!(
                    "the lists are at {} and have not reached {sequence} yet",
                    self.sequence()
                );
                Err(ApiError::new(ErrorCode::BrokerUnavailable, detail))
            }
        }
    }

    /// A page of runs, the latest first.
    pub(crate) async fn page(
        &self,
        filter: Filter,
        cursor: Option<String>,
        limit: usize,
    ) -> ApiResult<RunPage> {
        let before = place(cursor)?;
        // Read before the page: what the page shows is at least as new.
        let as_of = self.sequence();
        let (items, next) = self
            .read(move |connection| query::page(connection, &filter, before, limit))
            .await?;
        Ok(RunPage { items, next, as_of })
    }

    /// A page of dead letters, the latest launch first.
    pub(crate) async fn dead_letters(
        &self,
        tenant: Option<Tenant>,
        is_all: bool,
        cursor: Option<String>,
        limit: usize,
    ) -> ApiResult<DeadLetterPage> {
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
    ) -> ApiResult<Vec<RunSummary>> {
        let filter = Filter::seen_by(principal);
        let (items, _) = self
            .read(move |connection| query::page(connection, &filter, i64::MAX, limit))
            .await?;
        Ok(items)
    }

    /// How many runs the tree of `root` has, counted up to `limit`.
    pub(crate) async fn count_tree(&self, root: RunId, limit: u64) -> ApiResult<u64> {
        Ok(self
            .read(move |connection| query::count_tree(connection, root, limit))
            .await?)
    }

    /// Whether `tenant` has a file with this content: from a run, a capsule or an upload.
    pub(crate) async fn has_file(&self, tenant: &Tenant, digest: Digest) -> ApiResult<bool> {
        let tenant = tenant.clone();
        Ok(self
            .read(move |connection| query::has_file(connection, &tenant, digest))
            .await?)
    }

    /// All that is kept of the tree of `root`.
    pub(crate) async fn records(&self, root: RunId) -> Result<Kept, ReadModelError> {
        self.read(move |connection| record::read(connection, root))
            .await
    }

    /// Live runs about which something may have to be done, at most `limit`.
    pub(crate) async fn suspects(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Suspect>, ReadModelError> {
        self.read(move |connection| query::suspects(connection, now, limit))
            .await
    }

    /// The first launch of the log that is still needed.
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

    /// Since when, in milliseconds since 1970, the run waits that has waited for longest in each queue.
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

/// Where a page begins.
fn place(cursor: Option<String>) -> ApiResult<i64> {
    let Some(cursor) = cursor else {
        return Ok(i64::MAX);
    };
    query::parse_cursor(&cursor)
        .ok_or_else(|| ApiError::malformed("`cursor` is none that a page named as its `next`"))
}
