//! Writes the chunks first and the record last.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, Extensions, MultipartUpload, PutMode, PutPayload, PutResult, Result, UpdateVersion,
    UploadPart,
};
use uuid::Uuid;

use super::record::{Body, Layout, Record, StoredRecord};
use super::transport::{Failure, Transport};
use super::{CHUNK_BYTES, CHUNK_WINDOW, INLINE_BYTES_MAX};

/// Maximum time of an upload, checked at its end, in seconds: half of the age at which a sweep may remove
/// its chunks, so that clocks may be hours apart.
pub(super) const UPLOAD_SECONDS_MAX: u64 = 12 * 60 * 60;

/// Stores an object whose bytes are complete.
pub(super) async fn put(
    transport: &Transport,
    location: &Path,
    payload: PutPayload,
    mode: &PutMode,
) -> Result<PutResult> {
    if payload.content_length() <= INLINE_BYTES_MAX {
        return commit(transport, location, &Record::inline(payload.into()), mode).await;
    }
    // An early check that saves the transfer of megabytes; the guard of the record decides.
    if *mode == PutMode::Create && read_record(transport, location).await?.is_some() {
        return Err(already_exists(location));
    }
    let upload = Uuid::now_v7();
    let size_bytes = payload.content_length() as u64;
    let sent = put_part(transport, upload, 0, payload).await;
    let record = Record::chunked(upload, Layout::of([size_bytes], CHUNK_BYTES as u64));
    seal(transport, location, sent, record, mode).await
}

/// Writes the record after all chunks were sent. Removes the chunks if no record can name them; if that
/// is uncertain, leaves them to the sweep.
async fn seal(
    transport: &Transport,
    location: &Path,
    sent: Result<()>,
    record: Record,
    mode: &PutMode,
) -> Result<PutResult> {
    if let Err(error) = sent {
        discard(transport, record.upload).await;
        return Err(error);
    }
    let committed = commit(transport, location, &record, mode).await;
    if committed.as_ref().is_err_and(is_refusal) {
        discard(transport, record.upload).await;
    }
    committed
}

/// Whether the stream has rejected the commit; any other error may be a lost answer.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => true,
        Error::Generic { source, .. } => source
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull),
        _ => false,
    }
}

/// Removes an object: its record, then its chunks. Removes only the record that was read: a later put stays, also
/// when the request is repeated.
pub(super) async fn delete(transport: &Transport, location: &Path) -> Result<()> {
    let subject = transport.subjects.record(location)?;
    let stored = read_record(transport, location).await?;
    let Some(StoredRecord {
        record, sequence, ..
    }) = stored
    else {
        return Err(super::not_found(location));
    };
    transport.purge_before(&subject, Some(sequence + 1)).await?;
    if let Body::Chunks(_) = record.body {
        transport
            .purge(&transport.subjects.chunks_of(record.upload))
            .await?;
    }
    Ok(())
}

/// Copies an object with its bytes, because chunks belong to exactly one record.
pub(super) async fn copy(
    transport: &Transport,
    from: &Path,
    to: &Path,
    mode: &PutMode,
) -> Result<()> {
    let stored = read_record(transport, from).await?;
    let record = stored.ok_or_else(|| super::not_found(from))?.record;
    let layout = match record.body {
        Body::Inline(bytes) => {
            commit(transport, to, &Record::inline(bytes), mode).await?;
            return Ok(());
        }
        Body::Chunks(layout) => layout,
    };
    let upload = Uuid::now_v7();
    let size_bytes = layout.size_bytes();
    let puts = layout
        .clone()
        .pieces(0..size_bytes)
        .map(|piece| async move {
            let bytes = super::get::chunk(transport, record.upload, &piece).await?;
            transport
                .put_chunk(upload, piece.part, piece.number, bytes)
                .await
        });
    let copied = all_or_settled(puts).await;
    seal(transport, to, copied, Record::chunked(upload, layout), mode).await?;
    Ok(())
}

/// The record of an object from the leader.
pub(super) async fn read_record(
    transport: &Transport,
    location: &Path,
) -> Result<Option<StoredRecord>> {
    let subject = transport.subjects.record(location)?;
    let message = transport.last(&subject).await?;
    message
        .map(|message| Record::read(location, message))
        .transpose()
}

/// Writes the record; the object then exists.
async fn commit(
    transport: &Transport,
    location: &Path,
    record: &Record,
    mode: &PutMode,
) -> Result<PutResult> {
    let guard = match mode {
        PutMode::Overwrite => None,
        PutMode::Create => Some(0),
        PutMode::Update(version) => Some(expected_sequence(location, version)?),
    };
    let subject = transport.subjects.record(location)?;
    let sequence = match transport.put_record(subject, guard, record.message()).await {
        Ok(sequence) => sequence,
        Err(Failure::Error(error)) => return Err(error),
        // The existing record may be our own, whose confirmation was lost.
        Err(Failure::Conflict) => match read_record(transport, location).await? {
            Some(found) if found.record.upload == record.upload => {
                return Ok(put_result(found.meta.e_tag));
            }
            _ if *mode == PutMode::Create => return Err(already_exists(location)),
            _ => return Err(precondition(location, "the object has changed")),
        },
    };
    Ok(put_result(Some(sequence.to_string())))
}

fn put_result(e_tag: Option<String>) -> PutResult {
    PutResult {
        e_tag,
        version: None,
        extensions: Extensions::default(),
    }
}

