//! Who waits for which result: one subscription to what becomes of runs wakes them.
//!
//! A waiter is registered before the run is read, so that no result falls between; it looks again
//! every few seconds, so that nothing depends on a single wake-up. A run that is waited for from its
//! launch on is known as the log has it, a moment ago: that spares reading it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Event, Run};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, From, ReadError, StoredEvent, Told};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::views::Seen;

/// When a waiter looks again for the first time; then each time after twice as long.
const LOOK_AGAIN_FIRST: Duration = Duration::from_secs(2);

/// The longest between two looks: what a lost wake-up costs at the most.
const LOOK_AGAIN_LONGEST: Duration = Duration::from_secs(30);

/// The result of a run, as stored.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub(crate) ended: Arc<Recorded<Ended>>,
    /// The whole run, if it was waited for from its launch on.
    pub(crate) seen: Option<Arc<Seen>>,
}

impl RunEnd {
    pub(crate) fn of(ended: Recorded<Ended>) -> Self {
        Self {
            ended: Arc::new(ended),
            seen: None,
        }
    }
}

/// A run that somebody waits for.
#[derive(Debug)]
struct Awaited {
    wakes: watch::Sender<Option<RunEnd>>,
    /// As told so far, since its launch.
    seen: Option<Seen>,
    /// The runs below it that were told of since its own launch.
    descendants: HashSet<RunId>,
}

/// All who wait on this gateway.
#[derive(Debug)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<RunId, Awaited>>,
    /// Counts the reconnections: after each everyone looks.
    reconnections: watch::Sender<u64>,
    shutdown: CancellationToken,
}

