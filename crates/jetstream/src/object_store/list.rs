//! Lists the headers of all records below a prefix, in one pass of the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, DeliverPolicy, push};
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Extensions, ListResult, ObjectMeta, Result};
use tokio::time::timeout;
use uuid::Uuid;

use super::record;
use super::transport::Transport;

/// Maximum time without a record during a list, in seconds: enough for a restart of the server.
const SILENCE_SECONDS_MAX: u64 = 15;

/// One object of a list.
pub(super) struct Listed {
    pub(super) upload: Uuid,
    pub(super) meta: ObjectMeta,
}

/// All objects below `prefix`, in the order of their writes. Objects that are written or removed during
/// the list may be included or not.
pub(super) fn list(
    transport: Arc<Transport>,
    prefix: Option<&Path>,
) -> impl Stream<Item = Result<Listed>> + Send + use<> {
    let filter = transport
        .subjects
        .records(prefix.filter(|path| !path.is_root()));
    stream::once(async move {
        let consumer = consumer(&transport, filter).await?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(super::generic)?;
        Ok::<_, object_store::Error>(records(transport, messages, pending))
    })
    .try_flatten()
}

/// The objects directly in `prefix`, and the prefixes one segment longer that contain objects.
pub(super) async fn list_with_delimiter(
    transport: Arc<Transport>,
    prefix: Option<&Path>,
) -> Result<ListResult> {
    let root = prefix.cloned().unwrap_or_default();
    let mut common_prefixes = BTreeSet::new();
    let mut objects = Vec::new();
    let mut listed = Box::pin(list(transport, prefix));
    while let Some(Listed { meta, .. }) = listed.try_next().await? {
        let below = meta
            .location
            .prefix_match(&root)
            .map(|mut parts| (parts.next(), parts.next()));
        match below {
            Some((Some(directory), Some(_))) => {
                common_prefixes.insert(root.clone().join(directory));
            }
            _ => objects.push(meta),
        }
    }
    objects.sort_by(|left, right| left.location.cmp(&right.location));
    Ok(ListResult {
        common_prefixes: common_prefixes.into_iter().collect(),
        objects,
        extensions: Extensions::default(),
    })
}

async fn consumer(transport: &Transport, filter: String) -> Result<Consumer<push::OrderedConfig>> {
    let config = push::OrderedConfig {
        name: Some(format!("list-{}", Uuid::now_v7().simple())),
        deliver_subject: transport.context.client().new_inbox(),
        filter_subject: filter,
        headers_only: true,
        deliver_policy: DeliverPolicy::All,
        ..Default::default()
    };
    transport
        .stream
        .create_consumer(config)
        .await
        .map_err(super::generic)
}

/// Reads records until the server reports that none is left.
fn records(
    transport: Arc<Transport>,
    messages: push::Ordered,
    pending: u64,
) -> impl Stream<Item = Result<Listed>> + Send {
    stream::try_unfold((messages, pending), move |(mut messages, pending)| {
        let transport = Arc::clone(&transport);
        async move {
            if pending == 0 {
                return Ok(None);
            }
            let silence = Duration::from_secs(SILENCE_SECONDS_MAX);
            let next = timeout(silence, messages.next()).await;
            let message = match next {
                Ok(Some(message)) => message.map_err(super::generic)?,
                Ok(None) => return Err(super::generic("the list ended early")),
                Err(_) => {
                    return Err(super::generic("the list timed out"));
                }
            };
            let info = message.info().map_err(super::generic)?;
            let location = transport
                .subjects
                .location(&message.subject)
                .ok_or_else(|| super::damaged(format!("invalid path in {}", message.subject)))?;
            let headers = message.headers.clone().unwrap_or_default();
            let published = info.published.unix_timestamp_nanos();
            let (upload, meta) =
                record::read_headers(&location, &headers, info.stream_sequence, published)?;
            let left = info.pending;
            Ok(Some((Listed { upload, meta }, (messages, left))))
        }
    })
}
