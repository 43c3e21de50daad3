//! The streams of AOD in the broker, and their configuration.
//!
//! | stream | holds | kept |
//! |---|---|---|
//! | `EVENTS` | the log, `ev.>` | until archived and released, synced; rejects appends when full |
//! | `WORK` | launches, sourced from `EVENTS` by the server | until acknowledged |
//! | `LOGS` | the live tail of outputs, `log.>` | by age and size |
//! | `KV_PRESENCE` | presence | in memory, for seconds |
//!
//! [`ensure`] creates the streams and compares existing ones.

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
/// The stream of artifacts, if the broker stores them.
pub(crate) const FILES: &str = "FILES";

/// First token of the subjects of [`LOGS`].
pub(crate) const LOG_PREFIX: &str = "log";

/// First tokens of the subjects of [`PRESENCE`]: those of a key-value bucket, so that `nats kv`
/// can show it.
pub(crate) const PRESENCE_PREFIX: &str = "$KV.PRESENCE";

/// Maximum size of headers, in bytes: ids, guards and subjects take some 500.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// Maximum line of output, in bytes; callers split lines well below it.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 64 * 1024;

/// Time that the log remembers message ids, so that a retry stores nothing twice: far longer than any
/// retry. Each id takes 0.24 KB of the server's memory (measured).
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Maximum number of consumers of a stream, one for each follower, with 15 KB of memory each (measured).
/// The server's own default is 1,000 since 2.15; only the stream's setting raises it.
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

/// The maximum message of a stream with payloads of at most `payload_bytes_max`.
fn message_size(payload_bytes_max: usize) -> i32 {
    i32::try_from(payload_bytes_max + HEADER_BYTES_MAX).expect("the sizes are small constants")
}

fn bytes_max(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Disables the sync for data that need not survive a power failure; servers support that only for single
/// copies.
fn unsynced(limits: &StreamLimits) -> Option<PersistenceMode> {
    (limits.replicas == 1).then_some(PersistenceMode::Async)
}

/// The subject where the server announces events under `filter`.
pub(crate) fn announced(filter: &str) -> String {
    format!("announced.{filter}")
}

/// The log: nothing in it can be changed, deleted or purged, and the server syncs each append. The server
/// announces each event to listeners.
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
            destination: announced(subject::ALL),
            headers_only: true,
        }),
        ..base(EVENTS, "the log of AOD: every event, in order", limits)
    }
}

/// The queue: the server fills it with the launches of the log from `start_sequence` on.
///
/// Its first sequence is the current time, so a rebuilt queue has higher sequences than the queue before
/// it: a late acknowledgement can never remove another run's launch.
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

/// The live tail of outputs: drops the oldest lines first, not synced.
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

/// Maximum announcement, in bytes: pools and names take some 1 KB.
const ANNOUNCEMENT_BYTES_MAX: usize = 16 * 1024;

/// Maximum memory of presence on the server, in bytes: more than 10,000 members of 1 KB.
const PRESENCE_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Presence: a key-value bucket with one value for each key, as `nats kv add` creates it, but without roll-up headers
/// that could empty it.
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