impl Waiters {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            waiting: Mutex::default(),
            reconnections: watch::Sender::new(0),
            shutdown,
        }
    }

    /// The result of `run`, or none if it has none at `until` or when the gateway ends.
    ///
    /// While the broker does not answer this only waits: what was stored is found afterwards.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        log: &dyn EventLog,
        run: RunId,
        until: Option<Instant>,
    ) -> Option<RunEnd> {
        let waiter = self.register(run);
        match look(log, run).await {
            Ok(Some(end)) => return Some(end),
            Ok(None) => (),
            Err(error) => tracing::debug!(%run, %error, "the result cannot be looked for now"),
        }
        waiter.wait(log, until).await
    }

    /// How many runs are waited for.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The run, if it is waited for here from its launch on.
    pub(crate) fn known(&self, run: RunId) -> Option<Run> {
        let waiting = self.lock();
        Some(waiting.get(&run)?.seen.as_ref()?.run.clone())
    }

    /// How many runs the tree of `root` has, if it is waited for here from its launch on.
    pub(crate) fn tree_runs(&self, root: RunId) -> Option<u64> {
        let waiting = self.lock();
        let awaited = waiting.get(&root)?;
        let descendants = awaited.descendants.len() as u64;
        awaited.seen.as_ref().map(|_| 1 + descendants)
    }

    /// Hands the told results to whoever waits, until the gateway ends.
    pub(crate) async fn follow(&self, mut states: BoxStream<'static, Told>) {
        loop {
            let told = tokio::select! {
                biased;
                told = states.next() => told,
                () = self.shutdown.cancelled() => return,
            };
            match told {
                Some(Told::Event(stored)) => self.take(&stored),
                Some(Told::Reconnected) => self.reconnections.send_modify(|count| *count += 1),
                None => return,
            }
        }
    }

    fn take(&self, stored: &StoredEvent) {
        let Some(run) = Subject::run_of(&stored.subject) else {
            return;
        };
        let mut waiting = self.lock();
        if run.root() != run
            && Subject::begins_run(&stored.subject)
            && let Some(root) = waiting.get_mut(&run.root())
        {
            root.descendants.insert(run);
        }
        let Some(awaited) = waiting.get_mut(&run) else {
            return;
        };
        if let Err(error) = Seen::take(&mut awaited.seen, run, stored) {
            // Most likely its launch was told before anybody waited.
            tracing::trace!(%run, %error, "must be read");
            awaited.seen = None;
        }
        if Subject::is_result(&stored.subject) {
            awaited.wake(run, stored);
        }
    }

    /// What is stored of `run` from now on is told to the waiter.
    pub(crate) fn register(self: &Arc<Self>, run: RunId) -> Waiter {
        let mut waiting = self.lock();
        let wakes = waiting
            .entry(run)
            .or_insert_with(|| Awaited {
                wakes: watch::Sender::new(None),
                seen: None,
                descendants: HashSet::new(),
            })
            .wakes
            .subscribe();
        Waiter {
            waiters: Arc::clone(self),
            run,
            wakes,
            reconnections: self.reconnections.subscribe(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Awaited>> {
        // Nothing that is done under the lock can leave the map half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    fn wake(&mut self, run: RunId, stored: &StoredEvent) {
        let end = match self.seen.take() {
            Some(seen) => seen.run.ended().cloned().map(|ended| RunEnd {
                ended: Arc::new(ended),
                seen: Some(Arc::new(seen)),
            }),
            None => ended(stored),
        };
        match end {
            Some(end) => drop(self.wakes.send_replace(Some(end))),
            None => tracing::error!(%run, sequence = stored.sequence, "a result cannot be read"),
        }
    }
}

/// A place among the waiters; the last one of a run clears it away.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    run: RunId,
    wakes: watch::Receiver<Option<RunEnd>>,
    reconnections: watch::Receiver<u64>,
}

impl Waiter {
    /// As [`Waiters::wait`], for a run that was found without a result after the waiter was
    /// registered: nothing can lie between, so the first look comes later.
    pub(crate) async fn wait(
        mut self,
        log: &dyn EventLog,
        until: Option<Instant>,
    ) -> Option<RunEnd> {
        let run = self.run;
        let shutdown = self.waiters.shutdown.clone();
        let mut pause = LOOK_AGAIN_FIRST;
        loop {
            let look_again = Instant::now() + pause;
            pause = (pause * 2).min(LOOK_AGAIN_LONGEST);
            let wake = until.map_or(look_again, |until| until.min(look_again));
            tokio::select! {
                biased;
                woken = self.wakes.wait_for(Option::is_some) => {
                    return woken.expect("its sender lives as long as it is registered").clone();
                }
                _ = self.reconnections.changed() => (),
                () = tokio::time::sleep_until(wake) => {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return None;
                    }
                }
                () = shutdown.cancelled() => return None,
            }
            match look(log, run).await {
                Ok(Some(end)) => return Some(end),
                Ok(None) => (),
                Err(error) => tracing::debug!(%run, %error, "the result cannot be looked for now"),
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        // This receiver is still among those counted.
        if waiting
            .get(&self.run)
            .is_some_and(|awaited| awaited.wakes.receiver_count() <= 1)
        {
            waiting.remove(&self.run);
        }
    }
}

/// The result of `run` as the log has it now.
pub(crate) async fn look(log: &dyn EventLog, run: RunId) -> Result<Option<RunEnd>, ReadError> {
    let stored = log.read_last(&subject::run_result(run)).await?;
    Ok(stored.as_ref().and_then(ended))
}

/// Subscribes to what becomes of all runs from now on.
pub(crate) async fn subscribe(log: &dyn EventLog) -> Result<BoxStream<'static, Told>, ReadError> {
    log.follow(subject::STATES, From::Now).await
}

fn ended(stored: &StoredEvent) -> Option<RunEnd> {
    let recorded = stored.decode::<Event>().ok()?;
    let recorded = recorded.map(|event| match event {
        Event::Ended(ended) => Some(*ended),
        _ => None,
    });
    recorded.transpose().map(RunEnd::of)
}

#[cfg(test)]
mod tests {
    use aod_domain::event::{CloudEvent, Header};
    use aod_domain::id::EventId;
    use aod_domain::run::fixtures;
    use aod_domain::tenant::Tenant;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    /// `event` of `run` as it was stored.
    fn stored(sequence: u64, run: RunId, event: Event) -> StoredEvent {
        let subject = event.subject(&Tenant::default(), run).to_string();
        let header = Header {
            id: EventId::new(Uuid::from_u128(sequence.into())),
            source: "/gateway/test".into(),
            time: Timestamp::UNIX_EPOCH,
        };
        let event = CloudEvent::new(header, run.to_string(), None, event);
        let bytes = event.encode().unwrap().into();
        StoredEvent {
            sequence,
            subject,
            bytes,
        }
    }

    #[test]
    fn a_tree_is_counted_only_where_its_root_was_told() {
        let (root, child) = (fixtures::root(), fixtures::child());
        let launch = |sequence, run| {
            let launched = if run == root {
                fixtures::launched()
            } else {
                fixtures::launched_child()
            };
            stored(sequence, run, Event::Launched(Box::new(launched)))
        };
        let waiters = Arc::new(Waiters::new(CancellationToken::new()));
        let waiter = waiters.register(root);
        waiters.take(&launch(2, child));
        assert_eq!(
            waiters.tree_runs(root),
            None,
            "launches may have been missed"
        );
        drop(waiter);
        let _waiter = waiters.register(root);
        waiters.take(&launch(3, root));
        assert_eq!(waiters.tree_runs(root), Some(1));
        waiters.take(&launch(4, child));
        assert_eq!(waiters.tree_runs(root), Some(2));
        assert_eq!(waiters.tree_runs(child), None);
    }
}
