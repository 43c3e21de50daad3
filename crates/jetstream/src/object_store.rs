//! An `object_store::ObjectStore` on a JetStream stream: the artifact store of a cluster that has
//! no S3 server and no shared disk. Content addresses and verification are left to `aod-artifacts`.
//!
//! An object is one *record*, the only message on the subject of its path, and, beyond 64 KiB, the
//! *chunks* of one upload, a subject each. A record is written last, and guarded: so all put modes
//! are exact, and no reader meets half an object. Random access is a direct get by subject; no
//! consumer is needed but for lists. The ETag is the sequence of the record.
//!
//! **Durability.** The stream has the default `persist_mode`: with `sync_interval: always` a chunk
//! and a record are on disk when they are confirmed. `persist_mode: async` would store 1.3 to 2.5
//! times as fast, but ignores `always`, and an event could then name bytes that a power failure
//! takes away; there is no request that syncs such a stream.
//!
//! **Left-overs.** Chunks without a record come from broken uploads and from objects that were
//! overwritten (their readers may finish). [`JetStreamObjectStore::sweep`] removes them by age.
//!
//! Errors carry a [`std::io::ErrorKind`] where a caller may act on the cause: `StorageFull` (the
//! stream has reached its limit), `InvalidData` (the stored object is not whole).

mod bucket;
mod get;
mod list;
mod put;
mod record;
mod subject;
mod sweep;
mod transport;

use std::fmt;
use std::sync::Arc;

use aod_domain::disk::Space;
use aod_ports::BoxError;
use aod_ports::artifact_store::Limited;
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

pub use bucket::{BucketConfig, OpenError};
pub use sweep::{SWEEP_AGE_SECONDS_MIN, Swept};

use transport::Transport;

/// Name of this store in errors.
const STORE: &str = "JetStream";

/// Objects up to this size, in bytes, lie within their record: one synced write instead of two.
/// Above it the time for a second write no longer shows, and lists would make the server read
/// much that nobody asked for.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Size of a chunk, in bytes. Larger ones are hardly faster and come close to the server's
/// `max_payload` of 1 MiB; 128 KiB ones are a third slower (measured).
const CHUNK_BYTES: usize = 512 * 1024;

/// Chunks that one put, part or get has under way: 4 MiB, the memory of one transfer. More makes
/// replicated streams answer "too many outstanding" and is not faster.
const CHUNK_WINDOW: usize = 8;

/// Object store over one bucket of a stream; cheap to clone.
///
/// It wants a NATS connection of its own: bulk bytes would delay what else goes over it.
#[derive(Clone)]
pub struct JetStreamObjectStore {
    transport: Arc<Transport>,
}

impl JetStreamObjectStore {
    /// Creates the stream if need be, and compares its configuration with what is wanted; a lower
    /// or higher `bytes_max` is adopted.
    pub async fn open(
        client: async_nats::Client,
        config: &BucketConfig,
    ) -> Result<Self, OpenError> {
        let transport = bucket::open(client, config).await?;
        Ok(Self {
            transport: Arc::new(transport),
        })
    }

    /// As [`open`](Self::open), for whoever may only store and read: the stream is another's to make, to limit and
    /// to sweep.
    pub async fn open_as_guest(
        client: async_nats::Client,
        config: &BucketConfig,
    ) -> Result<Self, OpenError> {
        let transport = bucket::open_as_guest(client, config).await?;
        Ok(Self {
            transport: Arc::new(transport),
        })
    }

    /// Removes chunks that belong to no object and whose upload began more than `age_seconds`
    /// ago (at least [`SWEEP_AGE_SECONDS_MIN`] is taken). Harmless at any time, on any host.
    pub async fn sweep(&self, age_seconds: u64) -> Result<Swept> {
        sweep::sweep(&self.transport, age_seconds).await
    }
}

#[async_trait]
impl Limited for JetStreamObjectStore {
    async fn space(&self) -> std::result::Result<Space, BoxError> {
        let info = self.transport.stream.get_info().await?;
        let size_bytes = u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX);
        Ok(Space {
            free_bytes: size_bytes.saturating_sub(info.state.bytes),
            size_bytes,
        })
    }
}

impl fmt::Display for JetStreamObjectStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "JetStream({})", self.transport.subjects.prefix())
    }
}

impl fmt::Debug for JetStreamObjectStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[async_trait]
impl ObjectStore for JetStreamObjectStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if !options.attributes.is_empty() || !options.tags.encoded().is_empty() {
            return Err(not_implemented("put with attributes or tags"));
        }
        put::put(&self.transport, location, payload, &options.mode).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() || !options.tags.encoded().is_empty() {
            return Err(not_implemented("put with attributes or tags"));
        }
        Ok(Box::new(put::Upload::begin(
            Arc::clone(&self.transport),
            location,
        )?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(not_implemented("get of a version"));
        }
        get::get(&self.transport, location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let transport = Arc::clone(&self.transport);
        locations
            .map(move |location| {
                let transport = Arc::clone(&transport);
                async move {
                    let location = location?;
                    put::delete(&transport, &location).await?;
                    Ok(location)
                }
            })
            .buffered(CHUNK_WINDOW)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(Arc::clone(&self.transport), prefix)
            .map(|listed| listed.map(|listed| listed.meta))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::list_with_delimiter(Arc::clone(&self.transport), prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        put::copy(&self.transport, from, to, &mode).await
    }
}

fn not_implemented(operation: &str) -> object_store::Error {
    object_store::Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: STORE.to_owned(),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic {
        store: STORE,
        source: source.into(),
    }
}

fn not_found(location: &Path) -> object_store::Error {
    object_store::Error::NotFound {
        path: location.to_string(),
        source: "no record on its subject".into(),
    }
}

/// The object is not what its record says.
fn damaged(what: impl fmt::Display) -> object_store::Error {
    generic(std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        what.to_string(),
    ))
}
