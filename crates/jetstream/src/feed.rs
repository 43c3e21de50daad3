//! Ends of runs, distributed to all receivers through one durable consumer of the log.

use std::time::Duration;

use aod_domain::subject::{self, Subject};
use aod_ports::BoxError;
use aod_ports::feed::{Feed, FeedError, GIVEN_FOR, Given};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_trait::async_trait;
use futures::StreamExt as _;
use jiff::Timestamp;

use crate::link::{Failure, Link};
use crate::streams::EVENTS;
use crate::work_queue::{DONE, not_now};

/// Maximum wait of a request for its first end.
const WAIT: Duration = Duration::from_secs(5);

/// Time limit of a whole request: a request on a lost connection is never answered.
const PATIENCE: Duration = Duration::from_secs(60);

/// Without a limit: an end that cannot be handled today is delivered tomorrow.
const DELIVERIES_UNLIMITED: i64 = -1;

/// Maximum number of delivered and unacknowledged ends of all receivers.
const GIVEN_MAX: i64 = 10_000;

/// The ends of runs under one name, on one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JetStreamFeed {
    link: Link,
    name: &'static str,
}

impl JetStreamFeed {
    pub(crate) async fn open(link: Link, name: &'static str) -> Result<Self, BoxError> {
        let feed = Self { link, name };
        feed.consumer().await?;
        Ok(feed)
    }

    fn config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.name.to_owned()),
            filter_subject: subject::RESULTS.to_owned(),
            deliver_policy: DeliverPolicy::New,
            ack_policy: AckPolicy::Explicit,
            ack_wait: GIVEN_FOR,
            max_deliver: DELIVERIES_UNLIMITED,
            max_ack_pending: GIVEN_MAX,
            ..pull::Config::default()
        }
    }

    /// The consumer, created if missing.
    async fn consumer(&self) -> Result<Consumer<pull::Config>, BoxError> {
        let wanted = self.config();
        self.link
            .patiently(|| async {
                let context = &self.link.context;
                let stream = context.get_stream_no_info(EVENTS).await;
                let stream = stream.map_err(Failure::transient)?;
                let made = stream.get_or_create_consumer(self.name, wanted.clone());
                made.await.map_err(Failure::transient)
            })
            .await
    }

    async fn fetch(&self, max: usize) -> Result<Vec<Given>, BoxError> {
        let consumer = self.consumer().await?;
        let asked = consumer.fetch().max_messages(max);
        // The request waits only for the first message; other available ones follow immediately.
        let mut messages = asked.messages().await?;
        let mut given = Vec::new();
        while let Some(message) = messages.next().await {
            given.extend(read(&message?));
        }
        if !given.is_empty() {
            return Ok(given);
        }
        let asked = consumer.batch().max_messages(1).expires(WAIT);
        let mut messages = asked.messages().await?;
        match messages.next().await {
            Some(message) => Ok(read(&message?).into_iter().collect()),
            None => Ok(Vec::new()),
        }
    }

    async fn say(&self, given: &Given, what: String) -> Result<(), FeedError> {
        let (receipt, what) = (given.receipt.clone(), what.into());
        let said = self.link.client.publish(receipt, what).await;
        said.map_err(|error| FeedError(error.into()))
    }
}

fn read(message: &Message) -> Option<Given> {
    let run = Subject::run_of(&message.subject)?;
    let published = message.info().ok()?.published;
    Some(Given {
        run,
        stored_at: Timestamp::from_nanosecond(published.unix_timestamp_nanos()).ok()?,
        receipt: message.reply.as_ref()?.to_string(),
    })
}

#[async_trait]
impl Feed for JetStreamFeed {
    async fn next(&self, max: usize) -> Result<Vec<Given>, FeedError> {
        let fetched = tokio::time::timeout(PATIENCE, self.fetch(max)).await;
        let silent = || FeedError("the broker did not answer in time".into());
        fetched.map_err(|_| silent())?.map_err(FeedError)
    }

    async fn done(&self, given: &Given) -> Result<(), FeedError> {
        self.say(given, DONE.to_owned()).await
    }

    async fn again(&self, given: &Given, pause: Duration) -> Result<(), FeedError> {
        self.say(given, not_now(pause)).await
    }
}
