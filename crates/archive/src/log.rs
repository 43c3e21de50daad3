//! The log as its readers know it, wherever its events are: below the floor in the archive, from there on in
//! the broker.
//!
//! A look at the last event of the archive, at most [`FRESH`] ago, says where the floor is; the broker lets go
//! of nothing sooner than [`RELEASE_DELAY`] after it was said. What took so long that this may not hold any more
//! is done again. Time is that of the host since it was started.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::archive::{self, Archive, Event, FRESH, RELEASE_DELAY, Segment};
use aod_domain::event::{Recorded, header_of};
use aod_domain::subject;
use aod_ports::BoxError;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::event_log::{
    Append, AppendError, EventLog, Fill, From, Guard, ReadError, StoredEvent, Told, Tried,
};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::time::Instant;

use crate::follower::Follower;
use crate::shelf::Shelf;

/// What a look is good for, from its beginning to the end of what is done by it.
const GOOD_FOR: Duration = Duration::from_secs(RELEASE_DELAY.as_secs() / 2);

/// A log that reads through both. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ArchivedLog {
    broker: Arc<dyn EventLog>,
    shelf: Arc<Shelf>,
    clock: Arc<dyn Clock>,
    look: Arc<Mutex<Option<Look>>>,
}

/// What the last event of the archive said.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// When it was asked for, since the start of the host.
    at: Duration,
    last: Option<Recorded<Event>>,
}

impl Look {
    pub(crate) fn floor(&self) -> u64 {
        archive::floor(self.last.as_ref())
    }

    pub(crate) fn last(&self) -> Option<&Recorded<Event>> {
        self.last.as_ref()
    }

    /// The archive, if something after `after` is to be read there.
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
            look: Arc::default(),
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

    /// Where the floor is: as it was at most [`FRESH`] ago.
    pub(crate) async fn look(&self) -> Result<Look, ReadError> {
        let at = self.clock.since_boot();
        let known = self
            .look
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match known {
            Some(look) if at.saturating_sub(look.at) <= FRESH => Ok(look),
            _ => self.look_anew().await,
        }
    }

    pub(crate) async fn look_anew(&self) -> Result<Look, ReadError> {
        let at = self.clock.since_boot();
        let last = self.broker.read_last(subject::ARCHIVE).await?;
        let last = last.map(|stored| stored.decode());
        let last = last.transpose();
        let last = last.map_err(|error| failed(subject::ARCHIVE)(error.into()))?;
        let look = Look { at, last };
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(look.clone());
        Ok(look)
    }

    /// Whether what was done by `look` counts: nothing that it did not know of was let go meanwhile.
    pub(crate) fn is_good(&self, look: &Look) -> bool {
        self.clock.since_boot().saturating_sub(look.at) <= GOOD_FOR
    }

    /// Up to `limit` events below the floor.
    pub(crate) async fn read_archive(
        &self,
        look: &Look,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        match look.archive_after(after) {
            Some(archive) => {
                let read = self.shelf.read(archive, filter, after, limit).await;
                read.map_err(failed(filter))
            }
            None => Ok(Vec::new()),
        }
    }

    async fn last_of_archive(
        &self,
        look: &Look,
        filter: &str,
    ) -> Result<Option<StoredEvent>, ReadError> {
        match look.archive_after(0) {
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
        look: &Look,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let mut events = self.read_archive(look, filter, after, limit).await?;
        if events.len() < limit {
            let after = after.max(look.floor() - 1);
            let room = limit - events.len();
            events.extend(self.broker.read(filter, after, room).await?);
        }
        Ok(events)
    }

    /// The guard as the broker knows it, if it has let go of the event that it names: then nothing under its
    /// filter is left there.
    async fn guard_of_what_is_left(&self, guard: &Guard) -> Result<Option<Guard>, ReadError> {
        let Guard::Last { filter, sequence } = guard else {
            return Ok(None);
        };
        let look = self.look().await?;
        if *sequence == 0 || *sequence >= look.floor() {
            return Ok(None);
        }
        let last = self.last_of_archive(&look, filter).await?;
        let is_last = last.is_some_and(|last| last.sequence == *sequence);
        Ok(is_last.then(|| Guard::Last {
            filter: filter.clone(),
            sequence: 0,
        }))
    }

    /// Whether `guard` wants nothing to be there although the archive has something.
    async fn is_taken(&self, guard: &Guard) -> Result<bool, ReadError> {
        let Guard::Last {
            filter,
            sequence: 0,
        } = guard
        else {
            return Ok(false);
        };
        let look = self.look().await?;
        Ok(!self.read_archive(&look, filter, 0, 1).await?.is_empty())
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
        match self.guard_of_what_is_left(&append.guard).await {
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
        let look = self.look().await?;
        let archived = self.read_archive(&look, filter, sequence, 1).await?;
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
            let look = self.look().await?;
            let events = self.read_by(&look, filter, after, limit).await?;
            if self.is_good(&look) {
                return Ok(events);
            }
        }
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        loop {
            let look = self.look().await?;
            if let Some(last) = self.broker.read_last(filter).await? {
                return Ok(Some(last));
            }
            let last = self.last_of_archive(&look, filter).await?;
            if self.is_good(&look) {
                return Ok(last);
            }
        }
    }

    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Told>, ReadError> {
        let From::After(after) = from else {
            return self.broker.follow(filter, from).await;
        };
        let follower = Follower::begin(self.clone(), filter, after).await?;
        let told = stream::unfold(follower, |mut follower| async {
            let told = follower.next().await?;
            Some((told, follower))
        });
        Ok(told.boxed())
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        self.broker.fill().await
    }

    async fn release_before(&self, sequence: u64) -> Result<(), ReadError> {
        self.broker.release_before(sequence).await
    }
}
