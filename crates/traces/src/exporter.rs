//! Sends each tree once its root has ended: to be run by any number of programs, one of which does.

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

/// Ends that are dealt with at once: most of their time they wait until they have settled.
const AT_ONCE: usize = 512;

/// Ends that are asked for at a time.
const ASKED_FOR: usize = 64;

/// How long after a root's result its tree is read: what nobody waits for, its notes and the last that
/// models took, is stored by then.
const SETTLING: Duration = Duration::from_secs(2);

/// When a tree that could not be told is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The pause after a failure, so that neither broker nor receiver is pressed.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a tree was not told.
#[derive(Debug, Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadTreeError),
    #[error(transparent)]
    Send(#[from] SendError),
    /// What the store will not give at all is left out instead.
    #[error("what was said cannot be read")]
    Contents(#[from] StoreError),
}

impl ExportError {
    /// Whether it may go better later.
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
    /// Where contents are that are told with the spans; none if they are not to be told.
    pub contents: Option<Arc<dyn ArtifactStore>>,
}

impl Exporter {
    /// Until it is told to stop; what is not told then is told by another, or at the next start.
    pub async fn run(self, stop: CancellationToken) {
        let exporter = Arc::new(self);
        stop.run_until_cancelled(exporter.work()).await;
    }

    async fn work(self: Arc<Self>) {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        // They end with it.
        let mut tasks = JoinSet::new();
        loop {
            for given in self.next().await {
                let permit = Arc::clone(&room).acquire_owned().await;
                let exporter = Arc::clone(&self);
                tasks.spawn(async move {
                    // What is not acknowledged comes again, and is told again as the same.
                    if let Err(error) = exporter.deal_with(&given).await {
                        warn!(run = %given.run, error = %error, "a trace is told again");
                    }
                    drop(permit);
                });
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    async fn next(&self) -> Vec<Given> {
        match self.feed.next(ASKED_FOR).await {
            Ok(given) => given,
            Err(error) => {
                warn!(error = %error, "traces wait");
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        }
    }

    async fn deal_with(&self, given: &Given) -> Result<(), FeedError> {
        // The whole tree is told at its root's end.
        if !given.run.is_root() {
            return self.feed.done(given).await;
        }
        let age = self.clock.now().duration_since(given.stored_at);
        let age = Duration::try_from(age).unwrap_or_default();
        tokio::time::sleep(SETTLING.saturating_sub(age)).await;
        match self.export(given.run).await {
            Ok(()) => self.feed.done(given).await,
            Err(error) if error.is_passing() => {
                info!(run = %given.run, error = %error, "the trace of a tree waits");
                self.feed.again(given, AGAIN_AFTER).await?;
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            Err(error) => {
                warn!(run = %given.run, error = %error, "the trace of a tree is given up");
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
