//! Delivers stored files into a directory that a container reads: atomically by rename, as links to the cache where
//! possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::file_name::{FileName, unique_name};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::{ArtifactStore, LocalFile, StoreError};
use aod_services::program::blocking;
use futures::stream::{self, StreamExt, TryStreamExt};

/// Concurrent fetches.
const FETCHES_CONCURRENT_MAX: usize = 4;

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeliverError {
    /// A retry, or another node, may succeed, unless the artifact was deleted.
    #[error("the node cannot fetch {name}")]
    Fetch { name: FileName, source: StoreError },
    /// Fixed by the operator: the disk.
    #[error("the node cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
}

/// Chooses a name for each of `names` that is not in `taken`, and adds it to `taken`.
pub(crate) fn final_names(
    names: impl Iterator<Item = FileName>,
    taken: &mut BTreeSet<FileName>,
) -> BTreeMap<FileName, FileName> {
    names
        .map(|name| {
            let chosen = unique_name(&name, taken);
            taken.insert(chosen.clone());
            (name, chosen)
        })
        .collect()
}

/// Fetches `files` and puts each at `directory`/name; counts the bytes from the artifact store.
pub(crate) async fn deliver(
    files: &[FileEntry],
    name_of: impl Fn(&FileName) -> FileName,
    directory: &Path,
    artifacts: &dyn ArtifactStore,
    fetched: &AtomicU64,
) -> Result<(), DeliverError> {
    let placed: Vec<_> = files
        .iter()
        .map(|file| {
            let target = name_of(&file.name);
            deliver_one(file.clone(), target, directory, artifacts, fetched)
        })
        .collect();
    stream::iter(placed)
        .buffer_unordered(FETCHES_CONCURRENT_MAX)
        .try_collect()
        .await
}

async fn deliver_one(
    file: FileEntry,
    target: FileName,
    directory: &Path,
    artifacts: &dyn ArtifactStore,
    fetched: &AtomicU64,
) -> Result<(), DeliverError> {
    let found = artifacts.get_file(file.digest, file.size_bytes).await;
    let local = found.map_err(|source| DeliverError::Fetch {
        name: file.name,
        source,
    })?;
    fetched.fetch_add(local.fetched_bytes(), Ordering::Relaxed);
    let directory = directory.to_path_buf();
    blocking(move || place(&local, &directory, &target)).await
}

/// Puts `local` at `directory`/`name` atomically: a capsule sees all of the file or nothing.
fn place(local: &LocalFile, directory: &Path, name: &FileName) -> Result<(), DeliverError> {
    let path = directory.join(name.as_str());
    let failed = |source| DeliverError::Write {
        path: path.clone(),
        source,
    };
    make_parents(directory, name).map_err(failed)?;
    // A link is safe: root owns the cache file, its mode is 0444, and the directory is mounted read-only.
    match fs::hard_link(local.path(), &path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(failed(error)),
        // Another file system, or one without links.
        Err(_) => copy_in(local.path(), &path).map_err(failed),
    }
}

fn make_parents(directory: &Path, name: &FileName) -> io::Result<()> {
    let mut path = directory.to_path_buf();
    let components: Vec<&str> = name.components().collect();
    for component in &components[..components.len() - 1] {
        path.push(component);
        match fs::create_dir(&path) {
            Ok(()) => fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_in(source: &Path, path: &Path) -> io::Result<()> {
    let parent = path.parent().expect("a file in a directory");
    // Temporary names begin with a dot, so a callee cannot have chosen them.
    let draft = tempfile::Builder::new()
        .prefix(".aod-")
        .tempfile_in(parent)?;
    io::copy(&mut fs::File::open(source)?, &mut draft.as_file())?;
    draft
        .as_file()
        .set_permissions(fs::Permissions::from_mode(0o444))?;
    draft.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(())
}
