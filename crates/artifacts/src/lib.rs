//! [`ArtifactStore`] on local directories and object stores: S3, GCS, Azure, or any given
//! `object_store::ObjectStore`, such as the one on JetStream.
//!
//! Every store has the layout `sha256/<first two digits>/<digest>`. Only AOD reads and writes a
//! directory (`local`): a synced rename makes a spool file the object. All other stores use a spool
//! directory and a bounded cache of whole files (`remote`). Nodes may fetch files from each other's caches.
//! Callers decide which artifacts to remove; the store never removes an artifact that was just put again.

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
use aod_ports::peers::Peers;
use object_store::ObjectStore;
use thiserror::Error;

use local::LocalStore;
use location::Location;
use remote::RemoteStore;

/// The local cache of a remote store.
#[derive(Debug, Clone)]
pub struct CacheConfig {
    /// Directory of exactly one process, created if missing; also contains spool files.
    pub directory: PathBuf,
    /// Maximum size, in bytes. The cache evicts the least recently used files first, but never files in
    /// use, which may exceed the limit.
    pub bytes_max: u64,
}

/// Why a store cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The URL is invalid.
    #[error("`{url}` is not a URL of an artifact store: {why}")]
    Url { url: String, why: String },
    /// The client of the object store rejects its configuration; usually credentials are missing.
    #[error("the artifact store `{url}` cannot be opened")]
    Client { url: String, source: BoxError },
    /// Another process uses this cache: give each process its own directory.
    #[error("the cache {} is in use by another process; set another directory", .directory.display())]
    CacheInUse { directory: PathBuf },
    /// A directory cannot be created, read or written.
    #[error("the directory {} cannot be used", .path.display())]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Opens the store at `url`; `file:` does not use `cache`.
///
/// - `file:///directory`: a directory of this host, or one that hosts share.
/// - `s3://bucket/prefix?endpoint=…&region=…&credentials=…&allow_http=…`: `credentials` names a file
///   (`aws_access_key_id = …` and so on, as in `~/.aws/credentials`); without it, credentials come
///   from the environment (`AWS_ACCESS_KEY_ID` and so on). Plain HTTP is allowed for endpoints on
///   loopback and private addresses, and for all endpoints with `allow_http=true`.
/// - `gs://bucket/prefix` and `az://container/prefix`: all other settings come from the environment.
///
/// Sends no request to the store; [`ArtifactStore::check`] does.
pub fn open(url: &str, cache: &CacheConfig) -> Result<Arc<dyn ArtifactStore>, OpenError> {
    Ok(open_among(url, cache, None)?.artifacts)
}

/// A store as one program uses it; both ways share the cache.
#[derive(Clone, Debug)]
pub struct Opened {
    pub artifacts: Arc<dyn ArtifactStore>,
    /// The same artifacts for images, which many nodes need at one time: nodes fetch them from each other.
    pub images: Arc<dyn ArtifactStore>,
}

impl Opened {
    /// A store for a program that fetches nothing from other nodes.
    pub fn alone(artifacts: Arc<dyn ArtifactStore>) -> Self {
        let images = Arc::clone(&artifacts);
        Self { artifacts, images }
    }

    fn remote(store: RemoteStore, peers: Option<Arc<dyn Peers>>) -> Self {
        let images = peers.map(|peers| store.among(peers));
        let artifacts: Arc<dyn ArtifactStore> = Arc::new(store);
        match images {
            Some(images) => Self {
                artifacts,
                images: Arc::new(images),
            },
            None => Self::alone(artifacts),
        }
    }
}

/// As [`open`], for a node that fetches images from other nodes and serves them; `file:` does not use `peers`.
///
/// # Panics
///
/// With `peers`, outside of a runtime.
pub fn open_among(
    url: &str,
    cache: &CacheConfig,
    peers: Option<Arc<dyn Peers>>,
) -> Result<Opened, OpenError> {
    match location::parse(url)? {
        Location::Directory(directory) => {
            Ok(Opened::alone(Arc::new(LocalStore::open(&directory)?)))
        }
        Location::Remote { store, removing } => {
            let store = RemoteStore::open(store, removing, None, cache)?;
            Ok(Opened::remote(store, peers))
        }
    }
}

/// Opens an artifact store on an object store whose repeated removals never remove an object that was put
/// after the first of them.
pub fn over(
    store: Arc<dyn ObjectStore>,
    limited: Option<Arc<dyn Limited>>,
    cache: &CacheConfig,
) -> Result<Arc<dyn ArtifactStore>, OpenError> {
    Ok(over_among(store, limited, cache, None)?.artifacts)
}

/// As [`over`], for a node that fetches images from other nodes and serves them.
///
/// # Panics
///
/// With `peers`, outside of a runtime.
pub fn over_among(
    store: Arc<dyn ObjectStore>,
    limited: Option<Arc<dyn Limited>>,
    cache: &CacheConfig,
    peers: Option<Arc<dyn Peers>>,
) -> Result<Opened, OpenError> {
    let removing = Arc::clone(&store);
    let store = RemoteStore::open(store, removing, limited, cache)?;
    Ok(Opened::remote(store, peers))
}
