//! Signs each tree after its root has ended. Any number of gateways run this; one of them signs each tree.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::audit::{Open, SealKey, TreeHasher};
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, EventTooLarge, MalformedEvent};
use aod_domain::id::RunId;
use aod_domain::run::{BrokenHistory, Command, Event, Run, SealedTree, decide};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{Append, AppendError, EventLog, Guard, ReadError};
use aod_ports::feed::{Feed, FeedError, Given};
use aod_services::pages::Pages;
use aod_services::program::inherit;
use aod_services::runs::Runs;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::pressure::Pressure;

/// Maximum ends in progress; most of them wait until the cluster is quiet. At this maximum no seal is postponed.
const CONCURRENT_MAX: usize = 4_096;

/// Ends per request.
const BATCH_MAX: usize = 512;

/// Pause between requests, so that ends come in batches under load; shorter than the time that counts as quiet.
const GATHERING: Duration = Duration::from_secs(1);

/// Maximum wait of a seal for quiet. With everything else, shorter than the time that an end stays with its receiver.
const POSTPONED_MAX: Duration = Duration::from_secs(15);

/// Interval between checks whether the cluster is quiet.
const QUIET_POLL: Duration = Duration::from_millis(500);

/// Delay between the result of a root and the read of its tree; notes and model settlements are stored by then.
const SETTLING: Duration = Duration::from_secs(2);

/// Delay before an incomplete tree is checked again.
const INCOMPLETE_RETRY: Duration = Duration::from_secs(10);

