//! Whole images as tar files, for engines that cannot reach the registry of this process, and for images that were
//! stored before layers were.
//!
//! Source of the format: moby, `image/tarexport`. `manifest.json` lists the configuration and the layers by the
//! names of their files. The engine reads layers that are compressed with gzip.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aod_domain::capsule::{Blob, Image, ImageContent};
use aod_domain::digest::Digest;
use aod_ports::artifact_store::{ArtifactStore, LocalFile, StoreError, Stored};
use aod_ports::container_runtime::RuntimeError;
use aod_registry::manifest::{CONFIG_BYTES_MAX, Manifest};
use bollard::query_parameters::{ImportImageOptions, ListImagesOptions, RemoveImageOptions};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzEncoder;
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;
use tracing::warn;

use super::transfer::{failed, megabytes};
use crate::engine::{CallError, Engine};
use crate::image;

const SAVING: &str = "saving an image";
const LOADING: &str = "loading an image";

/// Name of the list in an archive.
const LIST: &str = "manifest.json";

/// Maximum size of the list, in bytes.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of a chain of links between layers of an archive.
const LINKS_MAX: usize = 8;

/// An archive that does not contain the expected image.
#[derive(Debug, Error)]
#[error("the archive contains {loaded:?}, expected {expected}")]
struct WrongImage {
    expected: String,
    loaded: Vec<String>,
}

/// An image in the list of an archive.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    layers: Vec<String>,
}

/// The stored form of layers by the digests of their uncompressed bytes, so that each is compressed once.
#[derive(Debug, Default)]
pub(crate) struct Compressed(Mutex<HashMap<String, Blob>>);

/// Maximum number of remembered layers; above it, all are forgotten and compressed again.
const COMPRESSED_MAX: usize = 4_096;

impl Compressed {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Blob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored layer, renewed.
    async fn find(
        &self,
        layer: &str,
        artifacts: &dyn ArtifactStore,
    ) -> Result<Option<Blob>, StoreError> {
        let known = self.lock().get(layer).copied();
        let Some(known) = known else { return Ok(None) };
        let size_bytes = artifacts.renew_intact(known.digest).await?;
        Ok(size_bytes
            .filter(|found| *found == known.size_bytes)
            .map(|_| known))
    }

    fn insert(&self, layer: &str, blob: Blob) {
        let mut known = self.lock();
        if known.len() >= COMPRESSED_MAX {
            known.clear();
        }
        known.insert(layer.to_owned(), blob);
    }
}

/// Saves the image and stores its parts.
pub(crate) async fn store(
    engine: &Engine,
    compressed: &Compressed,
    image: &str,
    artifacts: &dyn ArtifactStore,
    progress: &mpsc::Sender<String>,
) -> Result<Image, RuntimeError> {
    let mut archive = save(engine, image, artifacts.spool_directory(), progress).await?;
    let read = move || Parts::of(&mut archive).map(|parts| (archive, parts));
    let (archive, parts) = tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)
        .and_then(|parts| parts)
        .map_err(|error| failed(SAVING, error))?;
    let mut layers = Vec::new();
    for (number, layer) in parts.layers.iter().enumerate() {
        let (number, all) = (number + 1, parts.layers.len());
        let _ = progress.try_send(format!("Storing the image: layer {number} of {all}"));
        if let Some(known) = compressed.find(&layer.id, artifacts).await? {
            layers.push(known);
            continue;
        }
        let bytes = layer.place.open(archive.path());
        let bytes = bytes.map_err(|error| failed(SAVING, error))?;
        let stored = artifacts.put_reader(Box::new(GzEncoder::new(bytes, Compression::fast())));
        let stored = blob(stored.await?);
        compressed.insert(&layer.id, stored);
        layers.push(stored);
    }
    let config = put(artifacts, parts.config).await?;
    let manifest = put(artifacts, Manifest::docker(config, &layers)).await?;
    Ok(Image {
        config_digest: format!("sha256:{}", config.digest),
        content: ImageContent::Layers {
            manifest: manifest.digest,
            config: None,
            layers,
        },
    })
}

const fn blob(stored: Stored) -> Blob {
    Blob {
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    }
}

async fn put(artifacts: &dyn ArtifactStore, bytes: Vec<u8>) -> Result<Blob, StoreError> {
    let stored = artifacts.put_stream(stream::iter([Ok(Bytes::from(bytes))]).boxed());
    Ok(blob(stored.await?))
}