fn expected_sequence(location: &Path, version: &UpdateVersion) -> Result<u64> {
    let sequence = version
        .e_tag
        .as_deref()
        .and_then(|e_tag| e_tag.parse().ok());
    sequence.ok_or_else(|| precondition(location, "invalid ETag; expected an ETag of this store"))
}

fn already_exists(location: &Path) -> Error {
    Error::AlreadyExists {
        path: location.to_string(),
        source: "the object exists".into(),
    }
}

fn precondition(location: &Path, why: &'static str) -> Error {
    Error::Precondition {
        path: location.to_string(),
        source: why.into(),
    }
}

/// Stores one part in chunks.
async fn put_part(
    transport: &Transport,
    upload: Uuid,
    part: usize,
    payload: PutPayload,
) -> Result<()> {
    let puts = chunks(payload)
        .enumerate()
        .map(|(number, bytes)| transport.put_chunk(upload, part, number as u64, bytes));
    all_or_settled(puts).await
}

/// Runs a few of `puts` concurrently. After an error starts no more, but waits for puts in progress: a
/// chunk that is stored after the removal of its upload would stay until the next sweep.
async fn all_or_settled<Put>(mut puts: impl Iterator<Item = Put> + Send) -> Result<()>
where
    Put: Future<Output = Result<()>> + Send,
{
    let mut under_way = FuturesUnordered::new();
    let mut result = Ok(());
    loop {
        while result.is_ok()
            && under_way.len() < CHUNK_WINDOW
            && let Some(put) = puts.next()
        {
            under_way.push(put);
        }
        match under_way.next().await {
            Some(ended) => result = result.and(ended),
            None => return result,
        }
    }
}

/// Cuts a payload into chunks, without a copy for chunks within one piece of the payload.
fn chunks(payload: PutPayload) -> impl Iterator<Item = Bytes> + Send {
    let mut pieces = payload.into_iter();
    let mut rest = Bytes::new();
    std::iter::from_fn(move || {
        while rest.is_empty() {
            rest = pieces.next()?;
        }
        if rest.len() >= CHUNK_BYTES {
            return Some(rest.split_to(CHUNK_BYTES));
        }
        let mut chunk = BytesMut::from(std::mem::take(&mut rest));
        while chunk.len() < CHUNK_BYTES {
            let Some(mut piece) = pieces.next() else {
                break;
            };
            let taken = piece.split_to(piece.len().min(CHUNK_BYTES - chunk.len()));
            chunk.extend_from_slice(&taken);
            rest = piece;
        }
        Some(chunk.freeze())
    })
}

/// Removes the chunks of a failed upload; leaves unreachable ones to the sweep.
async fn discard(transport: &Transport, upload: Uuid) {
    if !transport.may_remove {
        return;
    }
    let filter = transport.subjects.chunks_of(upload);
    if let Err(error) = transport.purge(&filter).await {
        tracing::warn!(%upload, %error, "the chunks of a failed upload stay until the next sweep");
    }
}

/// An upload in parts of any size, sent in any order and concurrently.
#[derive(Debug)]
pub(super) struct Upload {
    transport: Arc<Transport>,
    location: Path,
    id: Uuid,
    /// Sizes in bytes of the stored parts; none for a part that is not stored.
    parts: Arc<Mutex<Vec<Option<u64>>>>,
    /// Whether an unconfirmed record may name the chunks.
    may_be_complete: bool,
}

impl Upload {
    /// Begins an upload; sends nothing before the first part.
    pub(super) fn begin(transport: Arc<Transport>, location: &Path) -> Result<Self> {
        transport.subjects.record(location)?;
        let location = location.clone();
        Ok(Self {
            transport,
            location,
            id: Uuid::now_v7(),
            parts: Arc::default(),
            may_be_complete: false,
        })
    }

    fn layout(&self) -> Result<Layout> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes: Option<Vec<u64>> = parts.iter().copied().collect();
        let sizes = sizes.ok_or_else(|| super::generic("a part of the upload was not stored"))?;
        Ok(Layout::of(sizes, CHUNK_BYTES as u64))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let parts = Arc::clone(&self.parts);
        let part = {
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.push(None);
            parts.len() - 1
        };
        let (transport, id) = (Arc::clone(&self.transport), self.id);
        Box::pin(async move {
            let size_bytes = payload.content_length() as u64;
            put_part(&transport, id, part, payload).await?;
            parts.lock().unwrap_or_else(PoisonError::into_inner)[part] = Some(size_bytes);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if age_seconds(self.id) > UPLOAD_SECONDS_MAX {
            return Err(super::generic(format!(
                "the upload took longer than {UPLOAD_SECONDS_MAX} s"
            )));
        }
        let record = Record::chunked(self.id, self.layout()?);
        let mode = PutMode::Overwrite;
        let committed = commit(&self.transport, &self.location, &record, &mode).await;
        self.may_be_complete = !committed.as_ref().is_err_and(is_refusal);
        committed
    }

    async fn abort(&mut self) -> Result<()> {
        if !self.may_be_complete && self.transport.may_remove {
            let filter = self.transport.subjects.chunks_of(self.id);
            self.transport.purge(&filter).await?;
        }
        Ok(())
    }
}

/// Age of an upload in seconds, by its id and this host's clock.
pub(super) fn age_seconds(upload: Uuid) -> u64 {
    let now = Uuid::now_v7()
        .get_timestamp()
        .map_or(0, |time| time.to_unix().0);
    let begun = upload.get_timestamp().map_or(now, |time| time.to_unix().0);
    now.saturating_sub(begun)
}

#[cfg(test)]
mod tests;
