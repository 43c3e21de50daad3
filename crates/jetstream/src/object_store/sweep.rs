//! Removes chunks that no record names: of broken uploads, and of objects that were overwritten.

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::TryStreamExt as _;
use object_store::Result;
use uuid::Uuid;

use super::list;
use super::put::{UPLOAD_SECONDS_MAX, age_seconds};
use super::transport::Transport;

/// Least age of an upload, in seconds, before its chunks can be left-overs: no upload that is
/// older may complete, and as much again covers clocks that differ.
pub const SWEEP_AGE_SECONDS_MIN: u64 = 2 * UPLOAD_SECONDS_MAX;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Uploads whose chunks were removed.
    pub uploads: u64,
    /// Chunks removed, each up to 512 KiB.
    pub chunks: u64,
}

pub(super) async fn sweep(transport: &Arc<Transport>, age_seconds_min: u64) -> Result<Swept> {
    sweep_older_than(transport, age_seconds_min.max(SWEEP_AGE_SECONDS_MIN)).await
}

async fn sweep_older_than(transport: &Arc<Transport>, age_seconds_min: u64) -> Result<Swept> {
    // Chunks first: an upload that completes meanwhile then has its record in the list.
    let mut uploads = HashSet::new();
    let subjects = transport.subjects.chunks();
    let mut page = transport
        .stream
        .info_with_subjects(subjects)
        .await
        .map_err(super::generic)?;
    while let Some((subject, _)) = page.try_next().await.map_err(super::generic)? {
        let upload = transport.subjects.upload(&subject);
        uploads.extend(upload.filter(|&upload| age_seconds(upload) >= age_seconds_min));
    }
    if uploads.is_empty() {
        return Ok(Swept::default());
    }
    let mut records = Box::pin(list::list(Arc::clone(transport), None));
    while let Some(listed) = records.try_next().await? {
        uploads.remove(&listed.upload);
    }
    let mut swept = Swept::default();
    for upload in uploads {
        swept.chunks += purge(transport, upload).await?;
        swept.uploads += 1;
    }
    Ok(swept)
}

async fn purge(transport: &Transport, upload: Uuid) -> Result<u64> {
    transport.purge(&transport.subjects.chunks_of(upload)).await
}

#[cfg(test)]
mod tests;
