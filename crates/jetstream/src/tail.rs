//! Follows a stream: what is stored, then what comes, each message once and in order, across lost
//! connections and killed servers.
//!
//! A push consumer without acknowledgements, held in the server's memory: deliveries are numbered,
//! so that a gap shows, and heartbeats show when the consumer is gone. Whatever goes wrong, a new
//! consumer begins after the last message seen. (The client library's own ordered consumer begins
//! with the whole stream again when it is interrupted before its first message.)
//!
//! The consumer has a name, with the filter at the end of the subject that makes it: permissions
//! can then tell what may be followed.

use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::{Message, StatusCode, Subscriber};
use futures::StreamExt as _;
use tokio::time::timeout;
use uuid::Uuid;

use crate::ack_subject::AckSubject;
use crate::link::{Failure, Link, Pauses};

/// How often an idle consumer is heard of.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Silence after which the consumer is taken for gone: three heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How long the server keeps a consumer that nobody listens to.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message {
        sequence: u64,
        message: Message,
    },
    /// The consumer was made anew; nothing was missed.
    Reopened,
}

/// A place in a stream that moves on.
#[derive(Debug)]
pub(crate) struct Tail {
    link: Link,
    stream: &'static str,
    filter: String,
    /// The sequence of the last message seen; the next consumer begins after it.
    last_seen: u64,
    consumer: Option<Consumer>,
}

#[derive(Debug)]
struct Consumer {
    deliveries: Subscriber,
    /// Number of the last delivery.
    delivered: u64,
    /// The connection it was made on.
    epoch: u64,
}

/// What one delivery means.
enum Step {
    Message {
        sequence: u64,
        message: Message,
    },
    /// A sign of life; the subject is to be answered, if there is one.
    Alive {
        answer_to: Option<String>,
    },
    Gone(&'static str),
}

impl Tail {
    /// Follows `stream` under `filter` after sequence `after`, 0 for everything. Returns once the
    /// server has the consumer: what is stored from now on is not missed.
    pub(crate) async fn open(
        link: &Link,
        stream: &'static str,
        filter: &str,
        after: u64,
    ) -> Result<Self, BoxError> {
        let mut tail = Self {
            link: link.clone(),
            stream,
            filter: filter.to_owned(),
            last_seen: after,
            consumer: None,
        };
        tail.consumer = Some(link.patiently(|| tail.make_consumer()).await?);
        Ok(tail)
    }

    /// The next message; waits for ever. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Arrival {
        loop {
            let Some(consumer) = &mut self.consumer else {
                self.reopen().await;
                return Arrival::Reopened;
            };
            let step = tokio::select! {
                biased;
                delivery = timeout(SILENCE_MAX, consumer.deliveries.next()) => match delivery {
                    Ok(Some(message)) => consumer.take(message),
                    Ok(None) => Step::Gone("its subscription has ended"),
                    Err(_) => Step::Gone("its heartbeats are missing"),
                },
                () = self.link.replaced(consumer.epoch) => Step::Gone("the connection was lost"),
            };
            match step {
                // An earlier consumer was told of the same message.
                Step::Message { sequence, .. } if sequence <= self.last_seen => (),
                Step::Message { sequence, message } => {
                    self.last_seen = sequence;
                    return Arrival::Message { sequence, message };
                }
                Step::Alive { answer_to: None } => (),
                Step::Alive {
                    answer_to: Some(subject),
                } => {
                    // If it gets lost the consumer stalls, and its heartbeats ask again.
                    let _ = self.link.client.publish(subject, bytes::Bytes::new()).await;
                }
                Step::Gone(reason) => {
                    tracing::info!(
                        stream = self.stream,
                        filter = self.filter,
                        reason,
                        "following anew"
                    );
                    self.consumer = None;
                }
            }
        }
    }

    /// Makes another consumer, however long it takes.
    async fn reopen(&mut self) {
        let mut pauses = Pauses::new();
        loop {
            match self.link.patiently(|| self.make_consumer()).await {
                Ok(consumer) => {
                    self.consumer = Some(consumer);
                    return;
                }
                Err(error) => {
                    tracing::warn!(error, stream = self.stream, "cannot follow; trying again");
                    pauses.wait().await;
                }
            }
        }
    }

    async fn make_consumer(&self) -> Result<Consumer, Failure> {
        let epoch = self.link.up().await;
        let inbox = self.link.client.new_inbox();
        let deliveries = self
            .link
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(Failure::transient)?;
        let config = push::Config {
            deliver_subject: inbox,
            name: Some(format!("{}-{}", self.link.name, Uuid::now_v7().simple())),
            filter_subject: self.filter.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.last_seen.saturating_add(1),
            },
            ack_policy: AckPolicy::None,
            max_deliver: 1,
            flow_control: true,
            idle_heartbeat: HEARTBEAT,
            inactive_threshold: ABANDONED_AFTER,
            num_replicas: 1,
            memory_storage: true,
            ..push::Config::default()
        };
        self.link
            .context
            .create_consumer_on_stream(config, self.stream)
            .await
            .map_err(Failure::transient)?;
        Ok(Consumer {
            deliveries,
            delivered: 0,
            epoch,
        })
    }
}

impl Consumer {
    fn take(&mut self, message: Message) -> Step {
        match message.status {
            None => self.take_delivery(message),
            Some(StatusCode::IDLE_HEARTBEAT) => self.take_heartbeat(&message),
            Some(_) => Step::Gone("the server has ended it"),
        }
    }

    fn take_delivery(&mut self, message: Message) -> Step {
        let Some(place) = message.reply.as_deref().and_then(AckSubject::parse) else {
            return Step::Gone("a delivery does not tell its place");
        };
        if place.consumer_sequence != self.delivered + 1 {
            return Step::Gone("a delivery is missing");
        }
        self.delivered = place.consumer_sequence;
        Step::Message {
            sequence: place.stream_sequence,
            message,
        }
    }

    /// Heartbeats tell the last delivery, and where a consumer that waits for its window to be
    /// confirmed wants to be answered; requests to confirm come with a reply subject.
    fn take_heartbeat(&self, message: &Message) -> Step {
        let header = |name| message.headers.as_ref()?.get(name).map(ToString::to_string);
        if let Some(reply) = &message.reply {
            return Step::Alive {
                answer_to: Some(reply.to_string()),
            };
        }
        let last_delivery = header("Nats-Last-Consumer").and_then(|text| text.parse::<u64>().ok());
        if last_delivery.is_some_and(|last| last != self.delivered) {
            return Step::Gone("deliveries are missing");
        }
        Step::Alive {
            answer_to: header("Nats-Consumer-Stalled"),
        }
    }
}
