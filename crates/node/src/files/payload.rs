//! Loads and stores payloads, as artifacts if they are too large for an event.

use aod_domain::run::{PAYLOAD_INLINE_BYTES_MAX, Payload};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;

/// Why a payload is unreadable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PayloadError {
    /// A retry may succeed.
    #[error("the node cannot fetch a payload")]
    Store(#[from] StoreError),
    /// A bug of the program that stored it.
    #[error("a stored payload is not JSON")]
    Malformed(#[from] serde_json::Error),
}

/// The value of `payload`.
pub(crate) async fn load_payload(
    payload: &Payload,
    artifacts: &dyn ArtifactStore,
) -> Result<Value, PayloadError> {
    match payload {
        Payload::Inline(value) => Ok(value.clone()),
        Payload::Artifact { digest, .. } => {
            let content = artifacts.get_stream(*digest, None).await?;
            let bytes = content
                .bytes
                .try_fold(Vec::new(), |mut all, piece| async move {
                    all.extend_from_slice(&piece);
                    Ok(all)
                });
            Ok(serde_json::from_slice(&bytes.await?)?)
        }
    }
}

/// `value` as a payload for an event.
pub(crate) async fn store_payload(
    value: Value,
    artifacts: &dyn ArtifactStore,
) -> Result<Payload, StoreError> {
    let bytes = serde_json::to_vec(&value).expect("a JSON value is JSON");
    if bytes.len() <= PAYLOAD_INLINE_BYTES_MAX {
        return Ok(Payload::Inline(value));
    }
    let stored = artifacts
        .put_stream(stream::iter([Ok(Bytes::from(bytes))]).boxed())
        .await?;
    Ok(Payload::Artifact {
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    })
}
