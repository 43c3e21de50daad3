//! Follows the log without a consumer, because the right to create consumers includes the right to change
//! existing ones. The stream announces the sequence of each event on a separate subject. Announcements are not
//! stored, so the watch also polls.

use std::collections::VecDeque;
use std::time::Duration;

use aod_ports::BoxError;
use aod_ports::event_log::{Followed, StoredEvent};
use async_nats::{Message, Subscriber};
use futures::StreamExt as _;
use tokio::time::{Instant, sleep_until};

use super::{JetStreamEventLog, stored};
use crate::link::Pauses;
use crate::streams::announced;

/// Interval of polls without an announcement.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Events read at a time.
const PAGE_SIZE: usize = 256;

/// A position in the log.
#[derive(Debug)]
pub(super) struct Watch {
    log: JetStreamEventLog,
    filter: String,
    /// The last sequence that is read or known.
    after: u64,
    read: VecDeque<StoredEvent>,
    followed: Subscriber,
    /// The connection of the announcements.
    epoch: u64,
    poll: Poll,
}

/// The next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    /// An announcement has arrived, or the last page was full.
    Now,
    /// No announcement has arrived.
    At(Instant),
}

impl Watch {
    /// Follows `filter` after `after`; misses no event that is stored from now on.
    pub(super) async fn open(
        log: &JetStreamEventLog,
        filter: &str,
        after: u64,
    ) -> Result<Self, BoxError> {
        let epoch = log.link.up().await;
        let followed = log.link.client.subscribe(announced(filter)).await?;
        Ok(Self {
            log: log.clone(),
            filter: filter.to_owned(),
            after,
            read: VecDeque::new(),
            followed,
            epoch,
            poll: Poll::Now,
        })
    }

    /// The next event; waits without limit.
    pub(super) async fn next(&mut self) -> Followed {
        let mut pauses = Pauses::new();
        loop {
            if let Some(event) = self.read.pop_front() {
                return Followed::Event(event);
            }
            let Poll::At(poll_at) = self.poll else {
                if let Err(error) = self.read_on().await {
                    tracing::warn!(error, filter = self.filter, "cannot follow; retrying");
                    pauses.wait().await;
                }
                continue;
            };
            let link = self.log.link.clone();
            tokio::select! {
                biased;
                () = link.replaced(self.epoch) => {
                    self.epoch = link.up().await;
                    self.poll = Poll::Now;
                    return Followed::Reconnected;
                }
                Some(message) = self.followed.next() => {
                    if place(&message).is_none_or(|place| place > self.after) {
                        self.poll = Poll::Now;
                    }
                }
                () = sleep_until(poll_at) => self.skip().await,
            }
        }
    }

    async fn read_on(&mut self) -> Result<(), BoxError> {
        let found = self
            .log
            .read_from_leader(&self.filter, self.after, PAGE_SIZE);
        let found = found.await?;
        if let Some(last) = found.last() {
            self.after = last.sequence;
        }
        if found.len() < PAGE_SIZE {
            self.poll = Poll::At(Instant::now() + POLL_INTERVAL);
        }
        self.read.extend(found.into_iter().map(stored));
        Ok(())
    }

    /// Reads missed events, then continues after the end of the log, so that the next poll does not search the same
    /// events.
    async fn skip(&mut self) {
        self.poll = Poll::Now;
        let Ok(info) = self.log.info().await else {
            return;
        };
        if self.read_on().await.is_ok() && self.poll != Poll::Now {
            self.after = self.after.max(info.state.last_sequence);
        }
    }
}

/// The sequence in an announcement.
fn place(message: &Message) -> Option<u64> {
    let header = message
        .headers
        .as_ref()?
        .get(async_nats::header::NATS_SEQUENCE)?;
    header.as_str().parse().ok()
}
