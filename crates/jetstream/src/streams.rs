//! The streams that AOD keeps in the broker, and how each is configured.
//!
//! | stream | holds | kept |
//! |---|---|---|
//! | `EVENTS` | the log, `ev.>` | until it is archived and let go of, synced; appends are refused when it is full |
//! | `WORK` | launches, sourced from `EVENTS` by the server | until acknowledged |
//! | `LOGS` | the live tail of outputs, `log.>` | by age and size |
//! | `KV_PRESENCE` | who is there | in memory, for seconds |
//!
//! Making them and comparing what is there is left to [`ensure`].

pub(crate) mod ensure;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aod_domain::event::EVENT_SIZE_BYTES_MAX;
use aod_domain::subject;
use aod_ports::presence::PRESENCE_SECONDS;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, PersistenceMode, Republish, RetentionPolicy, Source,
    StorageType,
};

use crate::config::StreamLimits;

pub(crate) const EVENTS: &str = "EVENTS";
pub(crate) const WORK: &str = "WORK";
pub(crate) const LOGS: &str = "LOGS";
pub(crate) const PRESENCE: &str = "KV_PRESENCE";
/// Where artifacts lie if they lie in the broker.
pub(crate) const FILES: &str = "FILES";

/// First token of the subjects of [`LOGS`].
pub(crate) const LOG_PREFIX: &str = "log";

/// First tokens of the subjects of [`PRESENCE`]: those of a key-value bucket, so that `nats kv`
/// can show it.
pub(crate) const PRESENCE_PREFIX: &str = "$KV.PRESENCE";

/// Room for the headers beside a payload, in bytes: ids, guards and subjects take some 500.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// Largest line of output, in bytes; what hands lines over splits longer ones well below.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 64 * 1024;

/// How long the log knows message ids, so that a second try stores nothing more: far longer than
/// any try. Each costs the server 0.24 KB of memory meanwhile (measured).
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Consumers of a stream: each follower has one. The server's own default is 1,000 since 2.15, and
/// only a number on the stream lifts it; 15 KB of memory each (measured).
const CONSUMERS_MAX: i32 = 10_000;

fn base(name: &str, description: &str, limits: &StreamLimits) -> Config {
    Config {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_message_size: message_size(EVENT_SIZE_BYTES_MAX),
        max_consumers: CONSUMERS_MAX,
        storage: StorageType::File,
        num_replicas: limits.replicas,
        duplicate_window: DUPLICATE_WINDOW,
        compression: Some(Compression::None),
        ..Config::default()
    }
}

/// The largest message of a stream whose payloads have at most `payload_bytes_max`.
fn message_size(payload_bytes_max: usize) -> i32 {
    i32::try_from(payload_bytes_max + HEADER_BYTES_MAX).expect("the sizes are small constants")
}

fn bytes_max(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What need not survive a power failure is not synced; servers offer that for single copies only.
fn unsynced(limits: &StreamLimits) -> Option<PersistenceMode> {
    (limits.replicas == 1).then_some(PersistenceMode::Async)
}

/// Where the server tells the places of events that `filter` has.
pub(crate) fn told(filter: &str) -> String {
    format!("told.{filter}")
}

/// The log: nothing in it can be changed, deleted or purged, and each append is synced. The place of each event is
/// told to whoever listens.
pub(crate) fn events(limits: &StreamLimits) -> Config {
    Config {
        subjects: vec![subject::ALL.to_owned()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_bytes: bytes_max(limits.events_bytes_max),
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        republish: Some(Republish {
            source: subject::ALL.to_owned(),
            destination: told(subject::ALL),
            headers_only: true,
        }),
        ..base(EVENTS, "the log of AOD: every event, in order", limits)
    }
}

/// The queue: made by the server from the launches of the log, beginning at `start_sequence`.
///
/// Its sequences begin at the time, so that those of a queue made anew are beyond all of the queue
/// before it: an acknowledgement that comes late can never take another run's launch away.
pub(crate) fn work(limits: &StreamLimits, start_sequence: Option<u64>) -> Config {
    let source = Source {
        name: EVENTS.to_owned(),
        filter_subject: Some(subject::LAUNCHES.to_owned()),
        start_sequence,
        ..Source::default()
    };
    Config {
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        max_bytes: bytes_max(limits.work_bytes_max),
        sources: Some(vec![source]),
        first_sequence: Some(microseconds_since_1970()),
        persist_mode: unsynced(limits),
        ..base(WORK, "launches that wait for a node or run on one", limits)
    }
}

/// The live tail of outputs: the oldest lines go first, unsynced.
pub(crate) fn logs(limits: &StreamLimits) -> Config {
    Config {
        subjects: vec![format!("{LOG_PREFIX}.>")],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_bytes: bytes_max(limits.logs_bytes_max),
        max_age: Duration::from_secs(limits.logs_age_seconds_max),
        max_message_size: message_size(LOG_LINE_BYTES_MAX),
        persist_mode: unsynced(limits),
        ..base(LOGS, "the live tail of what capsules write", limits)
    }
}

/// Largest announcement, in bytes: labels and names take some 1 KB.
const ANNOUNCEMENT_BYTES_MAX: usize = 16 * 1024;

/// Most that presence may take of the server's memory, in bytes: 10,000 members of 1 KB, and some.
const PRESENCE_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Who is there: a key-value bucket with one value a key, as `nats kv add` would make it, but that nobody empties it
/// by a header.
pub(crate) fn presence(limits: &StreamLimits) -> Config {
    Config {
        subjects: vec![format!("{PRESENCE_PREFIX}.>")],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_bytes: PRESENCE_BYTES_MAX,
        max_age: Duration::from_secs(PRESENCE_SECONDS),
        duplicate_window: Duration::from_secs(PRESENCE_SECONDS),
        max_messages_per_subject: 1,
        max_message_size: message_size(ANNOUNCEMENT_BYTES_MAX),
        storage: StorageType::Memory,
        deny_delete: true,
        allow_direct: true,
        ..base(PRESENCE, "which gateways and nodes are there", limits)
    }
}

fn microseconds_since_1970() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
