//! One attempt of an append: sends a message and waits for its confirmation.

use aod_ports::BoxError;
use aod_ports::event_log::{Append, Guard, Tried};
use async_nats::client::RequestErrorKind;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{HeaderMap, Request};
use serde::Deserialize;
use tokio::time::Instant;

use crate::link::{Failure, Link};

/// The subject of the guard, if it differs from the message's. Since nats-server 2.11; older servers
/// ignore this header, and with it the guard.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

/// The server's answer to an append.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    seq: u64,
    error: Option<ApiError>,
}

#[derive(Debug, Deserialize, thiserror::Error)]
#[error("{description} (code {code}, error code {err_code})")]
struct ApiError {
    code: u32,
    err_code: u32,
    #[serde(default)]
    description: String,
}

fn headers(append: &Append) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, append.id.as_str());
    if let Guard::Last { filter, sequence } = &append.guard {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string());
        headers.insert(EXPECTED_SUBJECT, filter.as_str());
    }
    headers
}

pub(super) async fn try_append(link: &Link, append: &Append, deadline: Instant) -> Tried {
    let request = Request::new()
        .headers(headers(append))
        .payload(append.bytes.clone());
    let sent = async {
        link.client
            .send_request(append.subject.as_str().to_owned(), request)
            .await
            .map_err(|error| {
                match error.kind() {
                    RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                        Failure::last(error)
                    }
                    // No responders: the stream is being restored or elects its leader.
                    _ => Failure::transient(error),
                }
            })
    };
    let permitted = link.permitted(append.subject.as_str(), sent);
    match link.within_connection(deadline, permitted).await {
        Ok(answer) => read_answer(&answer.payload),
        Err(failure) if failure.is_final => Tried::Refused(failure.source),
        Err(failure) => Tried::Unknown(failure.source),
    }
}

fn read_answer(payload: &[u8]) -> Tried {
    match serde_json::from_slice::<Answer>(payload) {
        Ok(Answer { error: None, seq }) => Tried::Stored(seq),
        Ok(Answer {
            error: Some(error), ..
        }) => read_error(error),
        Err(error) => Tried::Unknown(error.into()),
    }
}

/// Maps the server's errors. Source: nats-server `server/errors.json`, and answers of 2.15.1.
fn read_error(error: ApiError) -> Tried {
    match error.err_code {
        // The guard fails, because of stored messages, or in a cluster of messages in progress.
        10071 | 10164 => Tried::Conflict,
        // The server could not store the message; these two reasons are the limits of the stream.
        10077
            if error.description.contains("maximum bytes exceeded")
                || error.description.contains("maximum messages exceeded") =>
        {
            Tried::Full
        }
        // The disk, or the account's limit.
        10023 | 10047 => Tried::Full,
        _ if error.code == 400 => Tried::Refused(error.into()),
        _ => Tried::Unknown(error.into()),
    }
}

/// Sequence and id of the first event under `filter` after `sequence`.
pub(super) async fn first_after(
    link: &Link,
    stream: &Stream<()>,
    filter: &str,
    sequence: u64,
) -> Result<Option<(u64, String)>, BoxError> {
    link.patiently(|| async {
        let request = stream
            .raw_message_builder()
            .sequence(sequence + 1)
            .next_by_subject(filter);
        match request.send().await {
            Ok(message) => {
                let id = message.headers.get(NATS_MESSAGE_ID);
                let id = id.map(ToString::to_string).unwrap_or_default();
                Ok(Some((message.sequence, id)))
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(Failure::transient(error)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(payload: &str, expected: &str) {
        let outcome = format!("{:?}", read_answer(payload.as_bytes()));
        assert!(outcome.starts_with(expected), "{payload}: {outcome}");
    }

    #[test]
    fn answers_of_server_are_mapped() {
        check(r#"{"stream":"EVENTS","seq":7}"#, "Stored(7)");
        check(
            r#"{"stream":"EVENTS","seq":7,"duplicate":true}"#,
            "Stored(7)",
        );
        let error = |code, err_code, description| {
            format!(
                r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{description}"}},"seq":0}}"#
            )
        };
        check(&error(400, 10071, "wrong last sequence: 3"), "Conflict");
        check(&error(400, 10164, "wrong last sequence"), "Conflict");
        check(&error(503, 10077, "maximum bytes exceeded"), "Full");
        check(&error(503, 10077, "some write failed"), "Unknown");
        check(
            &error(500, 10047, "insufficient storage resources available"),
            "Full",
        );
        check(
            &error(400, 10054, "message size exceeds maximum allowed"),
            "Refused",
        );
        check(
            &error(503, 10008, "JetStream system temporarily unavailable"),
            "Unknown",
        );
        check("no JSON", "Unknown");
    }
}
