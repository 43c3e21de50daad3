//! Doubles for the parsers: a store that keeps nothing, one gateway that answers once, and a log stream without
//! readers.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_domain::id::{GatewayId, RunId};
use aod_ports::BoxError;
use aod_ports::artifact_store::{
    ArtifactStore, Content, Incoming, Listing, LocalFile, Removal, StoreError, Stored,
};
use aod_ports::event_log::{Append, EventLog, Fill, Followed, From, ReadError, StoredEvent, Tried};
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use aod_ports::log_stream::{LogLine, LogStream, LogStreamError};
use aod_ports::presence::{GatewayMember, Member, Presence, PresenceError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Request, Response};
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

/// Accepts everything and stores nothing. Asked for a size, it claims to have every artifact whose digest begins with
/// an even byte.
#[derive(Debug)]
pub(crate) struct Forgetful;

impl Forgetful {
    fn stored(pieces: &[Bytes]) -> Stored {
        let whole = pieces.concat();
        Stored {
            digest: Digest::of(&whole),
            size_bytes: whole.len() as u64,
        }
    }
}

#[async_trait]
impl ArtifactStore for Forgetful {
    async fn put_stream(&self, mut bytes: Incoming<'_>) -> Result<Stored, StoreError> {
        let mut pieces = Vec::new();
        while let Some(piece) = bytes.next().await {
            pieces.push(piece.map_err(|source| StoreError::Source { source })?);
        }
        Ok(Self::stored(&pieces))
    }

    async fn put_reader(&self, mut reader: Box<dyn Read + Send>) -> Result<Stored, StoreError> {
        let mut whole = Vec::new();
        let read = reader.read_to_end(&mut whole);
        read.map_err(|source| StoreError::Source {
            source: source.into(),
        })?;
        Ok(Self::stored(&[whole.into()]))
    }

    async fn put_file(&self, path: &Path, _: Option<Stored>) -> Result<Stored, StoreError> {
        let source = format!("{} is not in this store", path.display()).into();
        Err(StoreError::Source { source })
    }

    async fn get_stream(
        &self,
        digest: Digest,
        _: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        Err(StoreError::Missing { digest })
    }

    async fn get_file(&self, digest: Digest, _: u64) -> Result<LocalFile, StoreError> {
        Err(StoreError::Missing { digest })
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let [first, ..] = digest.as_bytes();
        Ok((first % 2 == 0).then_some(u64::from(*first)))
    }

    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.size(digest).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        Ok(stream::empty().boxed())
    }

    async fn remove(&self, _: Digest, _: Timestamp) -> Result<Removal, StoreError> {
        Ok(Removal::Missing)
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        Ok(None)
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn spool_directory(&self) -> &Path {
        Path::new("/nonexistent")
    }
}

/// Presence with one gateway.
#[derive(Debug)]
pub(crate) struct OneGateway;

#[async_trait]
impl Presence for OneGateway {
    async fn announce(&self, _: &Member) -> Result<(), PresenceError> {
        Ok(())
    }

    async fn leave(&self, _: &Member) -> Result<(), PresenceError> {
        Ok(())
    }

    async fn members(&self) -> Result<Vec<Member>, PresenceError> {
        Ok(vec![Member::Gateway(GatewayMember {
            gateway: GatewayId::new(Uuid::from_u128(1)),
            url: "http://gateway".into(),
            version: "1".into(),
        })])
    }
}

/// A transport to a gateway that answers the first request with `status` and `body`, and fails all others.
#[derive(Debug)]
pub(crate) struct AnswersOnce {
    first: Mutex<Option<(u16, Vec<Bytes>)>>,
}

impl AnswersOnce {
    /// `body` arrives in pieces that end after each line, and in the middle of the last.
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        let mut pieces: Vec<Bytes> = body
            .split_inclusive(|&byte| byte == b'\n')
            .map(Bytes::copy_from_slice)
            .collect();
        if let Some(mut last) = pieces.pop() {
            let head = last.split_to(last.len() / 2);
            pieces.extend([head, last]);
        }
        Self {
            first: Mutex::new(Some((status, pieces))),
        }
    }
}

#[async_trait]
impl GatewayTransport for AnswersOnce {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<AnswerBody>, BoxError> {
        let first = self.first.lock().expect("no panic with the lock").take();
        let (status, pieces) = first.unwrap_or((409, Vec::new()));
        let body = stream::iter(pieces.into_iter().map(Ok)).boxed();
        Ok(Response::builder().status(status).body(body)?)
    }
}

/// Reads no logs.
#[derive(Debug)]
pub(crate) struct Deaf;

#[async_trait]
impl LogStream for Deaf {
    async fn publish(&self, _: RunId, _: &[LogLine]) -> Result<(), LogStreamError> {
        Ok(())
    }

    async fn follow(
        &self,
        _: RunId,
        _: u64,
    ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError> {
        Ok(stream::empty().boxed())
    }
}

/// A log that does not answer.
#[derive(Debug)]
pub(crate) struct Silent;

impl Silent {
    fn unread(what: &str) -> ReadError {
        ReadError {
            what: what.to_owned(),
            source: "no answer".into(),
        }
    }
}

#[async_trait]
impl EventLog for Silent {
    async fn try_append(&self, _: &Append, _: Instant) -> Tried {
        Tried::Refused("no answer".into())
    }

    async fn first_after(&self, _: &str, _: u64) -> Result<Option<(u64, String)>, BoxError> {
        Err("no answer".into())
    }

    async fn read(&self, filter: &str, _: u64, _: usize) -> Result<Vec<StoredEvent>, ReadError> {
        Err(Self::unread(filter))
    }

    async fn read_last(&self, filter: &str) -> Result<Option<StoredEvent>, ReadError> {
        Err(Self::unread(filter))
    }

    async fn follow(
        &self,
        filter: &str,
        _: From,
    ) -> Result<BoxStream<'static, Followed>, ReadError> {
        Err(Self::unread(filter))
    }

    async fn fill(&self) -> Result<Fill, ReadError> {
        Err(Self::unread("the log"))
    }

    async fn release_before(&self, _: u64) -> Result<(), ReadError> {
        Err(Self::unread("the log"))
    }
}
