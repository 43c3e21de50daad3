//! A blob on its way into the store: a spool file and the hash of what it has.

use aod_domain::digest::{Digest, Hasher};
use aod_ports::artifact_store::{ArtifactStore, StoreError, Stored};
use axum::body::Body;
use futures::StreamExt as _;
use std::time::Duration;
use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::error::{Error, Result, chain};

/// Maximum time between two pieces of a body. The client is on the same host.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// An unfinished upload. Dropping it deletes its file.
#[derive(Debug)]
pub(crate) struct Upload {
    file: File,
    path: TempPath,
    hasher: Box<HasherOf>,
}

/// The hash and the number of the bytes in the file.
#[derive(Default)]
struct HasherOf {
    hasher: Hasher,
    size_bytes: u64,
}

impl std::fmt::Debug for HasherOf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.size_bytes)
    }
}

impl Upload {
    pub(crate) fn create(artifacts: &dyn ArtifactStore) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix("upload-")
            .tempfile_in(artifacts.spool_directory())
            .map_err(|error| Error::from(unwritten(error)))?;
        let (file, path) = file.into_parts();
        Ok(Self {
            file: File::from_std(file),
            path,
            hasher: Box::default(),
        })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.hasher.size_bytes
    }

    /// Appends a body.
    pub(crate) async fn append(&mut self, body: Body) -> Result<()> {
        let mut pieces = body.into_data_stream();
        loop {
            let piece = tokio::time::timeout(SILENCE_MAX, pieces.next()).await;
            let piece = piece.map_err(|_| Error::broken_upload("the client sent nothing"))?;
            let Some(piece) = piece else { break };
            let piece = piece.map_err(|error| Error::broken_upload(chain(&error)))?;
            self.hasher.hasher.update(&piece);
            self.hasher.size_bytes += piece.len() as u64;
            let written = self.file.write_all(&piece).await;
            written.map_err(|error| Error::from(unwritten(error)))?;
        }
        let flushed = self.file.flush().await;
        flushed.map_err(|error| Error::from(unwritten(error)))
    }

    /// Stores the bytes as the artifact `expected`.
    pub(crate) async fn store(
        self,
        artifacts: &dyn ArtifactStore,
        expected: Digest,
    ) -> Result<u64> {
        let size_bytes = self.hasher.size_bytes;
        let digest = self.hasher.hasher.finish();
        if digest != expected {
            let text = format!("the {size_bytes} received bytes have the digest sha256:{digest}");
            return Err(Error::wrong_digest(text));
        }
        drop(self.file);
        let stored = Stored { digest, size_bytes };
        artifacts.put_file(&self.path, Some(stored)).await?;
        // On success the file is no longer there.
        let _ = self.path.keep();
        Ok(size_bytes)
    }
}

fn unwritten(source: std::io::Error) -> StoreError {
    StoreError::from_io("the spool directory", source)
}
