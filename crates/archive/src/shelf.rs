//! The existing segments, read from the artifact store on demand.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::archive::{Archive, Artifact, Segment};
use aod_domain::subject::is_under;
use aod_ports::BoxError;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::event_log::StoredEvent;
use aod_services::program::blocking;
use tokio::sync::OnceCell;

use crate::segment::{Index, unpack};

/// Unpacked blocks that stay in memory: a reader of a tree or of consecutive pages needs the same block again.
const BLOCKS_KEPT_MAX: usize = 32;

/// The segments of the archive, in their order.
pub(crate) struct Shelf {
    artifacts: Arc<dyn ArtifactStore>,
    volumes: Mutex<Arc<[Arc<Volume>]>>,
    /// Latest first.
    recent: Mutex<VecDeque<Recent>>,
}

/// A segment, and its index after the first use.
struct Volume {
    segment: Segment,
    index: OnceCell<Index>,
}

struct Recent {
    /// The sequence of its first event.
    first: u64,
    events: Arc<[StoredEvent]>,
}

impl fmt::Debug for Shelf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} segments", self.volumes().len())
    }
}

impl Shelf {
    pub(crate) fn new(artifacts: Arc<dyn ArtifactStore>) -> Self {
        Self {
            artifacts,
            volumes: Mutex::new(Arc::new([])),
            recent: Mutex::default(),
        }
    }

    /// All segments up to that of `archive`.
    pub(crate) async fn segments(&self, archive: &Archive) -> Result<Vec<Segment>, BoxError> {
        let volumes = self.up_to(archive).await?;
        Ok(volumes.iter().map(|volume| volume.segment).collect())
    }

    /// Up to `limit` events under `filter` after `after` and before the floor of `archive`, oldest first.
    pub(crate) async fn read(
        &self,
        archive: &Archive,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, BoxError> {
        let mut found = Vec::new();
        let volumes = self.up_to(archive).await?;
        let volumes = volumes.iter();
        for volume in volumes.filter(|volume| volume.segment.last > after) {
            for number in volume.index(self).await?.blocks_of(filter) {
                let (first, last) = volume.range(number);
                if found.len() >= limit || first >= archive.floor {
                    return Ok(found);
                }
                if last <= after {
                    continue;
                }
                let events = self.block(volume, number).await?;
                let wanted = events.iter().filter(|stored| {
                    (after + 1..archive.floor).contains(&stored.sequence)
                        && is_under(&stored.subject, filter)
                });
                found.extend(wanted.take(limit - found.len()).cloned());
            }
        }
        Ok(found)
    }

    /// The last event under `filter` before the floor of `archive`.
    pub(crate) async fn last(
        &self,
        archive: &Archive,
        filter: &str,
    ) -> Result<Option<StoredEvent>, BoxError> {
        let is_wanted = |stored: &&StoredEvent| {
            stored.sequence < archive.floor && is_under(&stored.subject, filter)
        };
        for volume in self.up_to(archive).await?.iter().rev() {
            for number in volume
                .index(self)
                .await?
                .blocks_of(filter)
                .into_iter()
                .rev()
            {
                let events = self.block(volume, number).await?;
                if let Some(found) = events.iter().rev().find(is_wanted) {
                    return Ok(Some(found.clone()));
                }
            }
        }
        Ok(None)
    }

    /// The segments up to that of `archive`, the latest known one.
    async fn up_to(&self, archive: &Archive) -> Result<Arc<[Arc<Volume>]>, BoxError> {
        let known = self.volumes();
        if known
            .last()
            .is_some_and(|last| last.segment.last >= archive.segment.last)
        {
            return Ok(known);
        }
        let latest = Volume::new(archive.segment);
        let before = latest.index(self).await?.before.clone();
        let kept = known.iter().map(Arc::clone);
        let new = before.get(known.len()..).unwrap_or_default().iter();
        let new = new.map(|segment| Arc::new(Volume::new(*segment)));
        let volumes: Arc<[_]> = kept.chain(new).chain([Arc::new(latest)]).collect();
        *self.volumes.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&volumes);
        Ok(volumes)
    }

    fn volumes(&self) -> Arc<[Arc<Volume>]> {
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&volumes)
    }

    async fn block(&self, volume: &Volume, number: usize) -> Result<Arc<[StoredEvent]>, BoxError> {
        let block = volume.index(self).await?.blocks[number].clone();
        if let Some(events) = self.kept(block.first) {
            return Ok(events);
        }
        let Artifact { digest, size_bytes } = volume.segment.events;
        let file = self.artifacts.get_file(digest, size_bytes).await?;
        let events = blocking(move || {
            let mut packed = vec![0; usize::try_from(block.size_bytes)?];
            File::open(file.path())?.read_exact_at(&mut packed, block.offset)?;
            Ok::<Arc<[_]>, BoxError>(unpack(&packed)?.into())
        })
        .await?;
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(BLOCKS_KEPT_MAX - 1);
        recent.push_front(Recent {
            first: block.first,
            events: Arc::clone(&events),
        });
        Ok(events)
    }

    fn kept(&self, first: u64) -> Option<Arc<[StoredEvent]>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let at = recent.iter().position(|kept| kept.first == first)?;
        let kept = recent.remove(at)?;
        let events = Arc::clone(&kept.events);
        recent.push_front(kept);
        Some(events)
    }
}

impl Volume {
    fn new(segment: Segment) -> Self {
        Self {
            segment,
            index: OnceCell::new(),
        }
    }

    async fn index(&self, shelf: &Shelf) -> Result<&Index, BoxError> {
        let Artifact { digest, size_bytes } = self.segment.index;
        let load = || async {
            let file = shelf.artifacts.get_file(digest, size_bytes).await?;
            let index =
                blocking(move || Ok::<_, BoxError>(Index::read(&std::fs::read(file.path())?)?));
            index.await
        };
        self.index.get_or_try_init(load).await
    }

    /// The sequences of the first and the last event of a block.
    fn range(&self, number: usize) -> (u64, u64) {
        let blocks = self.index.get().map_or(&[][..], |index| &index.blocks);
        let first = |number: usize| blocks.get(number).map(|block| block.first);
        let last = first(number + 1).map_or(self.segment.last, |next| next - 1);
        (first(number).unwrap_or(last), last)
    }
}
