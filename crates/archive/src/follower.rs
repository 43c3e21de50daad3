//! A place in the log that moves on, out of the archive into the broker, and back where it fell behind.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use aod_ports::event_log::{From, ReadError, StoredEvent, Told};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::log::ArchivedLog;

/// Events that are read from the archive at a time.
const PAGE_SIZE: usize = 1_000;

/// How long to wait before the archive, or the broker, is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Follower {
    log: ArchivedLog,
    filter: String,
    /// The last event that was told, or is known not to be wanted.
    place: u64,
    archived: VecDeque<StoredEvent>,
    told: Option<BoxStream<'static, Told>>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} after {}", self.filter, self.place)
    }
}

impl Follower {
    /// Follows from behind `after` on; what is stored once this returns is not missed.
    pub(crate) async fn begin(
        log: ArchivedLog,
        filter: &str,
        after: u64,
    ) -> Result<Self, ReadError> {
        let mut follower = Self {
            log,
            filter: filter.to_owned(),
            place: after,
            archived: VecDeque::new(),
            told: None,
        };
        follower.fetch().await?;
        Ok(follower)
    }

    /// The next that is to be told; none when the broker's log has ended with the program.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(stored) = self.archived.pop_front() {
                self.place = stored.sequence;
                return Some(Told::Event(stored));
            }
            let Some(told) = &mut self.told else {
                if let Err(error) = self.fetch().await {
                    tracing::warn!(
                        filter = self.filter,
                        error = &error as &dyn std::error::Error,
                        "the archive is not read now"
                    );
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                continue;
            };
            match told.next().await? {
                Told::Reconnected => return Some(Told::Reconnected),
                Told::Event(stored) if is_next(&self.log, self.place, &stored).await => {
                    self.place = stored.sequence;
                    return Some(Told::Event(stored));
                }
                Told::Event(_) => self.told = None,
            }
        }
    }

    /// Brings what the archive has, or else goes on in the broker.
    async fn fetch(&mut self) -> Result<(), ReadError> {
        loop {
            let look = self.log.look().await?;
            let page = self
                .log
                .read_archive(&look, &self.filter, self.place, PAGE_SIZE);
            let page = page.await?;
            if !page.is_empty() {
                self.archived = page.into();
                return Ok(());
            }
            self.place = self.place.max(look.floor() - 1);
            let from = From::After(self.place);
            let told = self.log.broker().follow(&self.filter, from).await?;
            if self.log.is_good(&look) {
                self.told = Some(told);
                return Ok(());
            }
        }
    }
}

/// Whether nothing can be missing between `place` and what the broker tells.
async fn is_next(log: &ArchivedLog, place: u64, stored: &StoredEvent) -> bool {
    if stored.sequence == place + 1 {
        return true;
    }
    log.look().await.is_ok_and(|look| look.floor() <= place + 1)
}
