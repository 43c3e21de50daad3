//! The log for its readers: events below the floor come from the archive, all others from the broker.
//!
//! The last event of the archive, read at most [`FRESH`] ago, names the floor. The broker releases no event sooner
//! than [`RELEASE_DELAY`] after that event was stored. An operation that took too long for this guarantee is repeated.
//! Times are those since the host started.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::archive::{self, Archive, Event, FRESH, RELEASE_DELAY, Segment};
use aod_domain::event::{Recorded, header_of};
use aod_domain::subject;
use aod_ports::BoxError;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::event_log::{
    Append, AppendError, EventLog, Fill, Followed, From, Guard, ReadError, StoredEvent, Tried,
};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::time::Instant;

use crate::follower::Follower;
use crate::shelf::Shelf;

/// How long a reading of the floor is valid, from its start to the end of the operation that uses it.
const GOOD_FOR: Duration = Duration::from_secs(RELEASE_DELAY.as_secs() / 2);

/// A log that reads both. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ArchivedLog {
    broker: Arc<dyn EventLog>,
    shelf: Arc<Shelf>,
    clock: Arc<dyn Clock>,
    snapshot: Arc<Mutex<Option<Snapshot>>>,
}

/// The content of the last event of the archive.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// When it was requested, since the host started.
    at: Duration,
    last: Option<Recorded<Event>>,
}

impl Snapshot {
    pub(crate) fn floor(&self) -> u64 {
        archive::floor(self.last.as_ref())
    }

    pub(crate) fn last(&self) -> Option<&Recorded<Event>> {
        self.last.as_ref()
    }

    /// The archive, if it holds events after `after`.
    fn archive_after(&self, after: u64) -> Option<&Archive> {
        let archive = self.last.as_ref().map(|last| last.event.archive());
        archive.filter(|archive| after + 1 < archive.floor)
    }
}

impl ArchivedLog {
    pub fn new(
        broker: Arc<dyn EventLog>,
        artifacts: Arc<dyn ArtifactStore>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            broker,
            shelf: Arc::new(Shelf::new(artifacts)),
            clock,
            snapshot: Arc::default(),
        }
    }

    pub(crate) fn broker(&self) -> &dyn EventLog {
        &*self.broker
    }

    /// All segments.
    pub(crate) async fn segments(&self, archive: &Archive) -> Result<Vec<Segment>, ReadError> {
        let segments = self.shelf.segments(archive).await;
        segments.map_err(failed("the list of segments"))
    }

    /// The floor, at most [`FRESH`] old.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let at = self.clock.since_boot();
        let known = self
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match known {
            Some(snapshot) if at.saturating_sub(snapshot.at) <= FRESH => Ok(snapshot),
            _ => self.refresh().await,
        }
    }

    pub(crate) async fn refresh(&self) -> Result<Snapshot, ReadError> {
        let at = self.clock.since_boot();
        let last = self.broker.read_last(subject::ARCHIVE).await?;
        let last = last.map(|stored| stored.decode());
        let last = last.transpose();
        let last = last.map_err(|error| failed(subject::ARCHIVE)(error.into()))?;
        let snapshot = Snapshot { at, last };
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Whether an operation that used `snapshot` is valid: the broker released nothing above its floor in the meantime.
    pub(crate) fn is_good(&self, snapshot: &Snapshot) -> bool {
        self.clock.since_boot().saturating_sub(snapshot.at) <= GOOD_FOR
    }

    /// Up to `limit` events below the floor.
    pub(crate) async fn read_archive(
        &self,
        snapshot: &Snapshot,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        match snapshot.archive_after(after) {
            Some(archive) => {
                let read = self.shelf.read(archive, filter, after, limit).await;
                read.map_err(failed(filter))
            }
            None => Ok(Vec::new()),
        }
    }

    async fn last_of_archive(
        &self,
        snapshot: &Snapshot,
        filter: &str,
    ) -> Result<Option<StoredEvent>, ReadError> {
        match snapshot.archive_after(0) {
            Some(archive) => self
                .shelf
                .last(archive, filter)
                .await
                .map_err(failed(filter)),
            None => Ok(None),
        }
    }

    async fn read_by(
        &self,
        snapshot: &Snapshot,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let mut events = self.read_archive(snapshot, filter, after, limit).await?;
        if events.len() < limit {
            let after = after.max(snapshot.floor() - 1);
            let room = limit - events.len();
            events.extend(self.broker.read(filter, after, room).await?);
        }
        Ok(events)
    }

    /// The guard in the broker's terms, if the broker has released the event that `guard` names: then the broker has
    /// no event under the filter.
    async fn guard_in_broker(&self, guard: &Guard) -> Result<Option<Guard>, ReadError> {
        let Guard::Last { filter, sequence } = guard else {
            return Ok(None);
        };
        let snapshot = self.snapshot().await?;
        if *sequence == 0 || *sequence >= snapshot.floor() {
            return Ok(None);
        }
        let last = self.last_of_archive(&snapshot, filter).await?;
        let is_last = last.is_some_and(|last| last.sequence == *sequence);
        Ok(is_last.then(|| Guard::Last {
            filter: filter.clone(),
            sequence: 0,
        }))
    }

    /// Whether `guard` expects no event although the archive has one.
    async fn is_taken(&self, guard: &Guard) -> Result<bool, ReadError> {
        let Guard::Last {
            filter,
            sequence: 0,
        } = guard
        else {
            return Ok(false);
        };
        let snapshot = self.snapshot().await?;
        Ok(!self.read_archive(&snapshot, filter, 0, 1).await?.is_empty())
    }
}

