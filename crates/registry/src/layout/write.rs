//! Adds an image to a layout, or creates a layout. Readers see the layout of before or the complete one of after.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aod_domain::capsule::Blob;
use aod_domain::digest::{Digest, Hasher};
use serde_json::{Value, json};

use super::{BLOBS, INDEX, Layout, MARKER, VERSION, open};
use crate::exchange::{ExchangeError, Parts};
use crate::index::{Index, OCI_INDEX, TAG_ANNOTATION};
use crate::manifest::{MANIFEST_BYTES_MAX, ManifestError, OCI_MANIFEST};

/// Mode of the directories of a layout: others may read what people carry around.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Start of the names of unfinished files.
const UNFINISHED: &str = ".aod-";

/// Who waits for an image to be added.
pub struct Watch<'a> {
    /// Gets a line for each part.
    pub progress: &'a dyn Fn(String),
    /// Whether to end early, as after an error.
    pub is_stopped: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Watch")
    }
}

/// A file that is read until its reader is told to stop.
struct Watched<'a> {
    file: File,
    watch: &'a Watch<'a>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.watch.is_stopped)() {
            return Err(io::Error::other("stopped"));
        }
        self.file.read(buffer)
    }
}

/// Checks that [`add`] can use `path`: a layout, an empty directory, or nothing.
pub fn check(path: &Path) -> Result<(), ExchangeError> {
    if is_free(path)? {
        return Ok(());
    }
    Layout::open(path)?.index().map(drop)
}

/// Adds the image with this tag to the layout at `path`; replaces an image with the same tag. Blobs that the layout has
/// are not written again, unless they are damaged.
///
/// # Errors
/// After an error, the layout is as before.
pub fn add(
    path: &Path,
    tag: &str,
    parts: &Parts,
    watch: &Watch<'_>,
) -> Result<Digest, ExchangeError> {
    let is_created = is_free(path)? && create(path, tag, parts, watch)?;
    if !is_created {
        let layout = Layout::open(path)?;
        // Another program that adds an image waits; the end of this one unlocks.
        rustix::fs::flock(&layout.root, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| disk(path, "locked", error.into()))?;
        remove_unfinished(path)?;
        extend(&layout, path, tag, parts, watch)?;
    }
    Ok(parts.digest())
}

/// Whether `path` is an empty directory or does not exist.
fn is_free(path: &Path) -> Result<bool, ExchangeError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // Its own error is in `Layout::open`.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(disk(path, "read", error)),
    }
}

/// Creates the layout beside `path`; a rename makes it appear. False if another program has created one meanwhile.
fn create(path: &Path, tag: &str, parts: &Parts, watch: &Watch<'_>) -> Result<bool, ExchangeError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let failed = |error| disk(path, "created", error);
    fs::create_dir_all(parent).map_err(failed)?;
    let stage = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(fs::Permissions::from_mode(DIRECTORY_MODE))
        .tempdir_in(parent)
        .map_err(failed)?;
    let [outer, inner] = BLOBS;
    fs::create_dir_all(stage.path().join(outer).join(inner)).map_err(failed)?;
    let marker = json!({"imageLayoutVersion": VERSION}).to_string();
    fs::write(stage.path().join(MARKER), marker).map_err(failed)?;
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []});
    fs::write(stage.path().join(INDEX), index.to_string()).map_err(failed)?;
    let layout = Layout::open(stage.path())?;
    extend(&layout, stage.path(), tag, parts, watch)?;
    match fs::rename(stage.path(), path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(false),
        renamed => renamed.map_err(failed)?,
    }
    // Now at its place.
    let _ = stage.keep();
    sync(parent).map_err(failed)?;
    Ok(true)
}

