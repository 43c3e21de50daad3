//! Follows the log without a consumer: to make one is to be able to change another one's. The stream tells the place of
//! each event on a subject of its own; what is told is not kept, so it is looked all the same, now and then.

use std::collections::VecDeque;
use std::time::Duration;

use aod_ports::BoxError;
use aod_ports::event_log::{StoredEvent, Told};
use async_nats::{Message, Subscriber};
use futures::StreamExt as _;
use tokio::time::{Instant, sleep_until};

use super::{JetStreamEventLog, stored};
use crate::link::Pauses;
use crate::streams::told;

/// How often it is looked without being told.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Events read at a time.
const PAGE_SIZE: usize = 256;

/// A place in the log that moves on.
#[derive(Debug)]
pub(super) struct Watch {
    log: JetStreamEventLog,
    filter: String,
    /// Everything up to here is told, or read.
    after: u64,
    read: VecDeque<StoredEvent>,
    told: Subscriber,
    /// The connection that it is told on.
    epoch: u64,
    look: Look,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Something is told, or was not read yet.
    Now,
    /// Nothing is told.
    At(Instant),
}

impl Watch {
    /// Follows `filter` after `after`: what is stored from now on is not missed.
    pub(super) async fn open(
        log: &JetStreamEventLog,
        filter: &str,
        after: u64,
    ) -> Result<Self, BoxError> {
        let epoch = log.link.up().await;
        let told = log.link.client.subscribe(told(filter)).await?;
        Ok(Self {
            log: log.clone(),
            filter: filter.to_owned(),
            after,
            read: VecDeque::new(),
            told,
            epoch,
            look: Look::Now,
        })
    }

    /// The next event; waits for ever.
    pub(super) async fn next(&mut self) -> Told {
        let mut pauses = Pauses::new();
        loop {
            if let Some(event) = self.read.pop_front() {
                return Told::Event(event);
            }
            let Look::At(look_at) = self.look else {
                if let Err(error) = self.read_on().await {
                    tracing::warn!(error, filter = self.filter, "cannot follow; trying again");
                    pauses.wait().await;
                }
                continue;
            };
            let link = self.log.link.clone();
            tokio::select! {
                biased;
                () = link.replaced(self.epoch) => {
                    self.epoch = link.up().await;
                    self.look = Look::Now;
                    return Told::Reconnected;
                }
                Some(message) = self.told.next() => {
                    if place(&message).is_none_or(|place| place > self.after) {
                        self.look = Look::Now;
                    }
                }
                () = sleep_until(look_at) => self.skip().await,
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
            self.look = Look::At(Instant::now() + LOOK_EVERY);
        }
        self.read.extend(found.into_iter().map(stored));
        Ok(())
    }

    /// Reads what may have been missed, and then begins after the end of the log: what lies between is not searched
    /// again and again.
    async fn skip(&mut self) {
        self.look = Look::Now;
        let Ok(info) = self.log.info().await else {
            return;
        };
        if self.read_on().await.is_ok() && self.look != Look::Now {
            self.after = self.after.max(info.state.last_sequence);
        }
    }
}

/// The place in the log that is told.
fn place(message: &Message) -> Option<u64> {
    let header = message
        .headers
        .as_ref()?
        .get(async_nats::header::NATS_SEQUENCE)?;
    header.as_str().parse().ok()
}
