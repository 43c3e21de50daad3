//! The durable log: one guard an append, whole runs read back, everything followed in order.

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

/// An event as stored, not yet read by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the log, from 1.
    pub sequence: u64,
    pub subject: String,
    pub bytes: Bytes,
}

impl StoredEvent {
    /// The event, of a type that belongs under its subject.
    pub fn decode<E: DeserializeOwned>(&self) -> Result<Recorded<E>, MalformedEvent> {
        Recorded::decode_under(&self.subject, self.sequence, &self.bytes)
    }
}

/// What an append depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing: notes and registrations.
    None,
    /// `filter`, a subject with wildcards, has its last event at `sequence`; 0 for none at all.
    Last { filter: String, sequence: u64 },
}

/// An event on its way into the log.
#[derive(Clone, Debug)]
pub struct Append {
    pub subject: Subject,
    pub guard: Guard,
    /// The event's id as text: a second try of the same append stores nothing more.
    pub id: String,
    pub bytes: Bytes,
}

impl Append {
    /// `event` on its way to `subject`.
    ///
    /// # Errors
    /// One that is too large, as [`CloudEvent::encode`].
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

/// What has become of one try to append.
#[derive(Debug)]
pub enum Tried {
    Stored(u64),
    /// The guard failed: against another's event, or against one's own of an earlier try.
    Conflict,
    Full,
    /// Another try would be refused too.
    Refused(BoxError),
    /// It may have been stored or not.
    Unknown(BoxError),
}

/// Why an append has not happened, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum AppendError {
    /// Someone else appended first: load again, decide again.
    #[error("the log has gone on beyond the guard of {subject}")]
    Conflict { subject: String },
    /// The log takes no more: refuse new work, end what runs.
    #[error("the log is full")]
    Full,
    /// The broker did not confirm in time; the id makes another try harmless.
    #[error("the append to {subject} was not confirmed")]
    Unconfirmed { subject: String, source: BoxError },
}

/// The broker did not answer in time; safe to try again.
#[derive(Debug, Error)]
#[error("{what} cannot be read from the log")]
pub struct ReadError {
    pub what: String,
    #[source]
    pub source: BoxError,
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With what is stored from now on.
    Now,
    /// With the first event after this sequence; 0 for everything.
    After(u64),
}

/// What is told to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Event(StoredEvent),
    /// The connection was lost and is back. Nothing was missed with [`From::After`]; whoever
    /// waits for one event should look once all the same.
    Reconnected,
}

/// How full the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub bytes: u64,
    pub bytes_max: u64,
    pub last_sequence: u64,
}

/// The log of all events. Implementations retry lost connections for as long as their own
/// deadline allows; afterwards they answer with the errors above.
#[async_trait]
pub trait EventLog: Send + Sync + std::fmt::Debug {
    /// Stores an event and answers with its sequence once it is on disk.
    ///
    /// The same append may be tried again after any error: if an earlier try was stored after
    /// all, its sequence is the answer, and never a conflict with oneself.
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        let answer = append_until_certain(self, &append).await;
        self.concluded(&append, &answer);
        answer
    }

    /// Hears what an append has come to, also of those that a log around this one has tried.
    fn concluded(&self, _append: &Append, _answer: &Result<u64, AppendError>) {}

    /// Tries once; no answer by `deadline` is [`Tried::Unknown`].
    async fn try_append(&self, append: &Append, deadline: Instant) -> Tried;

    /// Sequence and id of the first event under `filter` after `sequence`, as the leader has it.
    async fn first_after(
        &self,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<(u64, String)>, BoxError>;

    /// All events under `filter` in their order, as they are on the leader; at most `limit`.
    async fn read(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError>;

    /// The last event under `filter`.
    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError>;

    /// Follows the events under `filter`. The stream recovers from lost connections by itself,
    /// yields each event once and in order, and ends only with the program.
    async fn follow(&self, filter: &str, from: From)
    -> Result<BoxStream<'static, Told>, ReadError>;

    async fn fill(&self) -> Result<Fill, ReadError>;

    /// Lets go of events before `sequence`, for good: all of them, or as many as are old enough for it to be
    /// certain that they are before. Nothing from `sequence` on is touched; doing it again is harmless.
    async fn release_before(&self, sequence: u64) -> Result<(), ReadError>;
}