/// Writes the image as a tar file into `directory`.
async fn save(
    engine: &Engine,
    image: &str,
    directory: &Path,
    progress: &mpsc::Sender<String>,
) -> Result<NamedTempFile, RuntimeError> {
    let local = |error: io::Error| failed(SAVING, error);
    let archive = NamedTempFile::new_in(directory).map_err(local)?;
    let mut file = tokio::fs::File::from_std(archive.reopen().map_err(local)?);
    let mut pieces = engine.docker.export_image(image).boxed();
    let (mut size_bytes, mut reported) = (0_u64, tokio::time::Instant::now());
    while let Some(bytes) = engine
        .next(engine.timeouts.stream, &mut pieces)
        .await
        .map_err(|error| error.during(SAVING))?
    {
        file.write_all(&bytes).await.map_err(local)?;
        size_bytes += bytes.len() as u64;
        if reported.elapsed().as_secs() >= 1 {
            reported = tokio::time::Instant::now();
            let _ = progress.try_send(format!("Saving the image: {}", megabytes(size_bytes)));
        }
    }
    file.flush().await.map_err(local)?;
    Ok(archive)
}

/// The parts of an archive.
struct Parts {
    config: Vec<u8>,
    layers: Vec<Layer>,
}

/// A layer in an archive.
struct Layer {
    /// The digest of its bytes, `sha256:…`, as the configuration names it.
    id: String,
    place: Place,
}

/// The part of a configuration that names the layers. Source: OCI image specification 1.1, "rootfs".
#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// A file within an archive.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    size_bytes: u64,
}

impl Place {
    fn open(self, archive: &Path) -> io::Result<io::Take<File>> {
        let mut file = File::open(archive)?;
        file.seek(SeekFrom::Start(self.start))?;
        Ok(file.take(self.size_bytes))
    }

    fn read(self, archive: &Path, size_bytes_max: u64) -> io::Result<Vec<u8>> {
        if self.size_bytes > size_bytes_max {
            return Err(io::Error::other("a file of the archive is too large"));
        }
        let mut bytes = Vec::new();
        self.open(archive)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Parts {
    fn of(archive: &mut NamedTempFile) -> io::Result<Self> {
        let (mut files, mut links) = (BTreeMap::new(), BTreeMap::new());
        let mut tar = tar::Archive::new(archive.as_file_mut());
        for entry in tar.entries_with_seek()? {
            let entry = entry?;
            let path = entry.path()?.into_owned();
            let place = Place {
                start: entry.raw_file_position(),
                size_bytes: entry.size(),
            };
            match entry.link_name()? {
                Some(target) => {
                    let parent = path.parent().unwrap_or(Path::new(""));
                    links.insert(path.clone(), normal(&parent.join(target)));
                }
                None => {
                    files.insert(path, place);
                }
            }
        }
        let find = |name: &str| {
            let mut path = PathBuf::from(name);
            for _ in 0..LINKS_MAX {
                match links.get(&path) {
                    Some(target) => path.clone_from(target),
                    None => break,
                }
            }
            let missing = || io::Error::other(format!("the archive has no file {name}"));
            files.get(&path).copied().ok_or_else(missing)
        };
        let list = find(LIST)?.read(archive.path(), LIST_BYTES_MAX)?;
        let list: Vec<Listed> = serde_json::from_slice(&list)?;
        let [image] = &list[..] else {
            return Err(io::Error::other("the archive does not have one image"));
        };
        let config = find(&image.config)?.read(archive.path(), CONFIG_BYTES_MAX)?;
        let ids = serde_json::from_slice::<Config>(&config)?.rootfs.diff_ids;
        if ids.len() != image.layers.len() {
            return Err(io::Error::other(
                "the archive has other layers than its image",
            ));
        }
        let layers = ids.into_iter().zip(&image.layers).map(|(id, name)| {
            let place = find(name)?;
            Ok(Layer { id, place })
        });
        Ok(Self {
            layers: layers.collect::<io::Result<_>>()?,
            config,
        })
    }
}

/// The path without `..`, which links between layers begin with.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::Normal(name) => normal.push(name),
            _ => (),
        }
    }
    normal
}

