//! Reads the record from the leader and the chunks from any replica, a few chunks ahead.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use object_store::path::Path;
use object_store::{Extensions, GetOptions, GetRange, GetResult, GetResultPayload, Result};
use uuid::Uuid;

use super::CHUNK_WINDOW;
use super::put::read_record;
use super::record::{Body, Piece};
use super::transport::Transport;

pub(super) async fn get(
    transport: &Arc<Transport>,
    location: &Path,
    options: GetOptions,
) -> Result<GetResult> {
    let stored = read_record(transport, location).await?;
    let stored = stored.ok_or_else(|| super::not_found(location))?;
    options.check_preconditions(&stored.meta)?;
    let range = match &options.range {
        Some(range) => in_object(range, stored.meta.size)?,
        None => 0..stored.meta.size,
    };
    let payload = match stored.record.body {
        _ if options.head => stream::empty().boxed(),
        Body::Inline(bytes) => {
            let in_memory = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let wanted = bytes.slice(in_memory(range.start)..in_memory(range.end));
            stream::iter([Ok(wanted)]).boxed()
        }
        Body::Chunks(layout) => {
            let (transport, upload) = (Arc::clone(transport), stored.record.upload);
            stream::iter(layout.pieces(range.clone()))
                .map(move |piece| {
                    let transport = Arc::clone(&transport);
                    async move {
                        let bytes = chunk(&transport, upload, &piece).await?;
                        Ok(bytes.slice(piece.wanted))
                    }
                })
                .buffered(CHUNK_WINDOW)
                .boxed()
        }
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(payload),
        meta: stored.meta,
        range,
        attributes: object_store::Attributes::default(),
        extensions: Extensions::default(),
    })
}

/// The whole chunk of `piece`.
pub(super) async fn chunk(transport: &Transport, upload: Uuid, piece: &Piece) -> Result<Bytes> {
    let subject = transport.subjects.chunk(upload, piece.part, piece.number);
    let Some(bytes) = transport.chunk(&subject).await? else {
        return Err(super::damaged(format!("chunk {subject} is missing")));
    };
    if bytes.len() != piece.chunk_bytes {
        let (found, wanted) = (bytes.len(), piece.chunk_bytes);
        return Err(super::damaged(format!(
            "chunk {subject} has {found} bytes, expected {wanted}"
        )));
    }
    Ok(bytes)
}

fn in_object(range: &GetRange, size_bytes: u64) -> Result<std::ops::Range<u64>> {
    range.as_range(size_bytes).map_err(super::generic)
}
