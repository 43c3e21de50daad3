//! Creates a stream, or compares an existing one: a server drops unknown settings without an error, and
//! an operator may have created the stream manually.
//!
//! Updates a stream where the server allows it. A stream that still differs is an error that lists every
//! difference. Never removes a stream, because it may contain the only copy of its data.

use std::collections::BTreeSet;
use std::fmt;

use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config, Info};
use async_nats::jetstream::{self, ErrorCode};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use aod_ports::BoxError;

use crate::link::{Failure, Link};

/// A wrong setting of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The setting, as the server names it.
    pub setting: String,
    pub wanted: Value,
    pub found: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} is {}, expected {}",
            self.setting, self.found, self.wanted
        )
    }
}

/// All differences, on one line.
fn listed(differences: &[Difference]) -> String {
    differences
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Why a stream cannot be used, by what the operator can do.
#[derive(Debug, Error)]
pub enum StreamError {
    /// Change the stream or the requested limits, or check that the server is the right one.
    #[error("stream {stream} has wrong settings: {}; change them, or check that this is AOD's broker", listed(.differences))]
    Mismatch {
        stream: String,
        differences: Vec<Difference>,
        /// The server's error for the attempt to change the stream.
        source: Option<BoxError>,
    },
    /// Start a gateway, which creates the streams.
    #[error("stream {stream} does not exist; start a gateway, which creates it")]
    Missing { stream: String },
    /// The server rejected the creation, or did not answer.
    #[error("stream {stream} cannot be created or read")]
    Server { stream: String, source: BoxError },
}

/// Whether to change the limits of an existing stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    Set,
    Keep,
}

/// The existing stream, if any.
pub(crate) async fn find(link: &Link, stream: &str) -> Result<Option<Info>, StreamError> {
    let subject = format!("STREAM.INFO.{stream}");
    match request(link, &subject, &()).await {
        Ok(Ok(info)) => Ok(Some(info)),
        Ok(Err(error)) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
        Ok(Err(error)) => Err(server_error(stream, error)),
        Err(source) => Err(server_error(stream, source)),
    }
}

/// Creates the stream `wanted`, or compares the existing one and changes it if necessary.
pub(crate) async fn ensure(
    link: &Link,
    wanted: Config,
    limits: Limits,
) -> Result<Info, StreamError> {
    let stream = wanted.name.clone();
    if let Some(found) = find(link, &stream).await? {
        return adjust(link, wanted, found, limits).await;
    }
    match request(link, &format!("STREAM.CREATE.{stream}"), &wanted).await {
        Ok(Ok(made)) => {
            let differences = differences(&adopt(wanted, &made.config, Limits::Set), &made.config);
            refuse_differences(stream, differences, None)?;
            Ok(made)
        }
        // Another program was faster, with its own settings.
        Ok(Err(error)) if error.error_code() == ErrorCode::STREAM_NAME_EXIST => {
            let found = find(link, &stream)
                .await?
                .ok_or_else(|| server_error(&stream, error))?;
            adjust(link, wanted, found, limits).await
        }
        Ok(Err(error)) => Err(server_error(&stream, error)),
        Err(source) => Err(server_error(&stream, source)),
    }
}

/// Changes the stream `found` to `wanted` where the server allows it.
async fn adjust(
    link: &Link,
    wanted: Config,
    found: Info,
    limits: Limits,
) -> Result<Info, StreamError> {
    let stream = wanted.name.clone();
    let wanted = adopt(wanted, &found.config, limits);
    let before = differences(&wanted, &found.config);
    if before.is_empty() {
        return Ok(found);
    }
    match request(link, &format!("STREAM.UPDATE.{stream}"), &wanted).await {
        Ok(Ok(changed)) => {
            tracing::debug!("changed stream {stream}: {}", listed(&before));
            // The server may have changed its own metadata.
            let wanted = adopt(wanted, &changed.config, Limits::Set);
            refuse_differences(stream, differences(&wanted, &changed.config), None)?;
            Ok(changed)
        }
        Ok(Err(error)) => Err(StreamError::Mismatch {
            stream,
            differences: before,
            source: Some(error.into()),
        }),
        Err(source) => Err(server_error(&stream, source)),
    }
}

fn refuse_differences(
    stream: String,
    differences: Vec<Difference>,
    source: Option<BoxError>,
) -> Result<(), StreamError> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(StreamError::Mismatch {
        stream,
        differences,
        source,
    })
}

