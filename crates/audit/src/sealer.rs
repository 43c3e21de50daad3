//! Signs each tree once its root has ended: to be run by any number of gateways, one of which does.

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
use aod_ports::program::inherit;
use aod_ports::runs::Runs;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::pages::Pages;
use crate::pressure::Pressure;

/// Ends that are dealt with at once: most of their time they wait until the cluster is quiet. While there
/// are so many, nothing is put off any more.
const AT_ONCE: usize = 4_096;

/// Ends that are asked for at a time.
const ASKED_FOR: usize = 512;

/// The pause after some have come, so that under load they come by the handful; shorter than what counts
/// as quiet.
const GATHERING: Duration = Duration::from_secs(1);

/// How long a seal waits for quiet; with everything else shorter than the time an end stays here.
const PUT_OFF_MAX: Duration = Duration::from_secs(15);

/// How often it is looked whether the cluster is quiet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long after a root's result its tree is read: what nobody waits for, its notes and the last that
/// models took, is stored by then.
const SETTLING: Duration = Duration::from_secs(2);

/// When a tree is looked at again of which something still goes on.
const INCOMPLETE_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a seal waits for what goes on: callees that their caller has left are ended within half a
/// minute. A reservation of a node that died stays for ever.
const INCOMPLETE_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// When a tree that was not sealed is tried again: the log has gone on, or does not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The pause after a failure, so that the broker is not pressed.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a tree was not sealed.
#[derive(Debug, Error)]
enum SealError {
    /// Again later.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Again later: something of the tree was stored meanwhile, or the log is full or away.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A person must look.
    #[error("an event cannot be read")]
    Malformed(#[from] MalformedEvent),
    /// As above.
    #[error(transparent)]
    Broken(#[from] BrokenHistory),
    /// A bug of ours.
    #[error(transparent)]
    TooLarge(#[from] EventTooLarge),
}

impl SealError {
    /// Whether it may go better later.
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
    room: Arc<Semaphore>,
    pressure: Pressure,
}

impl Sealer {
    /// `runs` name the program that seals.
    pub fn new(feed: Arc<dyn Feed>, runs: Runs, key: Arc<SealKey>) -> Self {
        Self {
            feed,
            runs,
            key,
            turn: Mutex::default(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
            pressure: Pressure::default(),
        }
    }

    /// Until it is told to stop; what is not sealed then is sealed by another, or at the next start.
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
                let permit = Arc::clone(&self.room).acquire_owned().await;
                let (sealer, stop) = (Arc::clone(&self), stop.clone());
                tasks.spawn(inherit(async move {
                    // What is not acknowledged comes again, and is found sealed.
                    if let Err(error) = sealer.deal_with(&given, &stop).await {
                        warn!(run = %given.run, error = %error, "a seal is looked after again");
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
        match self.feed.next(ASKED_FOR).await {
            Ok(given) => given,
            Err(error) => {
                warn!(error = %error, "seals wait");
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        }
    }

    /// Whoever waits for an answer goes first: the disk that a seal takes is theirs.
    async fn put_off(&self, since: Instant) {
        while !self.pressure.is_low()
            && self.room.available_permits() > 0
            && since.elapsed() < PUT_OFF_MAX
        {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// When it is time for the seal of `given`, and no other.
    async fn turn(&self, given: &Given) -> MutexGuard<'_, ()> {
        let came_at = Instant::now();
        tokio::time::sleep(SETTLING.saturating_sub(self.age(given))).await;
        let turn = self.turn.lock().await;
        self.put_off(came_at).await;
        turn
    }

    async fn deal_with(&self, given: &Given, stop: &CancellationToken) -> Result<(), FeedError> {
        // The whole tree is sealed at its root's end.
        if !given.run.is_root() {
            return self.feed.done(given).await;
        }
        let Some(_turn) = stop.run_until_cancelled(self.turn(given)).await else {
            return self.feed.again(given, Duration::ZERO).await;
        };
        let is_last_try = self.age(given) >= INCOMPLETE_PATIENCE;
        match self.seal(given.run, is_last_try).await {
            Ok(true) => self.feed.done(given).await,
            Ok(false) => self.feed.again(given, INCOMPLETE_AGAIN_AFTER).await,
            Err(error) if error.is_passing() => {
                info!(run = %given.run, error = %error, "the seal of a tree waits");
                self.feed.again(given, AGAIN_AFTER).await
            }
            Err(error) => {
                warn!(run = %given.run, error = %error, "a tree is not sealed");
                self.feed.done(given).await
            }
        }
    }

    fn age(&self, given: &Given) -> Duration {
        let age = self.runs.clock().now().duration_since(given.stored_at);
        Duration::try_from(age).unwrap_or_default()
    }

    /// Seals the tree of `root`; whether it is sealed now. What still goes on is waited for unless
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
            // It has a seal.
            return Ok(true);
        };
        let subject = event.subject(&run.launched.event.tenant, root);
        let cloud_event = CloudEvent::new(header, root.to_string(), Some(result), event);
        // Whatever of the tree is in the log before its seal was read and signed.
        let guard = Guard::Last {
            filter: subject::tree(root),
            sequence: tree.sealed.last,
        };
        let append = Append::of(subject, guard, &cloud_event)?;
        self.runs.log().append(append).await?;
        Ok(true)
    }
}

/// What a seal must know of a tree.
struct Tree {
    root: Option<Run>,
    sealed: SealedTree,
    /// Whether all runs have ended and no call of a model is under way.
    is_complete: bool,
}

impl Tree {
    async fn read(log: &dyn EventLog, root: RunId) -> Result<Self, SealError> {
        let mut hasher = TreeHasher::default();
        let mut history = Vec::new();
        let mut open = Open::default();
        let mut pages = Pages::new(log, root);
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
