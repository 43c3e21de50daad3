//! Requests to the stream, each repeated for up to a minute until it is answered.
//!
//! All requests may be repeated: chunks and records have message ids, and repeated reads and purges change
//! nothing. So a lost connection or a restarted server only costs time.

use std::io;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    DirectGetErrorKind, LastRawMessageErrorKind, PurgeErrorKind, Stream,
};
use async_nats::jetstream::{Context, Error as ApiError, ErrorCode};
use bytes::Bytes;
use futures::Future;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::subject::Subjects;

/// Maximum time of a request with its retries, in seconds: longer than the restart of a server or the
/// election of a leader, shorter than the time limits of callers.
const RETRY_SECONDS_MAX: u64 = 60;

/// Minimum and maximum wait between two attempts.
const RETRY_WAIT_MIN: Duration = Duration::from_millis(50);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of concurrent chunks of all puts of this connection, 8 MiB: two transfers at full speed.
const CHUNKS_IN_FLIGHT_MAX: usize = 16;

/// Access to the stream of a bucket.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
    pub(super) subjects: Subjects,
    /// Whether this program may remove chunks and objects; another program sweeps left-overs.
    pub(super) may_remove: bool,
    in_flight: Semaphore,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The guard of a publish failed, possibly because of an earlier attempt whose confirmation was lost.
    Conflict,
    /// Any other error.
    Error(object_store::Error),
}

/// Outcome of one attempt.
enum Try {
    /// A retry may help.
    Again(BoxError),
    Fail(Failure),
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Transport {
    pub(super) fn new(
        context: Context,
        stream: Stream<()>,
        subjects: Subjects,
        may_remove: bool,
    ) -> Self {
        let in_flight = Semaphore::new(CHUNKS_IN_FLIGHT_MAX);
        Self {
            context,
            stream,
            subjects,
            may_remove,
            in_flight,
        }
    }

    /// Stores one chunk of an upload.
    pub(super) async fn put_chunk(
        &self,
        upload: Uuid,
        part: usize,
        number: u64,
        bytes: Bytes,
    ) -> object_store::Result<()> {
        let _permit = self
            .in_flight
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let mut headers = HeaderMap::new();
        let id = format!("{}.{part}.{number}", upload.simple());
        headers.insert(NATS_MESSAGE_ID, id);
        let subject = self.subjects.chunk(upload, part, number);
        self.publish(subject, headers, bytes)
            .await
            .map_err(Failure::into_error)?;
        Ok(())
    }

    /// Writes a record; `guard` is the required last sequence of the subject, 0 for none.
    pub(super) async fn put_record(
        &self,
        subject: String,
        guard: Option<u64>,
        (mut headers, body): (HeaderMap, Bytes),
    ) -> Result<u64, Failure> {
        if let Some(sequence) = guard {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string());
        }
        self.publish(subject, headers, body).await
    }

    async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<u64, Failure> {
        repeat(|| async {
            let message = PublishMessage::build()
                .headers(headers.clone())
                .payload(payload.clone());
            let sent = self.context.send_publish(subject.clone(), message).await;
            let confirmed = sent.map_err(sort_publish)?.await;
            Ok(confirmed.map_err(sort_publish)?.sequence)
        })
        .await
    }

    /// The chunk on `subject`, from any replica, else from the leader; none if it is missing.
    pub(super) async fn chunk(&self, subject: &str) -> object_store::Result<Option<Bytes>> {
        let near = repeat(|| async {
            match self.stream.direct_get_last_for_subject(subject).await {
                Ok(message) => Ok(Some(message.payload)),
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
                Err(error) => Err(Try::Again(error.into())),
            }
        });
        match near.await.map_err(Failure::into_error)? {
            Some(bytes) => Ok(Some(bytes)),
            // A replica may lag behind confirmed messages.
            None => Ok(self.last(subject).await?.map(|message| message.payload)),
        }
    }

    /// The message on `subject` from the leader; none if it is missing.
    pub(super) async fn last(&self, subject: &str) -> object_store::Result<Option<StreamMessage>> {
        let last = repeat(|| async {
            match self.stream.get_last_raw_message_by_subject(subject).await {
                Ok(message) => Ok(Some(message)),
                Err(error) => match error.kind() {
                    LastRawMessageErrorKind::NoMessageFound => Ok(None),
                    LastRawMessageErrorKind::JetStream(source) => Err(sort_api(source)),
                    _ => Err(Try::Again(error.into())),
                },
            }
        });
        last.await.map_err(Failure::into_error)
    }

    /// Removes all messages whose subject matches `filter`; returns their number.
    pub(super) async fn purge(&self, filter: &str) -> object_store::Result<u64> {
        self.purge_before(filter, None).await
    }

    /// Removes messages before the sequence `end`, if given: a repeated request then removes no later
    /// message.
    pub(super) async fn purge_before(
        &self,
        filter: &str,
        end: Option<u64>,
    ) -> object_store::Result<u64> {
        let purged = repeat(|| async {
            let purge = self.stream.purge().filter(filter);
            let answer = match end {
                None => purge.await,
                Some(end) => purge.sequence(end).await,
            };
            match answer {
                Ok(response) => Ok(response.purged),
                Err(error) => match error.kind() {
                    PurgeErrorKind::JetStream(source) => Err(sort_api(source)),
                    _ => Err(Try::Again(error.into())),
                },
            }
        });
        purged.await.map_err(Failure::into_error)
    }
}

impl Failure {
    /// Converts the failure of a request without a guard, or without a conflict.
    pub(super) fn into_error(self) -> object_store::Error {
        match self {
            Self::Error(error) => error,
            Self::Conflict => super::generic("a guard failed although none was set"),
        }
    }
}

/// Repeats requests after temporary failures, with growing waits.
async fn repeat<T, F, Pending>(mut request: F) -> Result<T, Failure>
where
    F: FnMut() -> Pending + Send,
    Pending: Future<Output = Result<T, Try>> + Send,
{
    let deadline = Instant::now() + Duration::from_secs(RETRY_SECONDS_MAX);
    let mut wait = RETRY_WAIT_MIN;
    loop {
        let source = match request().await {
            Ok(answer) => return Ok(answer),
            Err(Try::Fail(failure)) => return Err(failure),
            Err(Try::Again(source)) => source,
        };
        if Instant::now() + wait > deadline {
            return Err(Failure::Error(super::generic(source)));
        }
        tracing::debug!(error = %source, "a request to the stream of artifacts is repeated");
        sleep(wait).await;
        wait = RETRY_WAIT_MAX.min(wait * 2);
    }
}

/// Maps an error of a publish.
fn sort_publish(error: PublishError) -> Try {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Try::Fail(Failure::Conflict),
        PublishErrorKind::MaxPayloadExceeded => Try::Fail(Failure::Error(super::generic(error))),
        // A stream in recovery has no responders either: a temporary failure.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending => Try::Again(error.into()),
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::Other => {
            let source = std::error::Error::source(&error);
            match source.and_then(|source| source.downcast_ref::<ApiError>()) {
                Some(api) => sort_api(api.clone()),
                None => Try::Again(error.into()),
            }
        }
    }
}

/// Maps an answer of JetStream.
fn sort_api(error: ApiError) -> Try {
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
            Try::Fail(Failure::Conflict)
        }
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => {
            let full = io::Error::new(io::ErrorKind::StorageFull, error);
            Try::Fail(Failure::Error(super::generic(full)))
        }
        // 503: no leader, or JetStream is starting.
        _ if error.code() == 503 => Try::Again(error.into()),
        _ => Try::Fail(Failure::Error(super::generic(error))),
    }
}