/// Maximum wait of a seal for an incomplete tree: gateways end abandoned callees within half a minute, but the
/// reservation of a dead node never settles.
const INCOMPLETE_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Delay before a failed seal is retried: the log has changed, or does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Pause after a failure, to spare the broker.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a tree was not sealed.
#[derive(Debug, Error)]
enum SealError {
    /// Retryable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Retryable: an event of the tree was stored in the meantime, or the log is full or unavailable.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Not retryable: the stored event is damaged.
    #[error("an event of the tree is damaged")]
    Malformed(#[from] MalformedEvent),
    /// As above.
    #[error(transparent)]
    Broken(#[from] BrokenHistory),
    /// A bug in AOD.
    #[error(transparent)]
    TooLarge(#[from] EventTooLarge),
}

impl SealError {
    /// Whether a retry may succeed.
    const fn is_passing(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Append(_))
    }
}

/// Follows the ends of runs, and seals trees.
#[derive(Debug)]
pub struct Sealer {
    feed: Arc<dyn Feed>,
    runs: Runs,
    key: Arc<SealKey>,
    /// One tree is sealed at a time.
    turn: Mutex<()>,
    capacity: Arc<Semaphore>,
    pressure: Pressure,
}

impl Sealer {
    /// `runs` names the program that seals.
    pub fn new(feed: Arc<dyn Feed>, runs: Runs, key: Arc<SealKey>) -> Self {
        Self {
            feed,
            runs,
            key,
            turn: Mutex::default(),
            capacity: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            pressure: Pressure::default(),
        }
    }

    /// Runs until `stop`; another gateway, or the next start, seals the remaining trees.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let work = Arc::new(self).work(&mut tasks, &stop);
        stop.run_until_cancelled(work).await;
        while tasks.join_next().await.is_some() {}
    }

    async fn work(self: Arc<Self>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        loop {
            let some = self.next().await;
            let is_pressed = self.pressure.see(some.iter().map(|given| given.stored_at));
            for given in some {
                let permit = Arc::clone(&self.capacity).acquire_owned().await;
                let (sealer, stop) = (Arc::clone(&self), stop.clone());
                tasks.spawn(inherit(async move {
                    // An end that is not acknowledged is redelivered and found sealed.
                    if let Err(error) = sealer.handle(&given, &stop).await {
                        warn!(run = %given.run, error = %error, "cannot acknowledge a sealed tree; it will be redelivered");
                    }
                    drop(permit);
                }));
            }
            while tasks.try_join_next().is_some() {}
            if is_pressed {
                tokio::time::sleep(GATHERING).await;
            }
        }
    }

    async fn next(&self) -> Vec<Given> {
        match self.feed.next(BATCH_MAX).await {
            Ok(given) => given,
            Err(error) => {
                warn!(error = %error, "cannot receive ended runs; sealing is paused");
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        }
    }

    /// Callers that wait for results have priority: a seal uses the disk that they need.
    async fn postpone(&self, since: Instant) {
        while !self.pressure.is_low()
            && self.capacity.available_permits() > 0
            && since.elapsed() < POSTPONED_MAX
        {
            tokio::time::sleep(QUIET_POLL).await;
        }
    }

    /// Waits until the seal of `given` is due, and locks out all others.
    async fn turn(&self, given: &Given) -> MutexGuard<'_, ()> {
        let came_at = Instant::now();
        tokio::time::sleep(SETTLING.saturating_sub(self.age(given))).await;
        let turn = self.turn.lock().await;
        self.postpone(came_at).await;
        turn
    }

    async fn handle(&self, given: &Given, stop: &CancellationToken) -> Result<(), FeedError> {
        // The end of the root seals the whole tree.
        if !given.run.is_root() {
            return self.feed.done(given).await;
        }
        let Some(_turn) = stop.run_until_cancelled(self.turn(given)).await else {
            return self.feed.again(given, Duration::ZERO).await;
        };
        let is_last_try = self.age(given) >= INCOMPLETE_PATIENCE;
        match self.seal(given.run, is_last_try).await {
            Ok(true) => self.feed.done(given).await,
            Ok(false) => self.feed.again(given, INCOMPLETE_RETRY).await,
            Err(error) if error.is_passing() => {
                info!(run = %given.run, error = %error, "cannot seal a tree yet; retrying");
                self.feed.again(given, RETRY_AFTER).await
            }
            Err(error) => {
                warn!(run = %given.run, error = %error, "cannot seal a tree");
                self.feed.done(given).await
            }
        }
    }

    fn age(&self, given: &Given) -> Duration {
        let age = self.runs.clock().now().duration_since(given.stored_at);
        Duration::try_from(age).unwrap_or_default()
    }

    /// Seals the tree of `root`; returns whether the tree is sealed now. Waits for incomplete trees unless
    /// `is_last_try`.
    async fn seal(&self, root: RunId, is_last_try: bool) -> Result<bool, SealError> {
        let tree = Tree::read(self.runs.log().as_ref(), root).await?;
        let Some(run) = tree.root else {
            return Ok(true);
        };
        let Some(result) = run.ended().map(|ended| ended.hash) else {
            return Ok(true);
        };
        if run.last.hash == result && !tree.is_complete && !is_last_try {
            return Ok(false);
        }
        let header = self.runs.header();
        let sealed = self.key.seal(root, &header, result, tree.sealed);
        let command = Command::Seal(sealed);
        let Ok(Some(event)) = decide(Some(&run), &command, header.time) else {
            // Already sealed.
            return Ok(true);
        };
        let subject = event.subject(&run.launched.event.tenant, root);
        let cloud_event = CloudEvent::new(header, root.to_string(), Some(result), event);
        // Every event of the tree before the seal was read and is signed.
        let guard = Guard::Last {
            filter: subject::tree(root),
            sequence: tree.sealed.last,
        };
        let append = Append::of(subject, guard, &cloud_event)?;
        self.runs.log().append(append).await?;
        Ok(true)
    }
}

/// What a seal contains of a tree.
struct Tree {
    root: Option<Run>,
    sealed: SealedTree,
    /// Whether all runs have ended and no model call is in progress.
    is_complete: bool,
}

impl Tree {
    async fn read(log: &dyn EventLog, root: RunId) -> Result<Self, SealError> {
        let mut hasher = TreeHasher::default();
        let mut history = Vec::new();
        let mut open = Open::default();
        let mut pages = Pages::new(log, subject::tree(root), 0);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                break;
            }
            for stored in &page {
                hasher.add(stored.sequence, &stored.subject, Digest::of(&stored.bytes));
                open.take(stored.sequence, &stored.subject, &stored.bytes)?;
                let of_root = Subject::run_of(&stored.subject) == Some(root);
                if of_root && Subject::is_state(&stored.subject) {
                    let recorded = stored.decode::<Event>()?;
                    history.push(recorded);
                }
            }
        }
        Ok(Self {
            root: Run::replay(root, history)?,
            sealed: hasher.finish(),
            is_complete: open.is_empty(),
        })
    }
}
