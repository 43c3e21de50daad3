//! Opens the stream of a bucket: created if need be, its configuration echoed and compared, since
//! a server drops what it does not know and says OK.

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

/// Time for one answer, in seconds; a chunk on a slow disk takes a fraction of one.
const ANSWER_SECONDS_MAX: u64 = 5;

/// Room for headers and subject beside a chunk or an inline object, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 4096;

/// Messages that may wait for their confirmation: above what the transport ever has under way.
const UNCONFIRMED_MAX: usize = 256;

/// How long the stream knows message ids: longer than any request is repeated. 0.24 KB each.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// How often is looked for a stream that another makes.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Which stream a bucket lies in, and how large it may become.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    /// Name of the stream, such as `FILES`.
    pub stream: String,
    /// First token of all its subjects after `obj.`: letters, digits, `-` and `_`.
    pub bucket: String,
    /// Most that the stream may hold, in bytes; a put beyond it fails with `StorageFull`.
    pub bytes_max: u64,
    /// Copies of the stream in the cluster, 1 to 5.
    pub replicas: usize,
}

/// Why a bucket could not be opened, sorted by what the operator does about it.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another name is needed.
    #[error("`{0}` is no name for a bucket: letters, digits, `-` and `_` are")]
    Name(String),
    /// The server's `max_payload` must be raised.
    #[error("the server takes messages of {max_payload_bytes} bytes, {needed_bytes} are needed")]
    MaxPayload {
        max_payload_bytes: usize,
        needed_bytes: usize,
    },
    /// The stream is another's, was changed, or the server is too old for it.
    #[error("stream {stream} has {field} = {found}, not {wanted}")]
    Mismatch {
        stream: String,
        field: String,
        wanted: Value,
        found: Value,
    },
    /// The server did not answer, or refused.
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

/// The same for whoever neither makes nor limits it: waits until another has made it.
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
                "it is not there: a gateway with the same store makes it, and none has yet";
            return Err(server_error(&config.stream, missing));
        }
        sleep(LOOK_PAUSE).await;
    };
    let wanted = Config {
        max_bytes: found.max_bytes,
        ..stream_config(config, &subjects)
    };
    compare(&keeping_copies(wanted, &found), &found)?;
    transport(context, config, subjects, false).await
}

/// How many copies there are is the operator's choice: what is there keeps its own.
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
        // A full store refuses; it never forgets what an event names.
        discard: DiscardPolicy::New,
        allow_direct: true,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    }
}

/// The configuration that the stream has after its limit was adopted, or it was created.
///
/// It is read first: a server without room for a second one refuses to create what is there.
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

/// The configuration of a stream; none if there is no such stream.
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

/// Compares what we set, field by field; what the server fills in does not matter.
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
    // Leaving it out means "default"; the other one would not be durable.
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
