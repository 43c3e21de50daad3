//! Follows a stream: stored messages, then new ones, each message once and in order, across lost
//! connections and killed servers.
//!
//! Uses a push consumer without acknowledgements in the server's memory: deliveries are numbered, so a
//! gap is detected, and missing heartbeats reveal a lost consumer. After any failure, a new consumer
//! begins after the last seen message. (The client library's own ordered consumer starts the whole
//! stream again if it is interrupted before its first message.)
//!
//! The consumer has a name, and the subject that creates it ends with the filter, so that permissions
//! can restrict the filter.

use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::{Message, StatusCode, Subscriber};
use futures::StreamExt as _;
use tokio::time::timeout;
use uuid::Uuid;

use crate::ack_subject::AckSubject;
use crate::link::{Failure, Link, Pauses};

/// Interval of heartbeats of an idle consumer.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Silence after which the consumer counts as lost: three heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Time that the server keeps a consumer without a listener.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// The next step of a follower.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message {
        sequence: u64,
        message: Message,
    },
    /// A new consumer was created; no message was missed.
    Reopened,
}

/// A position in a stream.
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
    /// The connection of the consumer.
    epoch: u64,
}

/// The meaning of one delivery.
enum Step {
    Message {
        sequence: u64,
        message: Message,
    },
    /// A sign of life, with the subject of an answer if the server requests one.
    Alive {
        answer_to: Option<String>,
    },
    Gone(&'static str),
}

impl Tail {
    /// Follows `stream` under `filter` after sequence `after`, 0 for everything. Returns after the server
    /// has created the consumer: misses no message that is stored from now on.
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

    /// The next message; waits without limit. Cancel-safe.
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
                // An earlier consumer has delivered the same message.
                Step::Message { sequence, .. } if sequence <= self.last_seen => (),
                Step::Message { sequence, message } => {
                    self.last_seen = sequence;
                    return Arrival::Message { sequence, message };
                }
                Step::Alive { answer_to: None } => (),
                Step::Alive {
                    answer_to: Some(subject),
                } => {
                    // If the answer is lost, the consumer stalls and its heartbeats request another answer.
                    let _ = self.link.client.publish(subject, bytes::Bytes::new()).await;
                }
                Step::Gone(reason) => {
                    tracing::info!(
                        stream = self.stream,
                        filter = self.filter,
                        reason,
                        "following with a new consumer"
                    );
                    self.consumer = None;
                }
            }
        }
    }

    /// Creates another consumer; retries without limit.
    async fn reopen(&mut self) {
        let mut pauses = Pauses::new();
        loop {
            match self.link.patiently(|| self.make_consumer()).await {
                Ok(consumer) => {
                    self.consumer = Some(consumer);
                    return;
                }
                Err(error) => {
                    tracing::warn!(error, stream = self.stream, "cannot follow; retrying");
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
            Some(_) => Step::Gone("the server has ended the consumer"),
        }
    }

    fn take_delivery(&mut self, message: Message) -> Step {
        let Some(place) = message.reply.as_deref().and_then(AckSubject::parse) else {
            return Step::Gone("a delivery has no sequence");
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

    /// Heartbeats contain the last delivery, and the reply subject of a consumer that waits for the
    /// confirmation of its window; confirmation requests have a reply subject.
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
