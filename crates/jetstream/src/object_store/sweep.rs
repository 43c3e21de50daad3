//! Removes chunks without a record: of failed uploads, and of overwritten objects.

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::TryStreamExt as _;
use object_store::Result;
use uuid::Uuid;

use super::list;
use super::put::{UPLOAD_SECONDS_MAX, age_seconds};
use super::transport::Transport;

/// Minimum age of an upload whose chunks can be left-overs, in seconds: the maximum time of an upload, and
/// the same time again for differences of clocks.
pub const SWEEP_AGE_SECONDS_MIN: u64 = 2 * UPLOAD_SECONDS_MAX;

/// The result of a sweep.
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
    // Chunks first: the later list of records then includes uploads that complete meanwhile.
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
