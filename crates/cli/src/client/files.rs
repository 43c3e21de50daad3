//! Transfer of files to and from a gateway: streamed, never held in memory, compared with their digests.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use aod_api::audit::TREE_HEADER;
use aod_api::files::{FileView, UploadedFile};
use aod_domain::digest::{Digest, Hasher};
use aod_domain::id::RunId;
use futures::StreamExt as _;
use reqwest::{Body, Method, Response};
use tempfile::NamedTempFile;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::{Client, ClientError, Upload};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::data;

/// Buffer for reading a file, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// Maximum attempts to fetch a file; each starts from the beginning.
const FETCHES_MAX: u32 = 3;

/// The file at `path` as a body.
pub(super) async fn body(path: &Path) -> Result<Body, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage(format!("{} cannot be read", path.display())).because(&error)
    };
    let file = File::open(path).await.map_err(unreadable)?;
    let metadata = file.metadata().await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!(
            "{} is not a regular file",
            path.display()
        )));
    }
    Ok(Body::wrap_stream(ReaderStream::with_capacity(
        file, READ_BYTES,
    )))
}

impl Client {
    /// Stores a file; requests name it by the returned digest.
    pub(crate) async fn upload(&self, upload: &Upload) -> Result<UploadedFile, ClientError> {
        self.patiently(async || {
            let body = body(&upload.path).await.map_err(ClientError::Broken)?;
            let response = self
                .send(self.request(Method::POST, "/v1/files").body(body))
                .await?;
            self.read(response).await
        })
        .await
    }

    /// Fetches a file into `directory`, under its own name; a rename makes the complete file appear.
    pub(crate) async fn download(&self, file: &FileView, directory: &Path) -> Result<(), Failure> {
        let target = directory.join(file.name.as_str());
        let parent = target.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent).map_err(|error| data::unusable(parent, &error))?;
        let mut failure = None;
        for _ in 0..FETCHES_MAX {
            match self.fetch(file, parent, &target).await {
                Err(error) if error.exit == Exit::Unreachable => failure = Some(error),
                outcome => return outcome,
            }
        }
        Err(failure.expect("there is at least one try"))
    }

    async fn fetch(&self, file: &FileView, parent: &Path, target: &Path) -> Result<(), Failure> {
        let response = self.send(self.request(Method::GET, &file.url)).await?;
        let received = self.receive(response, parent, target).await?;
        if received.size_bytes != file.size_bytes || received.digest != file.digest {
            let message = format!(
                "the received content of {} differs from the stored file",
                file.name
            );
            return Err(Failure::new(Exit::Unreachable, message)
                .with_hint("retry; if the error remains, the artifact store is damaged"));
        }
        received.keep(target)
    }

    /// Fetches the bundle at `path` of the gateway; a rename makes the complete file appear.
    pub(crate) async fn save_bundle(
        &self,
        path: &str,
        target: &Path,
    ) -> Result<StoredBundle, Failure> {
        let response = self.send(self.request(Method::GET, path)).await?;
        let root = response.headers().get(TREE_HEADER);
        let root = root.and_then(|root| root.to_str().ok()?.parse().ok());
        let root = root.ok_or_else(|| {
            Failure::new(
                Exit::Internal,
                "the gateway's answer does not name the root of the bundle",
            )
            .with_hint("use the same version of gateway and `aod`")
        })?;
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let received = self.receive(response, parent, target).await?;
        let stored = StoredBundle {
            root,
            size_bytes: received.size_bytes,
            digest: received.digest,
        };
        received.keep(target)?;
        Ok(stored)
    }

    /// Writes the answer to a temporary file next to `target`.
    async fn receive(
        &self,
        response: Response,
        parent: &Path,
        target: &Path,
    ) -> Result<Received, Failure> {
        let unusable = |error: std::io::Error| data::unusable(target, &error);
        // The usual mode of new files; the user's umask applies.
        let mode = PermissionsExt::from_mode(0o666);
        let draft = tempfile::Builder::new()
            .prefix(".aod-")
            .permissions(mode)
            .tempfile_in(parent)
            .map_err(unusable)?;
        let mut written = File::from_std(draft.reopen().map_err(unusable)?);
        let mut bytes = response.bytes_stream();
        let mut hasher = Hasher::new();
        let mut size_bytes = 0;
        while let Some(piece) = bytes.next().await {
            let piece = piece
                .map_err(|error| self.broken(&error))
                .map_err(Failure::from)?;
            size_bytes += piece.len() as u64;
            hasher.update(&piece);
            written.write_all(&piece).await.map_err(unusable)?;
        }
        written.flush().await.map_err(unusable)?;
        Ok(Received {
            draft,
            size_bytes,
            digest: hasher.finish(),
        })
    }
}

/// A fetched bundle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBundle {
    /// The root of the bundle's tree.
    pub(crate) root: RunId,
    pub(crate) size_bytes: u64,
    pub(crate) digest: Digest,
}

/// A received file under a temporary name.
struct Received {
    draft: NamedTempFile,
    size_bytes: u64,
    digest: Digest,
}

impl Received {
    /// Renames the file to `target`.
    fn keep(self, target: &Path) -> Result<(), Failure> {
        let kept = self.draft.persist(target);
        kept.map_err(|error| data::unusable(target, &error.error))?;
        Ok(())
    }
}
