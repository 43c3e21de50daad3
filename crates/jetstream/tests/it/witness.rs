//! Runs under load, and the confirmed events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aod_domain::event::Recorded;
use aod_domain::id::EventId;
use aod_domain::run::fixtures::{ended, launched, node_holder};
use aod_domain::run::{Command, Event, Launched};
use aod_domain::subject::{self, Subject};
use aod_jetstream::JetStreamEventLog;
use aod_ports::BoxError;
use aod_ports::clock::SystemClock;
use aod_ports::event_log::{
    Append, AppendError, EventLog, Fill, Followed, From, ReadError, StoredEvent, Tried,
};
use aod_services::runs::{HandleError, Runs};
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of tasks that make runs, each one run after the other.
const WRITERS: u64 = 8;

/// Events of one page.
const PAGE: usize = 1_000;

/// A log that records each confirmed append.
#[derive(Debug)]
pub(crate) struct Witness {
    log: JetStreamEventLog,
    confirmed: watch::Sender<Vec<StoredEvent>>,
    wants_more: watch::Sender<bool>,
}

impl Witness {
    pub(crate) fn new(log: JetStreamEventLog) -> Arc<Self> {
        Arc::new(Self {
            log,
            confirmed: watch::Sender::default(),
            wants_more: watch::Sender::new(true),
        })
    }

    /// The confirmed events, in the order of their confirmations.
    pub(crate) fn confirmed(&self) -> Vec<StoredEvent> {
        self.confirmed.borrow().clone()
    }

    /// Waits until `count` appends are confirmed.
    pub(crate) async fn wait_for(&self, count: usize, patience: Duration) {
        let mut confirmed = self.confirmed.subscribe();
        let reached = confirmed.wait_for(|events| events.len() >= count);
        let reached = tokio::time::timeout(patience, reached).await;
        reached.expect("confirmations in time").unwrap();
    }

    /// Starts writers that make whole runs like gateways and nodes: each decides, appends with a guard, and
    /// chains its event to the one before.
    pub(crate) fn load(self: &Arc<Self>) -> JoinSet<Result<(), HandleError>> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let witness = Arc::clone(self);
            writers.spawn(async move {
                let runs = Runs::new(witness.clone(), Arc::new(SystemClock), "/test");
                while *witness.wants_more.borrow() {
                    make_run(&runs, writer).await?;
                }
                Ok(())
            });
        }
        writers
    }

    /// Tells the writers to end after their current run.
    pub(crate) fn enough(&self) {
        self.wants_more.send_replace(false);
    }
}

/// One run from its launch to its result: three events.
async fn make_run(runs: &Runs, writer: u64) -> Result<(), HandleError> {
    let id = runs.clock().fresh_root();
    let launch = Launched {
        deadline: runs.clock().now() + Duration::from_secs(3_600),
        ..launched()
    };
    let lease = Command::Lease {
        holder: node_holder(writer.into(), 1),
        is_holder_gone: false,
    };
    let mut run = None;
    for command in [
        Command::Launch(Box::new(launch)),
        lease,
        Command::End(Box::new(ended(1))),
    ] {
        run = Some(runs.handle(id, &command, run).await?);
    }
    Ok(())
}

/// Everything in the log, in its order.
pub(crate) async fn read_all(log: &dyn EventLog) -> Vec<StoredEvent> {
    let mut stored: Vec<StoredEvent> = Vec::new();
    loop {
        let after = stored.last().map_or(0, |event| event.sequence);
        let page = log.read(subject::ALL, after, PAGE).await.unwrap();
        if page.is_empty() {
            return stored;
        }
        stored.extend(page);
    }
}

/// The confirmed events that are not stored unchanged at their sequences.
pub(crate) fn missing<'a>(
    confirmed: &'a [StoredEvent],
    stored: &[StoredEvent],
) -> Vec<&'a StoredEvent> {
    let stored: BTreeMap<u64, &StoredEvent> =
        stored.iter().map(|event| (event.sequence, event)).collect();
    confirmed
        .iter()
        .filter(|event| stored.get(&event.sequence) != Some(event))
        .collect()
}

/// Checks invariants of every log: an order, no event twice, and valid histories.
pub(crate) async fn check_whole(log: &Arc<dyn EventLog>, stored: &[StoredEvent]) {
    assert!(stored.is_sorted_by_key(|event| event.sequence));
    let mut ids: BTreeSet<EventId> = BTreeSet::new();
    let mut roots = BTreeSet::new();
    for event in stored {
        let recorded = Recorded::<Event>::decode(event.sequence, &event.bytes).unwrap();
        assert!(ids.insert(recorded.id), "stored twice: {event:?}");
        roots.insert(Subject::run_of(&event.subject).unwrap());
    }
    let runs = Runs::new(Arc::clone(log), Arc::new(SystemClock), "/test");
    for run in roots {
        runs.load(run).await.unwrap().unwrap();
    }
}

#[async_trait]
impl EventLog for Witness {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        let (subject, bytes) = (append.subject.to_string(), append.bytes.clone());
        let sequence = self.log.append(append).await?;
        let event = StoredEvent {
            sequence,
            subject,
            bytes,
        };
        self.confirmed.send_modify(|events| events.push(event));
        Ok(sequence)
    }

    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried {
        self.log.try_append(append, deadline).await
    }

    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError> {
        self.log.first_after(filter, sequence).await
    }

    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        self.log.read(filter, after, limit).await
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        self.log.read_last(filter).await
    }

    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError> {
        self.log.follow(filter, from).await
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        self.log.fill().await
    }

    async fn release_before(&self, sequence: u64) -> Result<(), ReadError> {
        self.log.release_before(sequence).await
    }
}