fn failed(what: &str) -> impl FnOnce(BoxError) -> ReadError + '_ {
    |source| ReadError {
        what: what.to_owned(),
        source,
    }
}

#[async_trait]
impl EventLog for ArchivedLog {
    fn concluded(&self, append: &Append, answer: &Result<u64, AppendError>) {
        self.broker.concluded(append, answer);
    }

    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried {
        match self.is_taken(&append.guard).await {
            Ok(false) => (),
            Ok(true) => return Tried::Conflict,
            Err(error) => return Tried::Unknown(error.into()),
        }
        let tried = self.broker.try_append(append, deadline).await;
        if !matches!(tried, Tried::Conflict) {
            return tried;
        }
        match self.guard_in_broker(&append.guard).await {
            Ok(None) => tried,
            Ok(Some(guard)) => {
                let append = Append {
                    guard,
                    ..append.clone()
                };
                self.broker.try_append(&append, deadline).await
            }
            Err(error) => Tried::Unknown(error.into()),
        }
    }

    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError> {
        let snapshot = self.snapshot().await?;
        let archived = self.read_archive(&snapshot, filter, sequence, 1).await?;
        if let Some(first) = archived.first() {
            let id = header_of(&first.bytes)?.id.to_string();
            return Ok(Some((first.sequence, id)));
        }
        self.broker.first_after(filter, sequence).await
    }

    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        loop {
            let snapshot = self.snapshot().await?;
            let events = self.read_by(&snapshot, filter, after, limit).await?;
            if self.is_good(&snapshot) {
                return Ok(events);
            }
        }
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        loop {
            let snapshot = self.snapshot().await?;
            if let Some(last) = self.broker.read_last(filter).await? {
                return Ok(Some(last));
            }
            let last = self.last_of_archive(&snapshot, filter).await?;
            if self.is_good(&snapshot) {
                return Ok(last);
            }
        }
    }

    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError> {
        let From::After(after) = from else {
            return self.broker.follow(filter, from).await;
        };
        let follower = Follower::begin(self.clone(), filter, after).await?;
        let followed = stream::unfold(follower, |mut follower| async {
            let followed = follower.next().await?;
            Some((followed, follower))
        });
        Ok(followed.boxed())
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        self.broker.fill().await
    }

    async fn release_before(&self, sequence: u64) -> Result<(), ReadError> {
        self.broker.release_before(sequence).await
    }
}
