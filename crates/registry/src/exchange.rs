//! Images on their way to and from other places: registries ([`crate::remote`]) and directories ([`crate::layout`]).

use std::path::PathBuf;
use std::sync::Arc;

use aod_domain::capsule::{Blob, Image};
use aod_domain::digest::Digest;
use aod_ports::artifact_store::{ArtifactStore, LocalFile, StoreError};
use thiserror::Error;

use crate::index::Document;
use crate::labels::CapsuleLabels;
use crate::manifest::{Manifest, ManifestError, quoted};
use crate::transfer::{Pull, PullError};

/// Maximum number of indexes between the name of an image and its manifest: the one of a layout, and one of platforms.
const INDEXES_MAX: usize = 2;

/// Why an image was not sent or received, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// The registry did not answer, or broke off; a retry sends only what is missing.
    #[error("{registry} cannot be reached")]
    Unreachable {
        registry: String,
        source: reqwest::Error,
    },
    /// The registry sent or accepted nothing for this time.
    #[error("{registry} has stopped answering, after {seconds} s of silence")]
    Silent { registry: String, seconds: u64 },
    /// Log in, or use other credentials.
    #[error("{registry} denies access to {repository} (status {status}): {reason}")]
    Denied {
        registry: String,
        repository: String,
        status: u16,
        reason: String,
    },
    /// The registry rejects the request.
    #[error("{registry} answered with status {status}: {message}")]
    Answered {
        registry: String,
        status: u16,
        message: String,
    },
    /// The name is wrong, or the image was deleted.
    #[error("{place} has {what}{}", listed(.tags))]
    Missing {
        place: String,
        /// As in `no image 1.0`.
        what: String,
        /// The images of a layout.
        tags: Vec<String>,
    },
    /// The place has other bytes than a digest says, or none.
    #[error("{place} is damaged: sha256:{digest} {found}")]
    Damaged {
        place: String,
        digest: Digest,
        found: String,
    },
    /// The image is of a kind that AOD does not use.
    #[error("{place} has an unusable image")]
    Unusable {
        place: String,
        source: ManifestError,
    },
    /// A manifest, an index or a configuration above its limit.
    #[error("{place}: sha256:{digest} has {size_bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        place: String,
        digest: Digest,
        size_bytes: u64,
        bytes_max: u64,
    },
    /// The directory is no layout, or contains links.
    #[error("{} cannot be used as an OCI layout: {problem}", .path.display())]
    Layout { path: PathBuf, problem: String },
    /// The disk failed or is full.
    #[error("{} cannot be {action}", .path.display())]
    Disk {
        path: PathBuf,
        action: &'static str,
        source: std::io::Error,
    },
    /// The artifact store of this exchange failed; usually its disk is full.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine has stored an image that cannot be sent.
    #[error(transparent)]
    Stored(#[from] PullError),
}

/// Maximum number of tags that an error lists.
const TAGS_LISTED_MAX: usize = 20;

fn listed(tags: &[String]) -> String {
    let shown = tags.iter().take(TAGS_LISTED_MAX);
    let shown: Vec<String> = shown.map(|tag| quoted(tag)).collect();
    let more = tags.len().saturating_sub(TAGS_LISTED_MAX);
    match (shown.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!("; it has: {}", shown.join(", ")),
        (false, more) => format!("; it has: {} and {more} more", shown.join(", ")),
    }
}

/// An image of an artifact store, as a place gets it.
#[derive(Debug)]
pub struct Parts {
    /// The manifest, with the media types of OCI.
    pub(crate) manifest: Vec<u8>,
    /// Configuration and layers, each once, by digest.
    pub(crate) files: Vec<LocalFile>,
}

impl Parts {
    /// The verified parts of `image`.
    pub async fn of(
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<Self, ExchangeError> {
        let stored = Pull::of(image, artifacts).await?;
        let manifest = Manifest::to_oci(&stored.bytes).map_err(|source| PullError::Manifest {
            manifest: stored.manifest,
            source,
        })?;
        let mut files = Vec::new();
        for (digest, size_bytes) in stored.blobs {
            files.push(artifacts.get_file(digest, size_bytes).await?);
        }
        Ok(Self { manifest, files })
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

/// An image at a place, with all that is needed to use it except its layers.
#[derive(Clone, Debug)]
pub struct Found {
    /// Of what the name refers to: an index, or the manifest.
    pub digest: Digest,
    /// Of the manifest.
    pub manifest_digest: Digest,
    pub manifest: Manifest,
    /// The manifest as it is at the place.
    pub(crate) bytes: Vec<u8>,
    pub labels: CapsuleLabels,
}

/// A place that has images.
pub(crate) trait Source {
    /// What errors call the place.
    fn place(&self) -> String;

    /// A manifest or an index. Of `blob`, or of the name that the source was made for.
    async fn document(&self, blob: Option<Blob>) -> Result<Vec<u8>, ExchangeError>;

    /// The configuration of an image.
    async fn configuration(&self, blob: Blob) -> Result<Vec<u8>, ExchangeError>;
}

/// Finds the image that a source was made for. Everything that it reads is verified.
pub(crate) async fn find(source: &impl Source) -> Result<Found, ExchangeError> {
    let unusable = |error| ExchangeError::Unusable {
        place: source.place(),
        source: error,
    };
    let mut bytes = source.document(None).await?;
    let digest = Digest::of(&bytes);
    for _ in 0..=INDEXES_MAX {
        let manifest = match Document::parse(&bytes).map_err(unusable)? {
            Document::Index(index) => {
                let chosen = index.choose().map_err(unusable)?;
                bytes = source.document(Some(chosen)).await?;
                verify(&bytes, chosen, &source.place())?;
                continue;
            }
            Document::Image(manifest) => manifest,
        };
        let configuration = source.configuration(manifest.config).await?;
        verify(&configuration, manifest.config, &source.place())?;
        let labels = CapsuleLabels::of(&configuration);
        let labels = labels.map_err(|error| {
            let error = quoted(&error.to_string());
            unusable(ManifestError::Configuration(error))
        })?;
        return Ok(Found {
            digest,
            manifest_digest: Digest::of(&bytes),
            manifest,
            bytes,
            labels,
        });
    }
    Err(unusable(ManifestError::Nested(INDEXES_MAX)))
}

/// Refuses what would take too much memory.
pub(crate) fn check_size(blob: Blob, bytes_max: u64, place: &str) -> Result<(), ExchangeError> {
    if blob.size_bytes <= bytes_max {
        return Ok(());
    }
    Err(ExchangeError::TooLarge {
        place: place.to_owned(),
        digest: blob.digest,
        size_bytes: blob.size_bytes,
        bytes_max,
    })
}

/// Compares what a place has with the digest and size that its document names.
pub(crate) fn verify(bytes: &[u8], expected: Blob, place: &str) -> Result<(), ExchangeError> {
    let found = Blob {
        digest: Digest::of(bytes),
        size_bytes: bytes.len() as u64,
    };
    compare(found, expected, place)
}

pub(crate) fn compare(found: Blob, expected: Blob, place: &str) -> Result<(), ExchangeError> {
    if found == expected {
        return Ok(());
    }
    let (size, expected_size) = (found.size_bytes, expected.size_bytes);
    let found = if size == expected_size {
        format!("has other content, of sha256:{}", found.digest)
    } else {
        format!("has another size than {expected_size} bytes")
    };
    Err(ExchangeError::Damaged {
        place: place.to_owned(),
        digest: expected.digest,
        found,
    })
}
