//! One append: one message out and its confirmation back, tried until it is certain.
//!
//! A try whose confirmation is lost may have been stored all the same. The next try then meets its
//! own event: as a `duplicate` answer, or as a conflict with its own guard (a server with one copy
//! checks the guard first, a cluster the id). So no conflict is believed before the leader was
//! asked which event came after the guard: if this append was ever stored, it is that one.

use aod_ports::BoxError;
use aod_ports::event_log::{Append, AppendError, Guard};
use async_nats::client::RequestErrorKind;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{HeaderMap, Request};
use serde::Deserialize;

use crate::link::{Failure, Link, Pauses};

/// The subject of the guard, where it is not the message's own. Since nats-server 2.11; an older
/// one ignores it, and with it the guard.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

/// How often a conflict without an event that explains it is tried again: in a cluster another
/// append may be under way that will be stored or dropped within milliseconds.
const UNEXPLAINED_CONFLICTS_MAX: u32 = 20;

/// What the server answers to an append.
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

/// What has become of a try.
#[derive(Debug)]
enum Outcome {
    Stored(u64),
    Conflict,
    Full,
    /// Another try would be refused too.
    Refused(BoxError),
    /// It may have been stored or not.
    Unknown(BoxError),
}

/// Which event follows the guard.
enum Following {
    Mine(u64),
    Another,
    Nothing,
}

pub(super) async fn append(
    link: &Link,
    stream: &Stream<()>,
    append: Append,
) -> Result<u64, AppendError> {
    let headers = headers(&append);
    let subject = || append.subject.to_string();
    let mut pauses = Pauses::new();
    let mut unexplained_conflicts = 0;
    loop {
        let source = match attempt(link, &append, headers.clone(), &pauses).await {
            Outcome::Stored(sequence) => return Ok(sequence),
            Outcome::Full => return Err(AppendError::Full),
            Outcome::Refused(source) => {
                return Err(AppendError::Unconfirmed {
                    subject: subject(),
                    source,
                });
            }
            Outcome::Unknown(source) => source,
            Outcome::Conflict => match following(link, stream, &append).await {
                Ok(Following::Mine(sequence)) => return Ok(sequence),
                Ok(Following::Nothing) if unexplained_conflicts < UNEXPLAINED_CONFLICTS_MAX => {
                    unexplained_conflicts += 1;
                    "another append is under way".into()
                }
                Ok(Following::Another | Following::Nothing) => {
                    return Err(AppendError::Conflict { subject: subject() });
                }
                Err(source) => source,
            },
        };
        if pauses.is_over() {
            return Err(AppendError::Unconfirmed {
                subject: subject(),
                source,
            });
        }
        pauses.wait().await;
    }
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

async fn attempt(link: &Link, append: &Append, headers: HeaderMap, pauses: &Pauses) -> Outcome {
    let request = Request::new()
        .headers(headers)
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
                    // No responders: the stream is being restored, or elects its leader.
                    _ => Failure::transient(error),
                }
            })
    };
    match link.within_connection(pauses.deadline(), sent).await {
        Ok(answer) => read_answer(&answer.payload),
        Err(failure) if failure.is_final => Outcome::Refused(failure.source),
        Err(failure) => Outcome::Unknown(failure.source),
    }
}

fn read_answer(payload: &[u8]) -> Outcome {
    match serde_json::from_slice::<Answer>(payload) {
        Ok(Answer { error: None, seq }) => Outcome::Stored(seq),
        Ok(Answer {
            error: Some(error), ..
        }) => read_error(error),
        Err(error) => Outcome::Unknown(error.into()),
    }
}

/// Sorts the server's errors. Source: nats-server `server/errors.json`, and what 2.15.1 answered.
fn read_error(error: ApiError) -> Outcome {
    match error.err_code {
        // The guard fails: on what is stored, or in a cluster on what is about to be.
        10071 | 10164 => Outcome::Conflict,
        // Storing failed: of the reasons, these two are the limits of the stream.
        10077
            if error.description.contains("maximum bytes exceeded")
                || error.description.contains("maximum messages exceeded") =>
        {
            Outcome::Full
        }
        // The disk, or what the account may take of it.
        10023 | 10047 => Outcome::Full,
        _ if error.code == 400 => Outcome::Refused(error.into()),
        _ => Outcome::Unknown(error.into()),
    }
}

async fn following(
    link: &Link,
    stream: &Stream<()>,
    append: &Append,
) -> Result<Following, BoxError> {
    let Guard::Last { filter, sequence } = &append.guard else {
        return Ok(Following::Another);
    };
    link.patiently(|| async {
        let request = stream
            .raw_message_builder()
            .sequence(sequence + 1)
            .next_by_subject(filter);
        match request.send().await {
            Ok(message) => {
                let id = message.headers.get(NATS_MESSAGE_ID);
                let is_mine = id.is_some_and(|id| id.as_str() == append.id);
                Ok(if is_mine {
                    Following::Mine(message.sequence)
                } else {
                    Following::Another
                })
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                Ok(Following::Nothing)
            }
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
    fn answers_are_sorted() {
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
