//! Images in a directory: the image layout of OCI, for transfer without a network.
//!
//! A layout may come from anywhere. It is read through descriptors of its own directories, by the names that the format
//! has and by digests, never through links.
//!
//! Source of the format: OCI image specification 1.1, "Image Layout".

mod write;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::capsule::{Blob, Image, ImageContent};
use aod_ports::artifact_store::ArtifactStore;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::Deserialize;

use crate::exchange::{ExchangeError, Found, Source, check_size, compare, find, verify};
use crate::index::Index;
use crate::manifest::{CONFIG_BYTES_MAX, MANIFEST_BYTES_MAX, ManifestError, quoted};

pub use write::{Watch, add, check};

/// Marks a directory as a layout.
const MARKER: &str = "oci-layout";

/// The version of the format that the marker names.
const VERSION: &str = "1.0.0";

/// The list of the images.
const INDEX: &str = "index.json";

/// The directories of the blobs.
const BLOBS: [&str; 2] = ["blobs", "sha256"];

/// Maximum size of the marker, in bytes; it has 30.
const MARKER_BYTES_MAX: usize = 4 * 1_024;

/// How a directory is opened: never through a link.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// How a file is opened: never through a link, and without waiting for the other end of a pipe.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A layout that can be read.
#[derive(Debug)]
pub struct Layout {
    path: PathBuf,
    root: OwnedFd,
    blobs: OwnedFd,
}

/// The content of the marker.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    image_layout_version: String,
}

impl Layout {
    /// Opens the layout at `path`, which itself may be a link.
    pub fn open(path: &Path) -> Result<Self, ExchangeError> {
        let unusable = |name: String| move |error: Errno| unusable(path, &name, error.into());
        let root = openat(CWD, path, DIRECTORY - OFlags::NOFOLLOW, Mode::empty());
        let root = root.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => ExchangeError::Layout {
                path: path.to_owned(),
                problem: "there is no such directory".to_owned(),
            },
            _ => ExchangeError::Disk {
                path: path.to_owned(),
                action: "read",
                source: error.into(),
            },
        })?;
        let marker = read(path, &root, MARKER, MARKER_BYTES_MAX)?;
        check_marker(&marker).map_err(|problem| ExchangeError::Layout {
            path: path.to_owned(),
            problem,
        })?;
        let [outer, inner] = BLOBS;
        let blobs = openat(&root, outer, DIRECTORY, Mode::empty());
        let blobs = blobs.map_err(unusable(outer.to_owned()))?;
        let blobs = openat(&blobs, inner, DIRECTORY, Mode::empty());
        Ok(Self {
            path: path.to_owned(),
            root,
            blobs: blobs.map_err(unusable(format!("{outer}/{inner}")))?,
        })
    }

    /// Finds the image with this tag or, without a tag, the only image.
    ///
    /// # Errors
    /// [`ExchangeError::Missing`] lists the tags of the layout.
    pub async fn find(&self, tag: Option<&str>) -> Result<Found, ExchangeError> {
        find(&Tagged { layout: self, tag }).await
    }

    /// Copies an image that was found into `artifacts`; the copy is verified.
    pub async fn copy(
        &self,
        found: &Found,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<Image, ExchangeError> {
        for blob in found.manifest.blobs() {
            // One byte more than expected shows that the file is too large.
            let bytes = self.blob(blob)?.take(blob.size_bytes.saturating_add(1));
            let stored = artifacts.put_reader(Box::new(bytes)).await?;
            let stored = Blob {
                digest: stored.digest,
                size_bytes: stored.size_bytes,
            };
            compare(stored, blob, &self.place())?;
        }
        let manifest = io::Cursor::new(found.bytes.clone());
        artifacts.put_reader(Box::new(manifest)).await?;
        Ok(Image {
            config_digest: format!("sha256:{}", found.manifest.config.digest),
            content: ImageContent::Layers {
                manifest: found.manifest_digest,
                config: None,
                layers: found.manifest.layers.clone(),
            },
        })
    }

    fn place(&self) -> String {
        format!("the layout {}", self.path.display())
    }

    fn index(&self) -> Result<Index, ExchangeError> {
        let bytes = self.index_bytes()?;
        Index::parse(&bytes).map_err(|source| ExchangeError::Unusable {
            place: format!("{INDEX} of {}", self.place()),
            source,
        })
    }

    fn index_bytes(&self) -> Result<Vec<u8>, ExchangeError> {
        read(&self.path, &self.root, INDEX, MANIFEST_BYTES_MAX)
    }

    /// The file of a blob; not verified.
    fn blob(&self, blob: Blob) -> Result<File, ExchangeError> {
        let name = blob.digest.to_string();
        match open(&self.blobs, &name) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ExchangeError::Damaged {
                place: self.place(),
                digest: blob.digest,
                found: "is missing".to_owned(),
            }),
            Err(error) => {
                let [outer, inner] = BLOBS;
                Err(unusable(
                    &self.path,
                    &format!("{outer}/{inner}/{name}"),
                    error,
                ))
            }
        }
    }

    /// The verified bytes of a blob with a size of at most `bytes_max`.
    fn bytes(&self, blob: Blob, bytes_max: u64) -> Result<Vec<u8>, ExchangeError> {
        check_size(blob, bytes_max, &self.place())?;
        let mut bytes = Vec::new();
        let file = self.blob(blob)?;
        let read = file.take(blob.size_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|source| ExchangeError::Disk {
            path: self.path.clone(),
            action: "read",
            source,
        })?;
        verify(&bytes, blob, &self.place())?;
        Ok(bytes)
    }
}

