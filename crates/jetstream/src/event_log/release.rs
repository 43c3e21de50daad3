//! Releases the oldest events from the stream. The stream allows neither a purge nor a deletion. A temporary
//! limit on the age of messages removes them; the stream has no such limit at any other time.

use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::link::{Failure, Link};
use crate::streams::{DUPLICATE_WINDOW, EVENTS};

/// Safety margin of the age: more than the difference of the servers' clocks and the duration of the request.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// The server's information about a stream, as far as necessary.
#[derive(Debug, Deserialize)]
struct Info {
    /// The server's clock.
    ts: Timestamp,
    config: Value,
    state: State,
}

#[derive(Debug, Deserialize)]
struct State {
    first_seq: u64,
    first_ts: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Got {
    message: Stored,
}

#[derive(Debug, Deserialize)]
struct Stored {
    /// Time when the server stored the message.
    time: Timestamp,
}

/// Releases the events before `sequence` whose age distinguishes them from later events.
pub(super) async fn release_before(link: &Link, sequence: u64) -> Result<(), BoxError> {
    let info: Info = request(link, &format!("STREAM.INFO.{EVENTS}"), &json!({})).await?;
    // A program that ended during a release left its limit.
    if info.config["max_age"].as_u64().is_some_and(|age| age > 0) {
        limit_age(link, &info.config, Duration::ZERO).await?;
    }
    if info.state.first_seq >= sequence {
        return Ok(());
    }
    let subject = format!("STREAM.MSG.GET.{EVENTS}");
    let kept: Got = request(link, &subject, &json!({"seq": sequence})).await?;
    let age = info.ts.duration_since(kept.message.time) + SLACK;
    let age = Duration::try_from(age)
        .unwrap_or_default()
        .max(DUPLICATE_WINDOW);
    let oldest = Duration::try_from(info.ts.duration_since(info.state.first_ts));
    if oldest.unwrap_or_default() <= age {
        return Ok(());
    }
    let limited = limit_age(link, &info.config, age).await;
    limit_age(link, &info.config, Duration::ZERO).await?;
    limited
}

/// Sets the maximum age; the server answers after it has removed older messages.
async fn limit_age(link: &Link, config: &Value, age: Duration) -> Result<(), BoxError> {
    let mut config = config.clone();
    config["max_age"] = json!(u64::try_from(age.as_nanos())?);
    let subject = format!("STREAM.UPDATE.{EVENTS}");
    request::<Value>(link, &subject, &config).await.map(drop)
}

async fn request<T: DeserializeOwned>(
    link: &Link,
    subject: &str,
    payload: &Value,
) -> Result<T, BoxError> {
    link.patiently(|| async move {
        match link.context.request(subject.to_owned(), payload).await {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(Failure::last(error)),
            Err(error) => Err(Failure::transient(error)),
        }
    })
    .await
}
