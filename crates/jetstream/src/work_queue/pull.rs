//! One pull: one request, answered with launches and an end, or with only an end.
//!
//! The request waits for the first launch, then takes the other available launches and ends (`no_wait`
//! with `expires`): no request stays on the server that could take launches for a receiver that no
//! longer listens. The request has no heartbeats: with heartbeats the client library's own pull misses
//! launches.

use std::time::Duration;

use aod_domain::run::WorkPosition;
use aod_domain::subject::{Class, Pool, Subject};
use aod_ports::BoxError;
use aod_ports::event_log::StoredEvent;
use aod_ports::work_queue::Delivery;
use async_nats::{Client, Message, Subscriber};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::{JetStreamWorkQueue, NOT_NOW, consumer};
use crate::ANSWER_SECONDS_MAX;
use crate::ack_subject::AckSubject;
use crate::link::Link;
use crate::streams::{EVENTS, WORK};

/// The stream and sequence of a sourced message.
const SOURCE: &str = "Nats-Stream-Source";

/// Pause before the next request when other nodes have requested all available launches.
const QUEUED_PAUSE: Duration = Duration::from_millis(20);

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Regular: the requested number, no more launches, or the time limit.
    Regular,
    /// Earlier requests wait for the available launches.
    OthersFirst,
    /// No consumer answers: the queue was rebuilt, or its server is starting.
    NoConsumer,
}

pub(super) async fn pull(
    queue: &JetStreamWorkQueue,
    pool: &Pool,
    class: Class,
    max: usize,
    wait: Duration,
) -> Result<Vec<Delivery>, BoxError> {
    if max == 0 {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + wait;
    let mut is_consumer_made = false;
    loop {
        let epoch = timeout_at(deadline, queue.link.up()).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let consumer = consumer::name(pool, class);
        let (messages, end) = request(&queue.link, &consumer, max, left, epoch).await?;
        match end {
            End::OthersFirst if left > QUEUED_PAUSE => sleep(QUEUED_PAUSE).await,
            End::NoConsumer if is_consumer_made => {
                return Err("the queue of launches does not respond".into());
            }
            End::NoConsumer => {
                queue.open(pool, class).await?;
                is_consumer_made = true;
            }
            End::Regular | End::OthersFirst => {
                return Ok(messages
                    .iter()
                    .filter_map(|message| delivery(message, class))
                    .collect());
            }
        }
    }
}

/// Requests launches on the connection `epoch`.
async fn request(
    link: &Link,
    consumer: &str,
    max: usize,
    wait: Duration,
    epoch: u64,
) -> Result<(Vec<Message>, End), BoxError> {
    let deadline = Instant::now() + wait + Duration::from_secs(ANSWER_SECONDS_MAX);
    let inbox = link.client.new_inbox();
    let answers = link.client.subscribe(inbox.clone()).await?;
    let request = if wait.is_zero() {
        json!({"batch": max, "no_wait": true})
    } else {
        // In nanoseconds.
        let expires = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        json!({"batch": max, "no_wait": true, "expires": expires})
    };
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{WORK}.{consumer}");
    link.client
        .publish_with_reply(subject, inbox, request.to_string().into())
        .await?;
    let mut reception = Reception {
        client: link.client.clone(),
        answers,
        taken: Vec::new(),
    };
    let end = tokio::select! {
        end = reception.receive(max, deadline) => end?,
        // The server has lost the request: send a new one instead of waiting for its end.
        () = link.replaced(epoch) => End::Regular,
    };
    Ok((reception.keep(), end))
}

/// Launches for a caller that may drop the pull: returns launches that the caller has not kept to the queue.
struct Reception {
    client: Client,
    answers: Subscriber,
    taken: Vec<Message>,
}

impl Reception {
    async fn receive(&mut self, max: usize, deadline: Instant) -> Result<End, BoxError> {
        while self.taken.len() < max {
            let answer = match timeout_at(deadline, self.answers.next()).await {
                Ok(answer) => answer.ok_or("the subscription has ended")?,
                Err(_) if !self.taken.is_empty() => return Ok(End::Regular),
                Err(elapsed) => return Err(elapsed.into()),
            };
            let Some(status) = answer.status else {
                self.taken.push(answer);
                continue;
            };
            let description = answer.description.unwrap_or_default();
            return match status.as_u16() {
                _ if !self.taken.is_empty() => Ok(End::Regular),
                408 if description.contains("Requests Pending") => Ok(End::OthersFirst),
                404 | 408 => Ok(End::Regular),
                503 => Ok(End::NoConsumer),
                code => Err(format!("the queue rejects the request: {code} {description}").into()),
            };
        }
        Ok(End::Regular)
    }

    fn keep(mut self) -> Vec<Message> {
        std::mem::take(&mut self.taken)
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        while let Some(Some(answer)) = self.answers.next().now_or_never() {
            self.taken.push(answer);
        }
        let unseen: Vec<_> = self
            .taken
            .drain(..)
            .filter_map(|message| message.reply)
            .collect();
        if unseen.is_empty() {
            return;
        }
        // Without a runtime the program ends; the queue delivers the launches again after the lease time.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let client = self.client.clone();
        runtime.spawn(async move {
            for reply in unseen {
                let _ = client.publish(reply, NOT_NOW.into()).await;
            }
        });
    }
}

/// The launch in a message of the queue. An invalid message stays in the queue, for an operator to
/// inspect.
fn delivery(message: &Message, class: Class) -> Option<Delivery> {
    let acknowledge = message.reply.as_deref().unwrap_or_default();
    let read = read(message).and_then(|launch| of_launch(launch, acknowledge, class));
    if read.is_none() {
        tracing::error!(subject = %message.subject, "a message of the queue is not a valid launch");
    }
    read
}

/// The launch in a message of the queue.
fn read(message: &Message) -> Option<StoredEvent> {
    let mut source = message.headers.as_ref()?.get(SOURCE)?.as_str().split(' ');
    let sequence = (source.next()? == EVENTS)
        .then(|| source.next())??
        .parse()
        .ok()?;
    Some(StoredEvent {
        sequence,
        subject: message.subject.to_string(),
        bytes: message.payload.clone(),
    })
}

/// A launch of `class` with the acknowledgement subject `ack_subject`.
pub(super) fn of_launch(launch: StoredEvent, ack_subject: &str, class: Class) -> Option<Delivery> {
    let place = AckSubject::parse(ack_subject)?;
    let is_launch = Subject::is_launch(&launch.subject);
    let is_of_class = launch.subject.rsplit('.').next() == Some(&class.to_string());
    (is_launch && is_of_class).then_some(())?;
    Some(Delivery {
        run: Subject::run_of(&launch.subject)?,
        class,
        position: WorkPosition {
            queue_created_ms: place.stored_nanoseconds / 1_000_000,
            sequence: place.stream_sequence,
            delivery: place.delivery,
        },
        ack_subject: ack_subject.to_owned(),
        launch,
    })
}