/// Loads the stored parts of an image as one archive; returns the bytes that came from elsewhere.
pub(crate) async fn fetch(
    engine: &Engine,
    image: &Image,
    artifacts: &dyn ArtifactStore,
) -> Result<u64, RuntimeError> {
    let ImageContent::Layers { layers, .. } = &image.content else {
        return Ok(0);
    };
    let config = image.config().ok_or_else(|| {
        let text = format!("{} is no digest", image.config_digest);
        failed(LOADING, io::Error::other(text))
    })?;
    let size_bytes = artifacts.size(config).await?;
    let size_bytes = size_bytes.ok_or(StoreError::Missing { digest: config })?;
    let config = artifacts.get_file(config, size_bytes).await?;
    let mut files = Vec::new();
    for layer in layers {
        files.push(artifacts.get_file(layer.digest, layer.size_bytes).await?);
    }
    let fetched = files.iter().map(LocalFile::fetched_bytes).sum();
    let directory = artifacts.spool_directory().to_owned();
    let composed = tokio::task::spawn_blocking(move || compose(&config, &files, &directory));
    let archive = composed
        .await
        .map_err(io::Error::other)
        .and_then(|composed| composed)
        .map_err(|error| failed(LOADING, error))?;
    load(engine, &image.config_digest, archive.path()).await?;
    Ok(fetched)
}

/// Writes an archive of stored parts.
fn compose(
    config: &LocalFile,
    layers: &[LocalFile],
    directory: &Path,
) -> io::Result<NamedTempFile> {
    let name = |digest: Digest| format!("{digest}.tar");
    let listed = Listed {
        config: format!("{}.json", config.digest()),
        layers: layers.iter().map(|layer| name(layer.digest())).collect(),
    };
    let list = serde_json::to_vec(&[&listed])?;
    let mut archive = tar::Builder::new(NamedTempFile::new_in(directory)?);
    let mut add = |name: &str, size_bytes: u64, bytes: &mut dyn Read| {
        let mut header = tar::Header::new_gnu();
        header.set_size(size_bytes);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes)
    };
    add(LIST, list.len() as u64, &mut &list[..])?;
    add(
        &listed.config,
        config.size_bytes(),
        &mut File::open(config.path())?,
    )?;
    let mut seen = HashSet::new();
    for layer in layers {
        if seen.insert(layer.digest()) {
            let mut file = File::open(layer.path())?;
            add(&name(layer.digest()), layer.size_bytes(), &mut file)?;
        }
    }
    let mut archive = archive.into_inner()?;
    archive.flush()?;
    Ok(archive)
}

/// Loads an archive, checks that it contains `image`, and removes other images that it contains.
pub(crate) async fn load(engine: &Engine, image: &str, archive: &Path) -> Result<(), RuntimeError> {
    let error_of = |error: CallError| error.during(LOADING);
    let before = ids(engine).await.map_err(error_of)?;
    let file = tokio::fs::File::open(archive).await;
    let file = file.map_err(|error| failed(LOADING, error))?;
    let loaded = feed(engine, file).await.map_err(error_of)?;
    if image::has(engine, image).await.map_err(error_of)? {
        return Ok(());
    }
    for name in &loaded {
        remove_unless_known(engine, name, &before).await;
    }
    let expected = image.to_owned();
    Err(failed(LOADING, WrongImage { expected, loaded }))
}

/// Sends the archive to the engine and returns the ids and tags that the engine reports.
async fn feed(engine: &Engine, file: tokio::fs::File) -> Result<Vec<String>, CallError> {
    let options = ImportImageOptions {
        quiet: true,
        ..ImportImageOptions::default()
    };
    let archive = ReaderStream::new(file);
    let mut reports = engine
        .docker
        .import_image_stream(options, archive, None)
        .boxed();
    let mut loaded = Vec::new();
    while let Some(report) = engine.next(engine.timeouts.load, &mut reports).await? {
        let text = report.stream.unwrap_or_default();
        // Source: moby `image/tarexport/load.go`, "Loaded image: " and "Loaded image ID: ".
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Loaded image"));
        loaded.extend(names.filter_map(|rest| Some(rest.split_once(": ")?.1.to_owned())));
    }
    Ok(loaded)
}

async fn ids(engine: &Engine) -> Result<HashSet<String>, CallError> {
    let options = ListImagesOptions {
        all: true,
        ..ListImagesOptions::default()
    };
    let images = engine
        .query(engine.docker.list_images(Some(options)))
        .await?;
    Ok(images.into_iter().map(|image| image.id).collect())
}

/// Removes an image of a wrong archive, unless it existed before.
async fn remove_unless_known(engine: &Engine, name: &str, before: &HashSet<String>) {
    let Ok(Some(found)) = image::inspect(engine, name).await else {
        return;
    };
    if found.id.is_none_or(|id| before.contains(&id)) {
        return;
    }
    let options = RemoveImageOptions {
        force: true,
        ..RemoveImageOptions::default()
    };
    let removal = engine.docker.remove_image(name, Some(options), None);
    if let Err(error) = engine.call(engine.timeouts.remove, removal).await {
        warn!(image = name, %error, "an image of a wrong archive cannot be removed");
    }
}