/// Writes the blobs, then replaces the index. `path` is the directory of `layout`.
fn extend(
    layout: &Layout,
    path: &Path,
    tag: &str,
    parts: &Parts,
    watch: &Watch<'_>,
) -> Result<(), ExchangeError> {
    let index = with_image(&layout.index_bytes()?, tag, &parts.manifest).map_err(|source| {
        ExchangeError::Unusable {
            place: format!("{INDEX} of {}", layout.place()),
            source,
        }
    })?;
    let mut added = Added::default();
    let all = parts.files.len();
    for (number, file) in parts.files.iter().enumerate() {
        let blob = Blob {
            digest: file.digest(),
            size_bytes: file.size_bytes(),
        };
        let number = number + 1;
        if layout.has(blob) {
            (watch.progress)(format!("part {number} of {all}: already there"));
            continue;
        }
        (watch.progress)(format!("part {number} of {all}: {} bytes", blob.size_bytes));
        let target = path.join(blob_path(blob.digest));
        let copied = File::open(file.path()).and_then(|file| {
            let mut from = Watched { file, watch };
            write(path, &target, |to| io::copy(&mut from, to).map(drop))
        });
        copied.map_err(|error| disk(&target, "written", error))?;
        added.0.push(target);
    }
    let manifest = Blob {
        digest: parts.digest(),
        size_bytes: parts.manifest.len() as u64,
    };
    if !layout.has(manifest) {
        let target = path.join(blob_path(manifest.digest));
        put(path, &target, &parts.manifest).map_err(|error| disk(&target, "written", error))?;
        added.0.push(target);
    }
    let [outer, inner] = BLOBS;
    let target = path.join(INDEX);
    sync(&path.join(outer).join(inner))
        .and_then(|()| put(path, &target, &index))
        .map_err(|error| disk(&target, "written", error))?;
    added.0.clear();
    sync(path).map_err(|error| disk(path, "written", error))
}

/// Blobs that no index names yet; removed when dropped.
#[derive(Default)]
struct Added(Vec<PathBuf>);

impl Drop for Added {
    fn drop(&mut self) {
        for path in &self.0 {
            // What remains is no part of any image.
            let _ = fs::remove_file(path);
        }
    }
}

impl Layout {
    /// Whether the layout has the intact blob.
    fn has(&self, blob: Blob) -> bool {
        let Ok(mut file) = open(&self.blobs, &blob.digest.to_string()) else {
            return false;
        };
        let is_same_size = file.metadata().is_ok_and(|it| it.len() == blob.size_bytes);
        let mut digest = Digesting(Hasher::new());
        is_same_size && io::copy(&mut file, &mut digest).is_ok() && digest.0.finish() == blob.digest
    }
}

struct Digesting(Hasher);

impl io::Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The index with the image under this tag, and all others unchanged.
fn with_image(index: &[u8], tag: &str, manifest: &[u8]) -> Result<Vec<u8>, ManifestError> {
    Index::parse(index)?;
    let mut index: Value =
        serde_json::from_slice(index).map_err(|error| ManifestError::malformed(&error))?;
    let images = index.get_mut("manifests").and_then(Value::as_array_mut);
    let images = images.ok_or_else(|| {
        ManifestError::Malformed("an index without the list \"manifests\"".to_owned())
    })?;
    images.retain(|image| image["annotations"][TAG_ANNOTATION] != tag);
    images.push(json!({
        "mediaType": OCI_MANIFEST,
        "digest": format!("sha256:{}", Digest::of(manifest)),
        "size": manifest.len(),
        "annotations": {TAG_ANNOTATION: tag},
    }));
    let bytes = serde_json::to_vec(&index).expect("JSON that was read");
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

fn blob_path(digest: Digest) -> PathBuf {
    let [outer, inner] = BLOBS;
    Path::new(outer).join(inner).join(digest.to_string())
}

fn put(root: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    write(root, target, |file| file.write_all(bytes))
}

/// Writes a file in `root` under another name; a rename makes the complete file appear.
fn write(
    root: &Path,
    target: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(fs::Permissions::from_mode(FILE_MODE))
        .tempfile_in(root)?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(target).map_err(io::Error::from)?;
    Ok(())
}

/// Makes renames in a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Removes what a killed program left behind.
fn remove_unfinished(path: &Path) -> Result<(), ExchangeError> {
    let failed = |error| disk(path, "read", error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

fn disk(path: &Path, action: &'static str, source: io::Error) -> ExchangeError {
    ExchangeError::Disk {
        path: path.to_owned(),
        action,
        source,
    }
}
