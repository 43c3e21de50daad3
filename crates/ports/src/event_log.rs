//! The durable log: appends with one guard each, reads of whole runs, ordered subscriptions.

mod certain;

use certain::append_until_certain;

use aod_domain::event::{CloudEvent, EventTooLarge, MalformedEvent, Recorded};
use aod_domain::subject::Subject;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::Instant;

use crate::BoxError;

/// An event as stored, not decoded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the log, from 1.
    pub sequence: u64,
    pub subject: String,
    pub bytes: Bytes,
}

impl StoredEvent {
    /// Decodes the event as the type that belongs to its subject.
    pub fn decode<E: DeserializeOwned>(&self) -> Result<Recorded<E>, MalformedEvent> {
        Recorded::decode_under(&self.subject, self.sequence, &self.bytes)
    }
}

/// The condition of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None: notes and registrations.
    None,
    /// The last event under `filter`, a subject with wildcards, is at `sequence`; 0 means no event.
    Last { filter: String, sequence: u64 },
}

/// An event to append.
#[derive(Clone, Debug)]
pub struct Append {
    pub subject: Subject,
    pub guard: Guard,
    /// The event's id as text; makes a retry of the same append store nothing twice.
    pub id: String,
    pub bytes: Bytes,
}

impl Append {
    /// `event` with its destination `subject`.
    ///
    /// # Errors
    /// The event is too large, as [`CloudEvent::encode`].
    pub fn of<E: Serialize>(
        subject: Subject,
        guard: Guard,
        event: &CloudEvent<E>,
    ) -> Result<Self, EventTooLarge> {
        Ok(Self {
            subject,
            guard,
            id: event.id.to_string(),
            bytes: event.encode()?.into(),
        })
    }
}

/// The result of one try to append.
#[derive(Debug)]
pub enum Tried {
    Stored(u64),
    /// The guard failed: against another event, or against this append's own earlier try.
    Conflict,
    Full,
    /// A retry would be rejected too.
    Refused(BoxError),
    /// It may have been stored or not.
    Unknown(BoxError),
}

/// Why an append has failed, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum AppendError {
    /// Another writer appended first: load and decide again.
    #[error("the guard of {subject} failed: another writer appended first")]
    Conflict { subject: String },
    /// The log accepts no event: reject new work, end running work.
    #[error("the log is full")]
    Full,
    /// The broker did not confirm in time; the id makes a retry harmless.
    #[error("no confirmation of the append to {subject}")]
    Unconfirmed { subject: String, source: BoxError },
}

/// The broker did not answer in time; a retry is harmless.
#[derive(Debug, Error)]
#[error("cannot read {what} from the log")]
pub struct ReadError {
    pub what: String,
    #[source]
    pub source: BoxError,
}

/// The start of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Events stored from now on.
    Now,
    /// Events after this sequence; 0 for all.
    After(u64),
}

/// A message to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    Event(StoredEvent),
    /// The connection was lost and is back. With [`From::After`] no event was missed; a subscriber that waits for one
    /// event should still check once.
    Reconnected,
}

/// The fill level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub bytes: u64,
    pub bytes_max: u64,
    pub last_sequence: u64,
}

/// The log of all events. Implementations retry lost connections up to their own deadline, then return the errors
/// above.
#[async_trait]
pub trait EventLog: Send + Sync + std::fmt::Debug {
    /// Stores an event and returns its sequence once it is on disk.
    ///
    /// The same append may be retried after any error: if an earlier try was stored, this returns its sequence, and
    /// never a conflict with itself.
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        let answer = append_until_certain(self, &append).await;
        self.concluded(&append, &answer);
        answer
    }

    /// Receives the result of every append, including those of a log that wraps this one.
    fn concluded(&self, _append: &Append, _answer: &Result<u64, AppendError>) {}

    /// Tries once; no answer by `deadline` is [`Tried::Unknown`].
    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried;

    /// Sequence and id of the first event under `filter` after `sequence`, according to the leader.
    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError>;

    /// At most `limit` events under `filter` in their order, according to the leader.
    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError>;

    /// The last event under `filter`.
    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError>;

    /// Follows the events under `filter`. The stream recovers lost connections itself, yields each event once and in
    /// order, and ends only with the program.
    async fn follow(
        &self,
        filter: &str,
        from: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError>;

    async fn fill(&self) -> Result<Fill, ReadError>;

    /// Deletes events before `sequence` from the broker: all, or those old enough to be certainly before it. Never
    /// touches `sequence` and later; idempotent.
    async fn release_before(&self, sequence: u64) -> Result<(), ReadError>;
}
