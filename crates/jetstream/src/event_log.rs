//! The log on the stream `EVENTS`.
//!
//! This module reads only from the stream: a plain subscription on its subjects would also see appends
//! that the guard rejected.

mod append;
mod release;
mod watch;

use aod_domain::subject;
use aod_ports::BoxError;
use aod_ports::event_log::{Append, EventLog, Fill, Followed, From, ReadError, StoredEvent, Tried};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Info, Stream};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::Instant;

use crate::batch;
use crate::link::{Failure, Link, Pauses};
use crate::streams::EVENTS;
use crate::tail::{Arrival, Tail};

use self::watch::Watch;

/// The log of all events, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamEventLog {
    link: Link,
    stream: Stream<()>,
    is_replicated: bool,
    /// Whether subscriptions may create consumers.
    makes_consumers: bool,
}

impl JetStreamEventLog {
    pub(crate) fn new(
        link: Link,
        stream: Stream<()>,
        is_replicated: bool,
        makes_consumers: bool,
    ) -> Self {
        Self {
            link,
            stream,
            is_replicated,
            makes_consumers,
        }
    }

    /// The last message under `filter`, from the leader.
    async fn last(&self, filter: &str) -> Result<Option<StreamMessage>, BoxError> {
        self.link
            .patiently(|| batch::last_of_leader(&self.stream, filter))
            .await
    }

    /// The messages under `filter` after `after`. Of several copies any may have answered, so the answer
    /// must reach the last message of the leader.
    async fn read_from_leader(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StreamMessage>, BoxError> {
        // The server counts the remaining messages for each page: subject by subject, unless the filter is `>`.
        // Source: nats-server `server/filestore.go`, `NumPending`.
        let filter = if filter == subject::ALL { ">" } else { filter };
        let mut messages = batch::read(&self.link, EVENTS, filter, after, limit).await?;
        if !self.is_replicated || messages.len() >= limit {
            return Ok(messages);
        }
        let leader = self
            .last(filter)
            .await?
            .map_or(0, |message| message.sequence);
        let mut pauses = Pauses::new();
        loop {
            let reached = messages.last().map_or(after, |message| message.sequence);
            if reached >= leader || messages.len() >= limit {
                return Ok(messages);
            }
            if pauses.is_over() {
                return Err("the replicas lag behind their leader".into());
            }
            pauses.wait().await;
            let room = limit - messages.len();
            messages.extend(batch::read(&self.link, EVENTS, filter, reached, room).await?);
        }
    }

    async fn info(&self) -> Result<Info, BoxError> {
        self.link
            .patiently(|| async {
                let subject = format!("STREAM.INFO.{EVENTS}");
                match self.link.context.request(subject, &()).await {
                    Ok(Response::Ok(info)) => Ok(info),
                    Ok(Response::Err { error }) => Err(Failure::transient(error)),
                    Err(error) => Err(Failure::transient(error)),
                }
            })
            .await
    }
}

pub(crate) fn stored(message: StreamMessage) -> StoredEvent {
    StoredEvent {
        sequence: message.sequence,
        subject: message.subject.to_string(),
        bytes: message.payload,
    }
}

fn read_error(what: &str) -> impl FnOnce(BoxError) -> ReadError + '_ {
    |source| ReadError {
        what: what.to_owned(),
        source,
    }
}

#[async_trait]
impl EventLog for JetStreamEventLog {
    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried {
        append::try_append(&self.link, append, deadline).await
    }

    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError> {
        append::first_after(&self.link, &self.stream, filter, sequence).await
    }

    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let messages = self
            .read_from_leader(filter, after, limit)
            .await
            .map_err(read_error(filter))?;
        Ok(messages.into_iter().map(stored).collect())
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        Ok(self
            .last(filter)
            .await
            .map_err(read_error(filter))?
            .map(stored))
    }

    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError> {
        let after = match from {
            From::After(sequence) => sequence,
            From::Now => {
                self.info()
                    .await
                    .map_err(read_error(filter))?
                    .state
                    .last_sequence
            }
        };
        if !self.makes_consumers {
            let watch = Watch::open(self, filter, after).await;
            let watch = watch.map_err(read_error(filter))?;
            let followed = stream::unfold(watch, |mut watch| async {
                Some((watch.next().await, watch))
            });
            return Ok(followed.boxed());
        }
        let tail = Tail::open(&self.link, EVENTS, filter, after)
            .await
            .map_err(read_error(filter))?;
        let followed = stream::unfold(tail, |mut tail| async {
            let followed = match tail.next().await {
                Arrival::Message { sequence, message } => Followed::Event(StoredEvent {
                    sequence,
                    subject: message.subject.to_string(),
                    bytes: message.payload,
                }),
                Arrival::Reopened => Followed::Reconnected,
            };
            Some((followed, tail))
        });
        Ok(followed.boxed())
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        let info = self.info().await.map_err(read_error("the fill level"))?;
        Ok(Fill {
            bytes: info.state.bytes,
            bytes_max: u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX),
            last_sequence: info.state.last_sequence,
        })
    }

    async fn release_before(&self, sequence: u64) -> Result<(), ReadError> {
        let released = release::release_before(&self.link, sequence).await;
        released.map_err(read_error("the events to release"))
    }
}
