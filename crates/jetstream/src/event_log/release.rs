//! Lets go of the oldest events. The stream can neither be purged nor can messages be deleted; what makes them
//! go is their age, which has a limit for the moment that this takes, and none at any other time: so nothing goes
//! while nobody looks.

use std::time::Duration;

use aod_ports::BoxError;
use async_nats::jetstream::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::link::{Failure, Link};
use crate::streams::{DUPLICATE_WINDOW, EVENTS};

/// How much younger than needed events stay all the same: clocks of servers that have copies are not further apart,
/// and the limit is not on its way for so long.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// What the server says of a stream, as far as this needs it.
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
    /// When the server stored it.
    time: Timestamp,
}

/// Lets go of what is before `sequence`, as far as its age tells it from what is not.
pub(super) async fn release_before(link: &Link, sequence: u64) -> Result<(), BoxError> {
    let info: Info = request(link, &format!("STREAM.INFO.{EVENTS}"), &json!({})).await?;
    // A program that ended in the middle left a limit.
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

/// The server answers once it has let go of what is older.
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
