//! Opens the stream of a bucket: creates a missing one and compares the configuration, because a server
//! drops unknown settings without an error.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::CHUNK_BYTES;
use super::subject::Subjects;
use super::transport::Transport;
use crate::broker::STREAMS_SECONDS_MAX;

/// Time limit of one answer, in seconds; a chunk on a slow disk takes a fraction of a second.
const ANSWER_SECONDS_MAX: u64 = 5;

/// Maximum size of headers and subject of a message, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 4096;

/// Maximum number of unconfirmed messages: more than the transport ever sends concurrently.
const UNCONFIRMED_MAX: usize = 256;

/// Time that the stream remembers message ids: longer than the retries of any request. 0.24 KB each.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Interval of checks for a stream that another program creates.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Stream and limits of a bucket.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    /// Name of the stream, such as `FILES`.
    pub stream: String,
    /// First token of all its subjects after `obj.`: letters, digits, `-` and `_`.
    pub bucket: String,
    /// Maximum size of the stream, in bytes; a put above it fails with `StorageFull`.
    pub bytes_max: u64,
    /// Copies of the stream in the cluster, 1 to 5.
    pub replicas: usize,
}

/// Why a bucket cannot be opened, by what the operator can do.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The name is invalid.
    #[error("invalid name `{0}` of a bucket; expected letters, digits, `-` and `_`")]
    Name(String),
    /// The server's `max_payload` is too low.
    #[error("the server's max_payload is {max_payload_bytes} bytes; set at least {needed_bytes}")]
    MaxPayload {
        max_payload_bytes: usize,
        needed_bytes: usize,
    },
    /// The stream is not of AOD, was changed, or the server is too old.
    #[error("stream {stream} has {field} = {found}, expected {wanted}")]
    Mismatch {
        stream: String,
        field: String,
        wanted: Value,
        found: Value,
    },
    /// The server rejected the request, or did not answer.
    #[error("stream {stream} cannot be opened")]
    Server {
        stream: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

pub(super) async fn open(client: Client, config: &BucketConfig) -> Result<Transport, OpenError> {
    let (context, subjects) = begin(client, config)?;
    let wanted = stream_config(config, &subjects);
    let found = read_or_create(&context, &wanted).await?;
    compare(&keeping_copies(wanted, &found), &found)?;
    transport(context, config, subjects, true).await
}

/// Opens the stream without the right to create or limit it: waits until another program has created it.
pub(super) async fn open_as_guest(
    client: Client,
    config: &BucketConfig,
) -> Result<Transport, OpenError> {
    let (context, subjects) = begin(client, config)?;
    let deadline = Instant::now() + Duration::from_secs(STREAMS_SECONDS_MAX);
    let found = loop {
        if let Some(found) = read(&context, &config.stream).await? {
            break found;
        }
        if Instant::now() >= deadline {
            let missing =
                "the stream does not exist; start a gateway with the same store, which creates it";
            return Err(server_error(&config.stream, missing));
        }
        sleep(POLL_INTERVAL).await;
    };
    let wanted = Config {
        max_bytes: found.max_bytes,
        ..stream_config(config, &subjects)
    };
    compare(&keeping_copies(wanted, &found), &found)?;
    transport(context, config, subjects, false).await
}

/// Keeps the number of copies of an existing stream, which the operator may have changed.
fn keeping_copies(wanted: Config, found: &Config) -> Config {
    Config {
        num_replicas: found.num_replicas,
        ..wanted
    }
}

async fn transport(
    context: Context,
    config: &BucketConfig,
    subjects: Subjects,
    may_remove: bool,
) -> Result<Transport, OpenError> {
    let stream = context
        .get_stream_no_info(&config.stream)
        .await
        .map_err(|source| server_error(&config.stream, source))?;
    Ok(Transport::new(context, stream, subjects, may_remove))
}

fn begin(client: Client, config: &BucketConfig) -> Result<(Context, Subjects), OpenError> {
    let is_token = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if config.bucket.is_empty() || !config.bucket.chars().all(is_token) {
        return Err(OpenError::Name(config.bucket.clone()));
    }
    let max_payload_bytes = client.server_info().max_payload;
    let needed_bytes = CHUNK_BYTES + MESSAGE_OVERHEAD_BYTES;
    if max_payload_bytes < needed_bytes {
        return Err(OpenError::MaxPayload {
            max_payload_bytes,
            needed_bytes,
        });
    }
    let context = ContextBuilder::new()
        .timeout(Duration::from_secs(ANSWER_SECONDS_MAX))
        .max_ack_inflight(UNCONFIRMED_MAX)
        .build(client);
    Ok((context, Subjects::new(&config.bucket)))
}

fn stream_config(config: &BucketConfig, subjects: &Subjects) -> Config {
    Config {
        name: config.stream.clone(),
        description: Some("files of AOD, by their SHA-256".to_owned()),
        subjects: vec![subjects.all()],
        storage: StorageType::File,
        num_replicas: config.replicas,
        max_bytes: i64::try_from(config.bytes_max).unwrap_or(i64::MAX),
        max_messages_per_subject: 1,
        // A full store rejects writes; it never drops artifacts that an event names.
        discard: DiscardPolicy::New,
        allow_direct: true,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    }
}

/// The configuration of the stream, after it is created or its limit is set.
///
/// Reads the stream first: a server without space for a second stream rejects the creation of an existing
/// one.
async fn read_or_create(context: &Context, wanted: &Config) -> Result<Config, OpenError> {
    if let Some(found) = read(context, &wanted.name).await? {
        return adopt_limit(context, wanted, found).await;
    }
    let error = match context.create_stream(wanted.clone()).await {
        Ok(stream) => return Ok(stream.cached_info().config.clone()),
        Err(error) => error,
    };
    // Another program may have been faster.
    match read(context, &wanted.name).await? {
        Some(found) => adopt_limit(context, wanted, found).await,
        None => Err(server_error(&wanted.name, error)),
    }
}

/// The configuration of a stream, if it exists.
async fn read(context: &Context, stream: &str) -> Result<Option<Config>, OpenError> {
    match context.get_stream(stream).await {
        Ok(found) => Ok(Some(found.cached_info().config.clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(api)
                if api.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(None)
            }
            _ => Err(server_error(stream, error)),
        },
    }
}

async fn adopt_limit(
    context: &Context,
    wanted: &Config,
    found: Config,
) -> Result<Config, OpenError> {
    if found.max_bytes == wanted.max_bytes {
        return Ok(found);
    }
    let adopted = Config {
        max_bytes: wanted.max_bytes,
        ..found
    };
    let info = context
        .update_stream(adopted)
        .await
        .map_err(|source| server_error(&wanted.name, source))?;
    Ok(info.config)
}

/// Compares our settings, field by field; ignores fields that the server adds.
fn compare(wanted: &Config, found: &Config) -> Result<(), OpenError> {
    let json = |config: &Config| serde_json::to_value(config).expect("a configuration is JSON");
    let mismatch = |field: &str, wanted_value: &Value, found_value: &Value| {
        Err(OpenError::Mismatch {
            stream: wanted.name.clone(),
            field: field.to_owned(),
            wanted: wanted_value.clone(),
            found: found_value.clone(),
        })
    };
    // No value means "default"; `async` is not durable.
    if found.persist_mode == Some(PersistenceMode::Async) {
        return mismatch("persist_mode", &"default".into(), &"async".into());
    }
    let (wanted_json, found_json) = (json(wanted), json(found));
    for (field, value) in wanted_json.as_object().into_iter().flatten() {
        let is_set = !value.is_null() && *value != 0;
        if is_set && found_json[field] != *value {
            return mismatch(field, value, &found_json[field]);
        }
    }
    Ok(())
}

fn server_error(
    stream: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> OpenError {
    OpenError::Server {
        stream: stream.to_owned(),
        source: source.into(),
    }
}
