//! [`ArtifactStore`] on local directories and object stores: S3, GCS, Azure, or any
//! `object_store::ObjectStore` that is handed in, such as the one on JetStream.
//!
//! Every store has the layout `sha256/<first two digits>/<digest>`. A directory is read and
//! written by us alone (`local`): a spool file becomes the object by a synced rename. All else
//! goes through a spool directory and a cache of whole files with a limit (`remote`).
//! What is removed, and when, is decided by others; that nothing goes which was just put again is seen to here.

mod cache;
mod error;
mod local;
mod location;
mod remote;
mod shelf;
mod spool;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;

use aod_ports::BoxError;
use aod_ports::artifact_store::{ArtifactStore, Limited};
use object_store::ObjectStore;
use thiserror::Error;

use local::LocalStore;
use location::Location;
use remote::RemoteStore;

/// Where the files of a remote store are kept on this host, and how many.
#[derive(Debug, Clone)]
pub struct CacheConfig {
    /// Directory of one process alone, made if need be; spool files lie in it too.
    pub directory: PathBuf,
    /// Most that it keeps, in bytes. Files in use do not count as what may go: they may take it
    /// above the limit, and the least recently used of the others go first.
    pub bytes_max: u64,
}

/// Why a store could not be opened, sorted by what the operator does about it.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The URL must be mended.
    #[error("`{url}` does not say where artifacts are: {why}")]
    Url { url: String, why: String },
    /// The client of the object store refuses what it was told; mostly credentials are missing.
    #[error("`{url}` cannot be used")]
    Client { url: String, source: BoxError },
    /// Another process uses this cache: give each its own directory.
    #[error("the cache {} is in use by another process", .directory.display())]
    CacheInUse { directory: PathBuf },
    /// A directory cannot be made, read or written.
    #[error("{} cannot be used", .path.display())]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Opens the store that `url` names; `cache` is not used by `file:`.
///
/// - `file:///directory`: a directory of this host, or one that hosts share.
/// - `s3://bucket/prefix?endpoint=…&region=…&credentials=…&allow_http=…`: without `credentials`,
///   which names a file (`aws_access_key_id = …` and so on, as in `~/.aws/credentials`), they come
///   from the environment (`AWS_ACCESS_KEY_ID` and so on). Plain HTTP is for endpoints on loopback
///   and private addresses, and others if `allow_http=true`.
/// - `gs://bucket/prefix` and `az://container/prefix`: all else comes from the environment.
///
/// Nothing is asked of the store yet: [`ArtifactStore::check`] does.
pub fn open(url: &str, cache: &CacheConfig) -> Result<Arc<dyn ArtifactStore>, OpenError> {
    match location::parse(url)? {
        Location::Directory(directory) => Ok(Arc::new(LocalStore::open(&directory)?)),
        Location::Remote { store, removing } => {
            Ok(Arc::new(RemoteStore::open(store, removing, None, cache)?))
        }
    }
}

/// Puts artifacts into an object store that is open already, and whose removals, however often they are
/// repeated, leave what was put after the first of them.
pub fn over(
    store: Arc<dyn ObjectStore>,
    limited: Option<Arc<dyn Limited>>,
    cache: &CacheConfig,
) -> Result<Arc<dyn ArtifactStore>, OpenError> {
    let removing = Arc::clone(&store);
    Ok(Arc::new(RemoteStore::open(
        store, removing, limited, cache,
    )?))
}
