//! Presence in a key-value bucket in the server's memory: `node.<id>`, `gateway.<id>`.
//!
//! A restarted server has lost the bucket; the next announcement creates it again.

use std::future::Future;
use std::time::Duration;

use aod_ports::BoxError;
use aod_ports::presence::{Member, Presence, PresenceError};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{HeaderMap, Request};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use crate::ANSWER_SECONDS_MAX;
use crate::batch;
use crate::config::StreamLimits;
use crate::link::{Link, Pauses};
use crate::streams::ensure::{Limits, ensure};
use crate::streams::{self, PRESENCE, PRESENCE_PREFIX};

/// Marks a key as removed. Source: ADR-8, the key-value layout on JetStream.
const OPERATION: &str = "KV-Operation";
const REMOVED: &str = "DEL";

/// Maximum number of members; far more than a thousand hosts have.
const MEMBERS_MAX: usize = 10_000;

/// Presence, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamPresence {
    link: Link,
    /// Limits of a new bucket; none if another program creates the bucket.
    limits: Option<StreamLimits>,
}

impl JetStreamPresence {
    pub(crate) fn new(link: Link, limits: Option<StreamLimits>) -> Self {
        Self { link, limits }
    }

    async fn store(
        &self,
        member: &Member,
        headers: HeaderMap,
        value: Bytes,
    ) -> Result<(), BoxError> {
        let request = Request::new().headers(headers).payload(value);
        let answer = self
            .link
            .client
            .send_request(subject(member), request)
            .await?;
        match serde_json::from_slice::<Response<PublishAck>>(&answer.payload)? {
            Response::Ok(_) => Ok(()),
            Response::Err { error } => Err(error.into()),
        }
    }

    /// Of several copies any may answer, so the answer must reach the leader's last message.
    async fn read(&self) -> Result<Vec<StreamMessage>, BoxError> {
        let filter = format!("{PRESENCE_PREFIX}.>");
        let bucket = self.link.context.get_stream_no_info(PRESENCE).await?;
        let mut pauses = Pauses::new();
        loop {
            let leader = batch::last_of_leader(&bucket, &filter).await;
            let leader = leader.map_err(|failure| failure.source)?;
            let messages = batch::read_once(&self.link, PRESENCE, &filter, MEMBERS_MAX).await;
            let messages = messages.map_err(|failure| failure.source)?;
            let sequence = |message: &StreamMessage| message.sequence;
            if messages.last().map(sequence) >= leader.as_ref().map(sequence) {
                return Ok(messages);
            }
            pauses.wait().await;
        }
    }

    /// Tries once, then creates a missing bucket and tries again, within the time limit of one answer: the
    /// next announcement follows soon.
    async fn promptly<T, F>(&self, attempt: impl Fn() -> F + Send) -> Result<T, PresenceError>
    where
        F: Future<Output = Result<T, BoxError>> + Send,
        T: Send,
    {
        let twice = async {
            match attempt().await {
                Ok(value) => Ok(value),
                Err(_) => {
                    if let Some(limits) = &self.limits {
                        ensure(&self.link, streams::presence(limits), Limits::Keep).await?;
                    }
                    attempt().await
                }
            }
        };
        timeout(Duration::from_secs(ANSWER_SECONDS_MAX), twice)
            .await
            .map_err(|elapsed| PresenceError(elapsed.into()))?
            .map_err(PresenceError)
    }
}

fn subject(member: &Member) -> String {
    match member {
        Member::Gateway(gateway) => {
            format!("{PRESENCE_PREFIX}.gateway.{}", gateway.gateway.token())
        }
        Member::Node(node) => format!("{PRESENCE_PREFIX}.node.{}", node.node.token()),
    }
}

/// The member in a message, if its key matches: rights on keys decide who may announce which member.
fn read_member(message: &StreamMessage) -> Option<Member> {
    let member: Member = serde_json::from_slice(&message.payload).ok()?;
    (subject(&member) == message.subject.as_str()).then_some(member)
}

#[async_trait]
impl Presence for JetStreamPresence {
    async fn announce(&self, member: &Member) -> Result<(), PresenceError> {
        let value = serde_json::to_vec(member).map_err(|error| PresenceError(error.into()))?;
        let value = Bytes::from(value);
        self.promptly(|| self.store(member, HeaderMap::new(), value.clone()))
            .await
    }

    async fn leave(&self, member: &Member) -> Result<(), PresenceError> {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, REMOVED);
        self.promptly(|| self.store(member, headers.clone(), Bytes::new()))
            .await
    }

    async fn members(&self) -> Result<Vec<Member>, PresenceError> {
        let messages = self.promptly(|| self.read()).await?;
        let present = messages
            .iter()
            .filter(|message| message.headers.get(OPERATION).is_none());
        Ok(present.filter_map(read_member).collect())
    }
}