/// An image of a layout by its tag.
struct Tagged<'a> {
    layout: &'a Layout,
    tag: Option<&'a str>,
}

impl Source for Tagged<'_> {
    fn place(&self) -> String {
        self.layout.place()
    }

    async fn document(&self, blob: Option<Blob>) -> Result<Vec<u8>, ExchangeError> {
        let blob = match blob {
            Some(blob) => blob,
            None => self.entry()?,
        };
        self.layout.bytes(blob, MANIFEST_BYTES_MAX as u64)
    }

    async fn configuration(&self, blob: Blob) -> Result<Vec<u8>, ExchangeError> {
        self.layout.bytes(blob, CONFIG_BYTES_MAX)
    }
}

impl Tagged<'_> {
    fn entry(&self) -> Result<Blob, ExchangeError> {
        let index = self.layout.index()?;
        let mut entries = index.entries.iter();
        let found = match (self.tag, &index.entries[..]) {
            (Some(tag), _) => entries.find(|entry| entry.tag.as_deref() == Some(tag)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found
            .map(|entry| entry.blob)
            .ok_or_else(|| ExchangeError::Missing {
                place: self.layout.place(),
                what: match self.tag {
                    Some(tag) => format!("no image {tag}"),
                    None if index.entries.is_empty() => "no image".to_owned(),
                    None => "several images, so name a tag: oci:PATH:TAG".to_owned(),
                },
                tags: index.tags(),
            })
    }
}

/// Opens the plain file `name` of a directory.
fn open(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let file = File::from(openat(directory, name, FILE, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(Errno::LOOP.into());
    }
    Ok(file)
}

/// Reads the plain file `name` of the layout at `path`.
fn read(
    path: &Path,
    root: &OwnedFd,
    name: &str,
    bytes_max: usize,
) -> Result<Vec<u8>, ExchangeError> {
    let file = open(root, name).map_err(|error| unusable(path, name, error))?;
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| unusable(path, name, error))?;
    if bytes.len() > bytes_max {
        return Err(ExchangeError::Unusable {
            place: format!("{name} of the layout {}", path.display()),
            source: ManifestError::TooLarge(bytes.len()),
        });
    }
    Ok(bytes)
}

/// Why the content of a marker does not mark a layout of a known version.
pub fn check_marker(bytes: &[u8]) -> Result<(), String> {
    let marker: Marker = serde_json::from_slice(bytes).map_err(|error| {
        let error = quoted(&error.to_string());
        format!("its file {MARKER} is not JSON of a layout: {error}")
    })?;
    if marker.image_layout_version == VERSION {
        return Ok(());
    }
    let version = quoted(&marker.image_layout_version);
    Err(format!("it has version {version:?}, expected {VERSION}"))
}

/// The failure for an entry of a layout that cannot be opened.
fn unusable(path: &Path, name: &str, error: io::Error) -> ExchangeError {
    let is_link = [Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error);
    let problem = match error.raw_os_error() {
        Some(errno) if is_link.contains(&errno) => format!(
            "{name} is a link or another special file; a layout consists of plain files and directories"
        ),
        _ if error.kind() == io::ErrorKind::NotFound => format!("it has no {name}"),
        _ => {
            return ExchangeError::Disk {
                path: path.join(name),
                action: "read",
                source: error,
            };
        }
    };
    ExchangeError::Layout {
        path: path.to_owned(),
        problem,
    }
}
