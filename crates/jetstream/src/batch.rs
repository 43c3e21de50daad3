//! Reads many messages of a stream with one request: a batched direct get.
//!
//! The server answers with the messages and an end, without a consumer. Any replica may answer, so on
//! replicated streams the answer may lag: callers that need the latest state compare with the leader.
//! Source: nats-server `server/stream.go`, `getDirectRequest`, and ADR-31.

use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{HeaderMap, Message, StatusCode, Subscriber};
use futures::StreamExt as _;
use serde_json::json;
use tokio::time::timeout;

use crate::ANSWER_SECONDS_MAX;
use crate::link::{Failure, Link};

/// Messages of one request: 8 MB of the largest events. More is not faster.
const PAGE_MESSAGES_MAX: usize = 256;

/// The filter for all messages: the server counts the remaining ones without the subjects.
const EVERYTHING: &str = ">";

/// Ends a batch. The client has no name for this code.
const END_OF_BATCH: u16 = 204;

/// All messages of `stream` under `filter` after sequence `after`, at most `limit`.
///
/// A request for more messages than exist makes the server search every block after the last match, and keep the
/// subjects of all these blocks in memory. So the first message returns the number of messages, which the server
/// knows without a search, and the next request asks for exactly this number. Source: nats-server
/// `server/filestore.go`, `LoadNextMsg` and `NumPending`.
pub(crate) async fn read(
    link: &Link,
    stream: &str,
    filter: &str,
    after: u64,
    limit: usize,
) -> Result<Vec<StreamMessage>, BoxError> {
    let mut messages = Vec::new();
    let mut next = after.saturating_add(1);
    let page = async |next: u64, count: usize| {
        link.patiently(|| read_page(link, stream, filter, next, count))
            .await
    };
    let mut left = u64::MAX;
    if filter != EVERYTHING && limit > 0 {
        let first = page(next, 1).await?;
        if first.left == 0 || limit == 1 {
            return Ok(first.messages);
        }
        left = first.left.saturating_add(1);
    }
    while messages.len() < limit && left > 0 {
        let room = (limit - messages.len()).min(PAGE_MESSAGES_MAX);
        let page = page(next, room.min(usize::try_from(left).unwrap_or(room))).await?;
        left = page.left;
        let Some(last) = page.messages.last() else {
            break;
        };
        next = last.sequence + 1;
        messages.extend(page.messages);
    }
    Ok(messages)
}

/// The first `limit` messages of `stream` under `filter`, in one attempt and one batch.
pub(crate) async fn read_once(
    link: &Link,
    stream: &str,
    filter: &str,
    limit: usize,
) -> Result<Vec<StreamMessage>, Failure> {
    Ok(read_page(link, stream, filter, 1, limit).await?.messages)
}

/// The last message of `stream` under `filter` from its leader, in one attempt.
pub(crate) async fn last_of_leader(
    stream: &Stream<()>,
    filter: &str,
) -> Result<Option<StreamMessage>, Failure> {
    let asked = stream.raw_message_builder().last_by_subject(filter);
    match asked.send().await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) if error.kind() == RawMessageErrorKind::InvalidSubject => {
            Err(Failure::last(error))
        }
        Err(error) => Err(Failure::transient(error)),
    }
}

struct Page {
    messages: Vec<StreamMessage>,
    /// Number of messages after these.
    left: u64,
}

async fn read_page(
    link: &Link,
    stream: &str,
    filter: &str,
    from_sequence: u64,
    count: usize,
) -> Result<Page, Failure> {
    let inbox = link.client.new_inbox();
    let mut answers = link
        .client
        .subscribe(inbox.clone())
        .await
        .map_err(Failure::transient)?;
    let request = json!({"seq": from_sequence, "next_by_subj": filter, "batch": count});
    link.client
        .publish_with_reply(
            format!("$JS.API.DIRECT.GET.{stream}"),
            inbox,
            request.to_string().into(),
        )
        .await
        .map_err(Failure::transient)?;
    collect(&mut answers, count).await
}

async fn collect(answers: &mut Subscriber, count: usize) -> Result<Page, Failure> {
    let mut messages: Vec<StreamMessage> = Vec::new();
    // The end marker follows the last message.
    for _ in 0..=count {
        let answer = timeout(Duration::from_secs(ANSWER_SECONDS_MAX), answers.next())
            .await
            .map_err(Failure::transient)?
            .ok_or_else(|| Failure::transient("the subscription has ended"))?;
        match answer.status.map(|status| status.as_u16()) {
            None => messages.push(StreamMessage::try_from(answer).map_err(Failure::last)?),
            Some(END_OF_BATCH) => return end(messages, &answer),
            Some(404) => {
                return Ok(Page { messages, left: 0 });
            }
            Some(_) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
                return Err(Failure::transient("the stream does not exist yet"));
            }
            Some(code) => {
                let description = answer.description.unwrap_or_default();
                return Err(Failure::last(format!(
                    "the broker rejects the read: {code} {description}"
                )));
            }
        }
    }
    Err(Failure::last("the broker sent too many messages"))
}

/// Checks the end marker, which names the last message, so that a lost message is detected.
fn end(messages: Vec<StreamMessage>, answer: &Message) -> Result<Page, Failure> {
    let headers = answer.headers.as_ref();
    let last_sequence = number(headers, "Nats-Last-Sequence");
    if messages.last().map(|message| message.sequence) != last_sequence {
        return Err(Failure::transient("messages of the batch were lost"));
    }
    let left = number(headers, "Nats-Num-Pending");
    Ok(Page {
        messages,
        // Without the number, the caller requests more.
        left: left.unwrap_or(u64::MAX),
    })
}

fn number(headers: Option<&HeaderMap>, name: &str) -> Option<u64> {
    headers?.get(name)?.as_str().parse().ok()
}
