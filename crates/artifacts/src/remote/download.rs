//! Fetches into a spool file, hashes the bytes, and resumes an interrupted fetch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_ports::artifact_store::{Outgoing, StoreError};
use futures::StreamExt as _;
use object_store::{GetOptions, GetRange};
use tokio::time::sleep;

use super::{Remote, object_path};
use crate::error::from_object_store;
use crate::shelf::describe;
use crate::spool::{Spooled, Writer};

/// Maximum number of resumes without progress.
const RESUMES_MAX: u32 = 5;

/// First wait before a resume; doubles each time.
const RESUME_WAIT: Duration = Duration::from_millis(200);

/// The side that failed.
enum Broken {
    Store(StoreError),
    /// The spool: a retry would meet the same disk.
    Spool(StoreError),
}

impl Remote {
    /// Fetches a whole artifact of `size_bytes` from the store; counts in `received`, which is 0, what has arrived.
    pub(super) async fn download(
        self: &Arc<Self>,
        digest: Digest,
        size_bytes: u64,
        received: &AtomicU64,
    ) -> Result<Spooled, StoreError> {
        let mut writer = self.spool.writer();
        let mut offset = 0;
        let mut resumes = 0;
        while offset < size_bytes {
            let begin = offset;
            let pulled = self.pull(digest, received, size_bytes, &mut writer).await;
            offset = received.load(Ordering::Relaxed);
            match pulled {
                Ok(()) => (),
                Err(Broken::Store(error @ StoreError::Unavailable { .. })) => {
                    resumes = if offset > begin { 1 } else { resumes + 1 };
                    if resumes > RESUMES_MAX {
                        return Err(error);
                    }
                    sleep(RESUME_WAIT * 2_u32.pow(resumes - 1)).await;
                }
                Err(Broken::Spool(error)) => return Err(error),
                Err(Broken::Store(error)) => {
                    self.notice(digest, &error);
                    return Err(error);
                }
            }
        }
        let spooled = writer.finish().await?;
        if spooled.stored.digest == digest {
            return Ok(spooled);
        }
        let error = StoreError::Corrupt {
            digest,
            found: describe(spooled.stored),
        };
        self.notice(digest, &error);
        Err(error)
    }

    /// Reads what follows the `received` bytes, until the end or an error.
    async fn pull(
        &self,
        digest: Digest,
        received: &AtomicU64,
        size_bytes: u64,
        writer: &mut Writer,
    ) -> Result<(), Broken> {
        let sort = |error| Broken::Store(from_object_store(&self.place, digest, error));
        let corrupt = |found| Broken::Store(StoreError::Corrupt { digest, found });
        let mut offset = received.load(Ordering::Relaxed);
        let range = (offset > 0).then_some(GetRange::Bounded(offset..size_bytes));
        let options = GetOptions {
            range,
            ..GetOptions::default()
        };
        let got = self
            .store
            .get_opts(&object_path(digest), options)
            .await
            .map_err(sort)?;
        if got.meta.size != size_bytes {
            let found = format!("it has {} bytes, expected {size_bytes}", got.meta.size);
            return Err(corrupt(found));
        }
        let mut bytes = got.into_stream();
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(sort)?;
            offset += piece.len() as u64;
            received.store(offset, Ordering::Relaxed);
            writer.write(piece).await.map_err(Broken::Spool)?;
        }
        if offset < size_bytes {
            let found = format!("the object ends after {offset} of {size_bytes} bytes");
            return Err(corrupt(found));
        }
        Ok(())
    }

    /// Records a damaged object, so that the next put repairs it.
    pub(super) fn notice(&self, digest: Digest, error: &StoreError) {
        if matches!(error, StoreError::Corrupt { .. }) {
            self.damaged.insert(digest);
        }
    }

    /// Like [`notice`](Self::notice), for a stream.
    pub(super) fn noticing(self: &Arc<Self>, digest: Digest, bytes: Outgoing) -> Outgoing {
        let remote = Arc::clone(self);
        bytes
            .inspect(move |piece| {
                if let Err(error) = piece {
                    remote.notice(digest, error);
                }
            })
            .boxed()
    }
}
