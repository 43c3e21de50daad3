//! A subscription that reads from the archive, then from the broker, and from the archive again when it falls behind.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use aod_ports::event_log::{Followed, From, ReadError, StoredEvent};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::log::ArchivedLog;

/// Events per read of the archive.
const PAGE_SIZE: usize = 1_000;

/// Pause before the archive or the broker is read again after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Follower {
    log: ArchivedLog,
    filter: String,
    /// The last event that was delivered or does not match the filter.
    place: u64,
    archived: VecDeque<StoredEvent>,
    followed: Option<BoxStream<'static, Followed>>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} after {}", self.filter, self.place)
    }
}

impl Follower {
    /// Follows from the event after `after`; misses no event that is stored after this returns.
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
            followed: None,
        };
        follower.fetch().await?;
        Ok(follower)
    }

    /// The next message; none when the broker's log has ended with the program.
    pub(crate) async fn next(&mut self) -> Option<Followed> {
        loop {
            if let Some(stored) = self.archived.pop_front() {
                self.place = stored.sequence;
                return Some(Followed::Event(stored));
            }
            let Some(followed) = &mut self.followed else {
                if let Err(error) = self.fetch().await {
                    tracing::warn!(
                        filter = self.filter,
                        error = &error as &dyn std::error::Error,
                        "cannot read the archive; retrying"
                    );
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                continue;
            };
            match followed.next().await? {
                Followed::Reconnected => return Some(Followed::Reconnected),
                Followed::Event(stored) if is_next(&self.log, self.place, &stored).await => {
                    self.place = stored.sequence;
                    return Some(Followed::Event(stored));
                }
                Followed::Event(_) => self.followed = None,
            }
        }
    }

    /// Reads the next events of the archive, or continues in the broker.
    async fn fetch(&mut self) -> Result<(), ReadError> {
        loop {
            let snapshot = self.log.snapshot().await?;
            let page = self
                .log
                .read_archive(&snapshot, &self.filter, self.place, PAGE_SIZE);
            let page = page.await?;
            if !page.is_empty() {
                self.archived = page.into();
                return Ok(());
            }
            self.place = self.place.max(snapshot.floor() - 1);
            let from = From::After(self.place);
            let followed = self.log.broker().follow(&self.filter, from).await?;
            if self.log.is_good(&snapshot) {
                self.followed = Some(followed);
                return Ok(());
            }
        }
    }
}

/// Whether no event between `place` and the broker's `stored` can be missing.
async fn is_next(log: &ArchivedLog, place: u64, stored: &StoredEvent) -> bool {
    if stored.sequence == place + 1 {
        return true;
    }
    log.snapshot()
        .await
        .is_ok_and(|snapshot| snapshot.floor() <= place + 1)
}
