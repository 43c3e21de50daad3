//! An `object_store::ObjectStore` on a JetStream stream: the artifact store of a cluster without an S3
//! server and without a shared disk. `aod-artifacts` adds content addresses and verification.
//!
//! An object is one *record*, the only message on the subject of its path, and above 64 KiB the
//! *chunks* of one upload, each on its own subject. The record is written last, with a guard: so all put
//! modes are exact, and no reader sees an incomplete object. Random access is a direct get by subject;
//! only lists need a consumer. The ETag is the sequence of the record.
//!
//! **Durability.** The stream has the default `persist_mode`: with `sync_interval: always` a confirmed
//! chunk or record is on disk. `persist_mode: async` would store 1.3 to 2.5 times as fast, but ignores
//! `always`: an event could then name bytes that a power failure loses, and no request syncs such a
//! stream.
//!
//! **Left-overs.** Chunks without a record are from failed uploads and from overwritten objects (whose
//! readers may finish). [`JetStreamObjectStore::sweep`] removes them by age.
//!
//! Errors contain a [`std::io::ErrorKind`] for actionable causes: `StorageFull` (the stream has reached
//! its limit), `InvalidData` (the stored object is damaged).

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

/// Objects up to this size, in bytes, are stored in their record: one synced write instead of two. For
/// larger objects the second write takes little of the time, and lists would make the server read their
/// bytes.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Size of a chunk, in bytes. Larger chunks are hardly faster and approach the server's `max_payload` of
/// 1 MiB; chunks of 128 KiB are a third slower (measured).
const CHUNK_BYTES: usize = 512 * 1024;

/// Maximum number of concurrent chunks of one put, part or get: 4 MiB, the memory of one transfer. More
/// are not faster, and replicated streams answer "too many outstanding".
const CHUNK_WINDOW: usize = 8;

/// Object store over one bucket of a stream; cheap to clone.
///
/// Give it its own NATS connection, because bulk bytes delay other messages.
#[derive(Clone)]
pub struct JetStreamObjectStore {
    transport: Arc<Transport>,
}

impl JetStreamObjectStore {
    /// Creates the stream if missing, compares its configuration, and sets a new `bytes_max`.
    pub async fn open(
        client: async_nats::Client,
        config: &BucketConfig,
    ) -> Result<Self, OpenError> {
        let transport = bucket::open(client, config).await?;
        Ok(Self {
            transport: Arc::new(transport),
        })
    }

    /// Like [`open`](Self::open), for programs that may only store and read: another program creates, limits and
    /// sweeps the stream.
    pub async fn open_as_guest(
        client: async_nats::Client,
        config: &BucketConfig,
    ) -> Result<Self, OpenError> {
        let transport = bucket::open_as_guest(client, config).await?;
        Ok(Self {
            transport: Arc::new(transport),
        })
    }

    /// Removes chunks without an object whose upload began more than `age_seconds` ago (at least
    /// [`SWEEP_AGE_SECONDS_MIN`]). Harmless at any time, on any host.
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
        source: "the object does not exist".into(),
    }
}

/// The error of an object that does not match its record.
fn damaged(what: impl fmt::Display) -> object_store::Error {
    generic(std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        what.to_string(),
    ))
}
