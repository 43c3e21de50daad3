//! Closes segments, raises the floor, and lets the broker release the events below the floor.
//!
//! Any number of gateways may run this: equal events give equal artifacts, and the guard of the archive's own events
//! accepts the first of several concurrent writers.

use std::io::BufWriter;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::archive::{
    Archive, Artifact, Event, RELEASE_DELAY, Seen, Segment, floor, next_floor, next_segment,
};
use aod_domain::event::{CloudEvent, Recorded, header_of};
use aod_domain::subject;
use aod_ports::BoxError;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::event_log::{Append, AppendError, EventLog as _, Guard, StoredEvent};
use aod_services::program::blocking;
use aod_services::runs::Runs;
use jiff::SignedDuration;
use tempfile::NamedTempFile;

use crate::log::ArchivedLog;
use crate::segment::Writer;

/// Events per read.
const PAGE_SIZE: usize = 1_000;

/// Archives the log.
#[derive(Clone, Debug)]
pub struct Archiver {
    log: ArchivedLog,
    artifacts: Arc<dyn ArtifactStore>,
    runs: Runs,
    age: SignedDuration,
    /// The floor that was read last, and the time of that read since the host started.
    seen: Option<(u64, Duration)>,
}

impl Archiver {
    /// `age` is the minimum time that events stay in the broker.
    pub fn new(
        log: ArchivedLog,
        artifacts: Arc<dyn ArtifactStore>,
        runs: Runs,
        age: SignedDuration,
    ) -> Self {
        Self {
            log,
            artifacts,
            runs,
            age,
            seen: None,
        }
    }

    /// Performs the next step. `first_needed` is the first launch whose run has not ended. Returns whether another
    /// step may be due immediately.
    pub async fn step(&mut self, first_needed: u64) -> Result<bool, BoxError> {
        let snapshot = self.log.refresh().await?;
        let last = snapshot.last();
        self.release(floor(last)).await?;
        let last_segment = last.map(|last| last.event.archive().segment);
        let seen = self.survey(last_segment.as_ref(), first_needed).await?;
        if let Some(events) = next_segment(last_segment.as_ref(), &seen) {
            return self.archive(last, events).await;
        }
        let Some(last) = last else { return Ok(false) };
        let archive = last.event.archive();
        let segments = self.log.segments(archive).await?;
        let Some(floor) = next_floor(archive.floor, &segments, &seen) else {
            return Ok(false);
        };
        tracing::info!(floor, "archived events may be released from the broker");
        let raised = Archive { floor, ..*archive };
        self.append(Some(last), Event::Released(raised)).await
    }

    async fn survey(&self, last: Option<&Segment>, first_needed: u64) -> Result<Seen, BoxError> {
        let end = last.map_or(0, |segment| segment.last);
        let first = self.log.broker().read(subject::ALL, end, 1).await?;
        let oldest = first
            .first()
            .and_then(|stored| header_of(&stored.bytes).ok());
        Ok(Seen {
            now: self.runs.clock().now(),
            age: self.age,
            last_sequence: self.log.fill().await?.last_sequence,
            oldest: oldest.map(|header| header.time),
            first_needed,
        })
    }

    /// Asks the broker to release the events below a floor that every reader has had the time to see. Repeated,
    /// because the broker releases only events that are old enough by its own clock.
    async fn release(&mut self, floor: u64) -> Result<(), BoxError> {
        let now = self.runs.clock().since_boot();
        let (seen, since) = *self.seen.get_or_insert((floor, now));
        if seen > 1 && now.saturating_sub(since) >= RELEASE_DELAY {
            self.log.release_before(seen).await?;
        } else if seen > 1 {
            return Ok(());
        }
        if seen != floor {
            self.seen = Some((floor, now));
        }
        Ok(())
    }

    async fn archive(
        &self,
        last: Option<&Recorded<Event>>,
        events: RangeInclusive<u64>,
    ) -> Result<bool, BoxError> {
        let before = match last {
            Some(last) => self.log.segments(last.event.archive()).await?,
            None => Vec::new(),
        };
        let segment = self.store(events, before).await?;
        tracing::info!(
            first = segment.first,
            last = segment.last,
            bytes = segment.events.size_bytes,
            "part of the log archived"
        );
        let archive = Archive {
            segment,
            floor: floor(last),
        };
        self.append(last, Event::Archived(archive)).await
    }

    /// Stores a segment and its index.
    async fn store(
        &self,
        events: RangeInclusive<u64>,
        before: Vec<Segment>,
    ) -> Result<Segment, BoxError> {
        let spool = NamedTempFile::new_in(self.artifacts.spool_directory())?;
        let mut writer = Writer::new(BufWriter::new(spool.reopen()?));
        let mut after = *events.start() - 1;
        while after < *events.end() {
            let page = self
                .log
                .broker()
                .read(subject::ALL, after, PAGE_SIZE)
                .await?;
            let page = page_of(page, after, *events.end())?;
            after += page.len() as u64;
            writer = blocking(move || {
                page.iter().try_for_each(|stored| writer.add(stored))?;
                Ok::<_, std::io::Error>(writer)
            })
            .await?;
        }
        let (index, latest) = blocking(move || writer.finish(&before)).await?;
        let stored = self.artifacts.put_file(spool.path(), None).await?;
        let index = self
            .artifacts
            .put_reader(Box::new(std::io::Cursor::new(index)));
        let index = index.await?;
        Ok(Segment {
            first: *events.start(),
            last: *events.end(),
            latest,
            events: Artifact {
                digest: stored.digest,
                size_bytes: stored.size_bytes,
            },
            index: Artifact {
                digest: index.digest,
                size_bytes: index.size_bytes,
            },
        })
    }

    /// Returns whether the event was stored; that another gateway was faster is no failure.
    async fn append(&self, last: Option<&Recorded<Event>>, event: Event) -> Result<bool, BoxError> {
        let subject = event.subject();
        let previous = last.map(|last| last.hash);
        let event = CloudEvent::new(self.runs.header(), "archive".to_owned(), previous, event);
        let guard = Guard::Last {
            filter: subject::ARCHIVE.to_owned(),
            sequence: last.map_or(0, |last| last.sequence),
        };
        match self.log.append(Append::of(subject, guard, &event)?).await {
            Ok(_) => Ok(true),
            Err(AppendError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The events of a page up to `end`; fails if the log has a gap.
fn page_of(page: Vec<StoredEvent>, after: u64, end: u64) -> Result<Vec<StoredEvent>, BoxError> {
    let page: Vec<StoredEvent> = page
        .into_iter()
        .take_while(|stored| stored.sequence <= end)
        .collect();
    let mut expected = after + 1..;
    let gap = page
        .iter()
        .find(|stored| Some(stored.sequence) != expected.next());
    match gap {
        None if page.is_empty() => Err(format!("the log has no event after {after}").into()),
        None => Ok(page),
        Some(stored) => Err(format!("the log has a gap before {}", stored.sequence).into()),
    }
}
