//! One push or one pull.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_domain::capsule::{Image, ImageContent};
use aod_domain::digest::Digest;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::clock::{Clock as _, SystemClock};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures::TryStreamExt as _;
use thiserror::Error;
use uuid::Uuid;

use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestError};
use crate::upload::Upload;
use crate::{REPOSITORY, Sessions};

/// Maximum number of unfinished uploads of one push. Source: Docker uploads at most 5 layers at a time
/// (`max-concurrent-uploads`).
const UPLOADS_MAX: usize = 16;

/// Why no pull can begin.
#[derive(Debug, Error)]
pub enum PullError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stored manifest {manifest} is unusable: {source}")]
    Manifest {
        manifest: Digest,
        source: ManifestError,
    },
    #[error("the stored manifest {manifest} is of another image")]
    OtherImage { manifest: Digest },
    #[error("the image is stored as one archive, which has no layers")]
    Archive,
}

/// An open registry, for one push or one pull. Closes when dropped.
#[derive(Debug)]
pub struct Transfer {
    address: SocketAddr,
    sessions: Sessions,
    name: String,
    secret: Secret,
    session: Arc<Session>,
}

struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.name);
    }
}

impl Transfer {
    pub(crate) fn open(
        address: SocketAddr,
        sessions: &Sessions,
        artifacts: &Arc<dyn ArtifactStore>,
        role: Role,
    ) -> Self {
        let secret = HEXLOWER.encode(&SystemClock.fresh_secret());
        let name = SystemClock.fresh_uuid().simple().to_string();
        let session = Arc::new(Session {
            secret: Digest::of(&secret),
            tag: match &role {
                Role::Push(_) => name.clone(),
                Role::Pull(pull) => pull.manifest.to_string(),
            },
            artifacts: Arc::clone(artifacts),
            role,
            moved_bytes: AtomicU64::new(0),
            was_used: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        sessions.lock().insert(name.clone(), Arc::clone(&session));
        Self {
            address,
            sessions: sessions.clone(),
            name,
            secret: Secret(secret),
            session,
        }
    }

    /// The image's name in the registry, without its tag: `127.0.0.1:40000/aod`.
    pub fn repository(&self) -> String {
        format!("{}/{REPOSITORY}", self.address)
    }

    pub fn tag(&self) -> &str {
        &self.session.tag
    }

    pub fn user(&self) -> &str {
        &self.name
    }

    pub fn secret(&self) -> &str {
        &self.secret.0
    }

    /// The image, after its push has succeeded.
    pub fn pushed(&self) -> Option<Image> {
        match &self.session.role {
            Role::Push(push) => push.pushed().clone(),
            Role::Pull(_) => None,
        }
    }

    /// Why the image can never be stored, if its manifest was refused.
    pub fn refusal(&self) -> Option<ManifestError> {
        match &self.session.role {
            Role::Push(push) => push.refusal().clone(),
            Role::Pull(_) => None,
        }
    }

    /// Whether the client has sent at least one request with the secret.
    pub fn was_used(&self) -> bool {
        self.session.was_used.load(Ordering::Relaxed)
    }

    /// The first failure of the artifact store, which clients see only as a text.
    pub fn store_failure(&self) -> Option<StoreError> {
        self.session.failure().take()
    }

    /// The bytes of blobs that a push has stored, or that a pull has fetched from elsewhere.
    pub fn moved_bytes(&self) -> u64 {
        self.session.moved_bytes.load(Ordering::Relaxed)
    }
}

/// What the server knows of a transfer.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) secret: Digest,
    /// The only tag that it may use.
    pub(crate) tag: String,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) role: Role,
    moved_bytes: AtomicU64,
    was_used: AtomicBool,
    failure: Mutex<Option<StoreError>>,
}

#[derive(Debug)]
pub(crate) enum Role {
    Push(Push),
    Pull(Pull),
}

#[derive(Debug, Default)]
pub(crate) struct Push {
    uploads: Mutex<HashMap<Uuid, Upload>>,
    pushed: Mutex<Option<Image>>,
    refusal: Mutex<Option<ManifestError>>,
}

#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) manifest: Digest,
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
    /// Sizes by digest.
    pub(crate) blobs: BTreeMap<Digest, u64>,
}

impl Session {
    pub(crate) fn count(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn mark_used(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    fn failure(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first failure.
    pub(crate) fn fail(&self, error: StoreError) {
        self.failure().get_or_insert(error);
    }
}

impl Pull {
    /// The manifest of `image`, which must fit the event that names the image.
    pub(crate) async fn of(
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<Self, PullError> {
        let ImageContent::Layers {
            manifest, layers, ..
        } = &image.content
        else {
            return Err(PullError::Archive);
        };
        let bytes = read_manifest(artifacts.as_ref(), *manifest).await?;
        let parsed = Manifest::parse(&bytes).map_err(|source| PullError::Manifest {
            manifest: *manifest,
            source,
        })?;
        if Some(parsed.config.digest) != image.config() || parsed.layers != *layers {
            return Err(PullError::OtherImage {
                manifest: *manifest,
            });
        }
        Ok(Self {
            manifest: *manifest,
            bytes,
            blobs: parsed
                .blobs()
                .map(|blob| (blob.digest, blob.size_bytes))
                .collect(),
            media_type: parsed.media_type,
        })
    }
}

async fn read_manifest(
    artifacts: &dyn ArtifactStore,
    manifest: Digest,
) -> Result<Bytes, PullError> {
    let mut content = artifacts.get_stream(manifest, None).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = content.bytes.try_next().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MANIFEST_BYTES_MAX {
            let source = ManifestError::TooLarge(bytes.len());
            return Err(PullError::Manifest { manifest, source });
        }
    }
    Ok(bytes.into())
}

impl Push {
    pub(crate) fn pushed(&self) -> MutexGuard<'_, Option<Image>> {
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<Uuid, Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refusal(&self) -> MutexGuard<'_, Option<ManifestError>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an upload back that was taken for a request.
    pub(crate) fn put_back(&self, id: Uuid, upload: Upload) {
        self.uploads().insert(id, upload);
    }

    /// Adds an upload; false if there are too many.
    pub(crate) fn begin(&self, id: Uuid, upload: Upload) -> bool {
        let mut uploads = self.uploads();
        let fits = uploads.len() < UPLOADS_MAX;
        if fits {
            uploads.insert(id, upload);
        }
        fits
    }

    /// Takes the upload for one request. If the request fails, the upload is gone.
    pub(crate) fn take(&self, id: Uuid) -> Option<Upload> {
        self.uploads().remove(&id)
    }

    /// The number of received bytes.
    pub(crate) fn received(&self, id: Uuid) -> Option<u64> {
        self.uploads().get(&id).map(Upload::size_bytes)
    }
}