/// Adapts `wanted` to an existing stream: keeps its first sequence (although a source may begin later by
/// now) and the server's own metadata.
fn adopt(mut wanted: Config, found: &Config, limits: Limits) -> Config {
    wanted.first_sequence = found.first_sequence;
    wanted.metadata.clone_from(&found.metadata);
    for source in wanted.sources.iter_mut().flatten() {
        let same = found
            .sources
            .iter()
            .flatten()
            .find(|other| other.name == source.name);
        source.start_sequence = source
            .start_sequence
            .max(same.and_then(|same| same.start_sequence));
    }
    if limits == Limits::Keep {
        wanted.max_bytes = found.max_bytes;
        wanted.max_age = found.max_age;
        wanted.num_replicas = found.num_replicas;
        // A stream that need not be synced may be synced; a stream that must be synced may not differ.
        if wanted.persist_mode.is_some() {
            wanted.persist_mode.clone_from(&found.persist_mode);
        }
    }
    wanted
}

/// Every setting that differs or that only one of both has.
fn differences(wanted: &Config, found: &Config) -> Vec<Difference> {
    let (wanted, found) = (as_value(wanted), as_value(found));
    let settings = |value: &Value| -> BTreeSet<String> {
        value
            .as_object()
            .into_iter()
            .flat_map(|object| object.keys().cloned())
            .collect()
    };
    let mut all = settings(&wanted);
    all.append(&mut settings(&found));
    all.into_iter()
        .map(|setting| Difference {
            wanted: wanted.get(&setting).cloned().unwrap_or_default(),
            found: found.get(&setting).cloned().unwrap_or_default(),
            setting,
        })
        .filter(|difference| difference.wanted != difference.found)
        .collect()
}

fn as_value(config: &Config) -> Value {
    serde_json::to_value(config).expect("a configuration is plain data with text keys")
}

/// A request to the API of streams: the outer error is the connection's, the inner one the server's.
async fn request(
    link: &Link,
    subject: &str,
    payload: &(impl Serialize + ?Sized + Sync),
) -> Result<Result<Info, jetstream::Error>, BoxError> {
    link.patiently(|| async move {
        let asked = async {
            match link.context.request(subject.to_owned(), payload).await {
                Ok(Response::Ok(info)) => Ok(Ok(info)),
                Ok(Response::Err { error }) => Ok(Err(error)),
                Err(error) => Err(Failure::transient(error)),
            }
        };
        link.permitted(&format!("$JS.API.{subject}"), asked).await
    })
    .await
}

fn server_error(stream: &str, source: impl Into<BoxError>) -> StreamError {
    StreamError::Server {
        stream: stream.to_owned(),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::stream::PersistenceMode;

    use super::*;
    use crate::config::StreamLimits;
    use crate::streams;

    #[test]
    fn error_names_every_difference() {
        let wanted = streams::events(&StreamLimits::default());
        let found = Config {
            deny_purge: false,
            max_messages: 5,
            ..wanted.clone()
        };
        let error = refuse_differences("EVENTS".into(), differences(&wanted, &found), None);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("deny_purge is null, expected true"), "{text}");
        assert!(text.contains("max_msgs is 5, expected -1"), "{text}");
    }

    #[test]
    fn unsynced_log_is_rejected_and_synced_queue_is_accepted() {
        let limits = StreamLimits::default();
        let kept = |wanted: Config, persist_mode| {
            let found = Config {
                persist_mode,
                ..wanted.clone()
            };
            differences(&adopt(wanted, &found, Limits::Keep), &found)
        };
        let log = kept(streams::events(&limits), Some(PersistenceMode::Async));
        assert_eq!(log[0].setting, "persist_mode");
        assert_eq!(kept(streams::work(&limits, None), None), []);
    }

    #[test]
    fn limits_are_kept_on_demand_and_first_sequences_always() {
        let limits = StreamLimits::default();
        let found = streams::work(
            &StreamLimits {
                work_bytes_max: 7,
                ..limits
            },
            Some(9),
        );
        let wanted = streams::work(&limits, None);
        let kept = adopt(wanted.clone(), &found, Limits::Keep);
        assert_eq!(differences(&kept, &found), []);
        let later = adopt(streams::work(&limits, Some(10)), &found, Limits::Keep);
        assert_eq!(differences(&later, &found)[0].setting, "sources");
        let set = adopt(wanted, &found, Limits::Set);
        assert_eq!(differences(&set, &found)[0].setting, "max_bytes");
    }
}
