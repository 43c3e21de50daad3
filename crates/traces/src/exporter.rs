//! Sends each tree after its root has ended. Any number of programs run this; one of them sends each tree.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::id::RunId;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::clock::Clock;
use aod_ports::event_log::EventLog;
use aod_ports::feed::{Feed, FeedError, Given};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::contents::Contents;
use crate::history::{ReadTreeError, TreeHistory};
use crate::otlp::{Receiver, SendError};

/// Maximum ends in progress; most of them wait for their tree to settle.
const CONCURRENT_MAX: usize = 512;

/// Ends per request.
const BATCH_MAX: usize = 64;

/// Delay between the result of a root and the read of its tree; notes and model settlements are stored by then.
const SETTLING: Duration = Duration::from_secs(2);

/// Delay before a failed export is retried.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Pause after a failure, to spare broker and receiver.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a tree was not sent.
#[derive(Debug, Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadTreeError),
    #[error(transparent)]
    Send(#[from] SendError),
    /// Only if the store is unavailable; missing contents are omitted instead.
    #[error("cannot read the contents of the tree")]
    Contents(#[from] StoreError),
}

impl ExportError {
    /// Whether a retry may succeed.
    const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Read(ReadTreeError::Read(_))
                | Self::Send(SendError::Later(_))
                | Self::Contents(_)
        )
    }
}

/// Follows the ends of runs, and sends trees to a receiver.
#[derive(Debug)]
pub struct Exporter {
    pub feed: Arc<dyn Feed>,
    pub log: Arc<dyn EventLog>,
    pub clock: Arc<dyn Clock>,
    pub receiver: Receiver,
    /// The store of the contents to export; none if contents are not exported.
    pub contents: Option<Arc<dyn ArtifactStore>>,
}

impl Exporter {
    /// Runs until `stop`; another program, or the next start, sends the remaining trees.
    pub async fn run(self, stop: CancellationToken) {
        let exporter = Arc::new(self);
        stop.run_until_cancelled(exporter.work()).await;
    }

    async fn work(self: Arc<Self>) {
        let room = Arc::new(Semaphore::new(CONCURRENT_MAX));
        // They end with the exporter.
        let mut tasks = JoinSet::new();
        loop {
            for given in self.next().await {
                let permit = Arc::clone(&room).acquire_owned().await;
                let exporter = Arc::clone(&self);
                tasks.spawn(async move {
                    // An end that is not acknowledged is redelivered, and its identical trace sent again.
                    if let Err(error) = exporter.handle(&given).await {
                        warn!(run = %given.run, error = %error, "cannot acknowledge a sent trace; it will be sent again");
                    }
                    drop(permit);
                });
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    async fn next(&self) -> Vec<Given> {
        match self.feed.next(BATCH_MAX).await {
            Ok(given) => given,
            Err(error) => {
                warn!(error = %error, "cannot receive ended runs; trace export is paused");
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        }
    }

    async fn handle(&self, given: &Given) -> Result<(), FeedError> {
        // The end of the root sends the whole tree.
        if !given.run.is_root() {
            return self.feed.done(given).await;
        }
        let age = self.clock.now().duration_since(given.stored_at);
        let age = Duration::try_from(age).unwrap_or_default();
        tokio::time::sleep(SETTLING.saturating_sub(age)).await;
        match self.export(given.run).await {
            Ok(()) => self.feed.done(given).await,
            Err(error) if error.is_passing() => {
                info!(run = %given.run, error = %error, "cannot export the trace of a tree; retrying");
                self.feed.again(given, RETRY_AFTER).await?;
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            Err(error) => {
                warn!(run = %given.run, error = %error, "dropped the trace of a tree");
                self.feed.done(given).await
            }
        }
    }

    async fn export(&self, root: RunId) -> Result<(), ExportError> {
        let tree = TreeHistory::read(self.log.as_ref(), root).await?;
        let spans = crate::spans(&tree);
        let Some(store) = &self.contents else {
            return Ok(self.receiver.send(&spans).await?);
        };
        let contents = Contents::of(&tree);
        for mut spans in contents.divide(spans) {
            contents.tell(&mut spans, store.as_ref()).await?;
            self.receiver.send(&spans).await?;
        }
        Ok(())
    }
}
