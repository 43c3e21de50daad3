//! One pull: one request, answered with launches and an end, or with an end alone.
//!
//! The request is of the kind that waits for the first launch, then takes what else is there and
//! ends (`no_wait` with `expires`): nothing stays behind at the server that could take launches
//! for somebody who no longer listens. It has no heartbeats: with them the client library's own
//! pull misses launches.

use std::time::Duration;

use aod_domain::run::WorkPosition;
use aod_domain::subject::{Class, Label, Subject};
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

/// Names the stream and sequence that a message was sourced from.
const SOURCE: &str = "Nats-Stream-Source";

/// Pause before asking again when others have asked for all that is there.
const OTHERS_FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As asked: enough, or nothing more, or not in time.
    Regular,
    /// Others wait for what is there.
    OthersFirst,
    /// Nobody is there to answer: the queue was made anew, or its server is starting.
    NoConsumer,
}

pub(super) async fn pull(
    queue: &JetStreamWorkQueue,
    label: &Label,
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
        let left = deadline.saturating_duration_since(Instant::now());
        let (messages, end) =
            request(&queue.link, &consumer::name(label, class), max, left).await?;
        match end {
            End::OthersFirst if left > OTHERS_FIRST_PAUSE => sleep(OTHERS_FIRST_PAUSE).await,
            End::NoConsumer if is_consumer_made => return Err("the queue does not answer".into()),
            End::NoConsumer => {
                queue.open(label, class).await?;
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

async fn request(
    link: &Link,
    consumer: &str,
    max: usize,
    wait: Duration,
) -> Result<(Vec<Message>, End), BoxError> {
    let deadline = Instant::now() + wait + Duration::from_secs(ANSWER_SECONDS_MAX);
    let epoch = timeout_at(deadline, link.up()).await?;
    let inbox = link.client.new_inbox();
    let answers = link.client.subscribe(inbox.clone()).await?;
    let request = if wait.is_zero() {
        json!({"batch": max, "no_wait": true})
    } else {
        // The server counts in nanoseconds.
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
        // The server has forgotten the request: better ask anew than wait for its end.
        () = link.replaced(epoch) => End::Regular,
    };
    Ok((reception.keep(), end))
}

/// Launches on their way to a caller who may go away: what it has not kept is given back.
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
                code => Err(format!("the queue refuses: {code} {description}").into()),
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
        // Without a runtime the program ends: they come again after the lease time.
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

/// The launch in a message of the queue. One that cannot be read is left to come again: only a
/// person can tell what it is.
fn delivery(message: &Message, class: Class) -> Option<Delivery> {
    let acknowledge = message.reply.as_deref().unwrap_or_default();
    let read = read(message).and_then(|launch| of_launch(launch, acknowledge, class));
    if read.is_none() {
        tracing::error!(subject = %message.subject, "a message of the queue is no launch");
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

/// A launch of `class` that is to be acknowledged under `ack_subject`.
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
