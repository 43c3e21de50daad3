//! Requests that wait for results; one subscription to the state events of runs wakes them.
//!
//! A waiter is registered before the run is read, so that it misses no result. It also checks the log every few
//! seconds, so that nothing depends on a single wake-up. The state of a run that has a waiter since its launch is kept
//! in memory, which saves reading it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Event, Run};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, Followed, From, ReadError, StoredEvent};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::reading::views::Seen;

/// Time until the first check of a waiter; it doubles after each check.
const CHECK_FIRST: Duration = Duration::from_secs(2);

/// Maximum time between two checks: the maximum delay after a lost wake-up.
const CHECK_LONGEST: Duration = Duration::from_secs(30);

/// The result of a run, as stored.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub(crate) ended: Arc<Recorded<Ended>>,
    /// The whole run, if it had a waiter since its launch.
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

/// A run with waiters.
#[derive(Debug)]
struct Awaited {
    wakes: watch::Sender<Option<RunEnd>>,
    /// The run so far, if all its events since its launch were received.
    seen: Option<Seen>,
    /// The runs below it whose events were received since its own launch.
    descendants: HashSet<RunId>,
}

/// All waiters of this gateway.
#[derive(Debug)]
pub(crate) struct ResultWaiters {
    waiting: Mutex<HashMap<RunId, Awaited>>,
    /// Number of reconnections: after each, all waiters check the log.
    reconnections: watch::Sender<u64>,
    shutdown: CancellationToken,
}

impl ResultWaiters {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            waiting: Mutex::default(),
            reconnections: watch::Sender::new(0),
            shutdown,
        }
    }

    /// The result of `run`; none if it has none at `until`, or when the gateway stops.
    ///
    /// While the broker does not answer, the waiter continues to wait, and finds the result afterwards.
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
            Err(error) => tracing::debug!(%run, %error, "cannot check for the result; retrying"),
        }
        waiter.wait(log, until).await
    }

    /// Number of runs with waiters.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The run, if it has had a waiter here since its launch.
    pub(crate) fn known(&self, run: RunId) -> Option<Run> {
        let waiting = self.lock();
        Some(waiting.get(&run)?.seen.as_ref()?.run.clone())
    }

    /// Number of runs in the tree of `root`, if it has had a waiter here since its launch.
    pub(crate) fn tree_runs(&self, root: RunId) -> Option<u64> {
        let waiting = self.lock();
        let awaited = waiting.get(&root)?;
        let descendants = awaited.descendants.len() as u64;
        awaited.seen.as_ref().map(|_| 1 + descendants)
    }

    /// Passes results to waiters, until the gateway stops.
    pub(crate) async fn follow(&self, mut states: BoxStream<'static, Followed>) {
        loop {
            let followed = tokio::select! {
                biased;
                followed = states.next() => followed,
                () = self.shutdown.cancelled() => return,
            };
            match followed {
                Some(Followed::Event(stored)) => self.take(&stored),
                Some(Followed::Reconnected) => self.reconnections.send_modify(|count| *count += 1),
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
            // Most likely the launch was received before there was a waiter.
            tracing::trace!(%run, %error, "the run must be read from the log");
            awaited.seen = None;
        }
        if Subject::is_result(&stored.subject) {
            awaited.wake(run, stored);
        }
    }

    /// Registers a waiter, which receives all events of `run` from now on.
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
        // No code under the lock can leave the map half changed.
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
            None => {
                tracing::error!(%run, sequence = stored.sequence, "ignored an unreadable result");
            }
        }
    }
}

/// A registration of a waiter; dropping the last one of a run removes the run.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<ResultWaiters>,
    run: RunId,
    wakes: watch::Receiver<Option<RunEnd>>,
    reconnections: watch::Receiver<u64>,
}

impl Waiter {
    /// As [`ResultWaiters::wait`], for a run that had no result after the waiter was registered: the waiter misses no event,
    /// so the first check comes later.
    pub(crate) async fn wait(
        mut self,
        log: &dyn EventLog,
        until: Option<Instant>,
    ) -> Option<RunEnd> {
        let run = self.run;
        let shutdown = self.waiters.shutdown.clone();
        let mut pause = CHECK_FIRST;
        loop {
            let look_again = Instant::now() + pause;
            pause = (pause * 2).min(CHECK_LONGEST);
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
                Err(error) => {
                    tracing::debug!(%run, %error, "cannot check for the result; retrying");
                }
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        // The count still includes this receiver.
        if waiting
            .get(&self.run)
            .is_some_and(|awaited| awaited.wakes.receiver_count() <= 1)
        {
            waiting.remove(&self.run);
        }
    }
}

/// The result of `run` that is stored now.
pub(crate) async fn look(log: &dyn EventLog, run: RunId) -> Result<Option<RunEnd>, ReadError> {
    let stored = log.read_last(&subject::run_result(run)).await?;
    Ok(stored.as_ref().and_then(ended))
}

/// Subscribes to the state events of all runs from now on.
pub(crate) async fn subscribe(
    log: &dyn EventLog,
) -> Result<BoxStream<'static, Followed>, ReadError> {
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

    /// `event` of `run` as a stored event.
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
    fn tree_is_counted_only_if_launch_of_its_root_was_received() {
        let (root, child) = (fixtures::root(), fixtures::child());
        let launch = |sequence, run| {
            let launched = if run == root {
                fixtures::launched()
            } else {
                fixtures::launched_child()
            };
            stored(sequence, run, Event::Launched(Box::new(launched)))
        };
        let waiters = Arc::new(ResultWaiters::new(CancellationToken::new()));
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
