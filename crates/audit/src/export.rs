//! Writes a tree with its files as the bytes of a bundle, while the receiver reads them.

use std::collections::BTreeSet;
use std::sync::Arc;

use aod_domain::audit::archive::{Header, TRAILER_BYTES, padding};
use aod_domain::audit::{
    ArtifactEntry, CHUNK_EVENTS, EntryName, Line, Manifest, NotAnEvent, Opening, bundled_by,
};
use aod_domain::digest::{Digest, Hasher};
use aod_domain::id::RunId;
use aod_domain::run::Event;
use aod_domain::subject::{self, Subject};
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};
use aod_services::pages::Pages;
use aod_services::program::spawn;
use aod_services::retention::deleted;
use aod_services::writer::LoadError;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Pieces buffered for the receiver.
const PIECES_AHEAD: usize = 4;

/// Why an export ends early.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Collected(#[from] LoadError),
    #[error(transparent)]
    Damaged(#[from] NotAnEvent),
    /// The receiver has disconnected.
    #[error("the receiver of the bundle has disconnected")]
    Untaken,
}

/// The bundle of the tree of `root`: equal trees give equal bytes. At any time, memory holds one entry of events and a
/// few pieces of a file.
pub fn export(
    log: Arc<dyn EventLog>,
    artifacts: Arc<dyn ArtifactStore>,
    root: RunId,
) -> BoxStream<'static, Result<Bytes, ExportError>> {
    let (pieces, receiver) = mpsc::channel(PIECES_AHEAD);
    spawn(async move {
        let writer = Writer {
            pieces: pieces.clone(),
            hasher: Hasher::new(),
        };
        if let Err(error) = bundle(log.as_ref(), artifacts.as_ref(), root, writer).await {
            tracing::warn!(%root, error = %error, "export of a bundle failed");
            // A disconnected receiver needs no error.
            let _ = pieces.send(Err(error)).await;
        }
    });
    ReceiverStream::new(receiver).boxed()
}

async fn bundle(
    log: &dyn EventLog,
    artifacts: &dyn ArtifactStore,
    root: RunId,
    mut writer: Writer,
) -> Result<(), ExportError> {
    let opening = Opening::new(root).encode();
    writer.entry(EntryName::Opening, opening.into()).await?;
    let mut events = Events::new(root);
    let mut pages = Pages::new(log, subject::tree(root), 0);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            break;
        }
        for stored in page {
            events.take(stored, &mut writer).await?;
        }
    }
    events.flush(&mut writer).await?;
    let mut entries = Vec::new();
    for digest in events.artifacts {
        let size_bytes = writer.artifact(artifacts, digest).await?;
        entries.push(ArtifactEntry {
            digest,
            size_bytes,
            deleted_at: None,
        });
    }
    let missing = entries.iter().filter(|entry| entry.size_bytes.is_none());
    let missing = missing.map(|entry| entry.digest).collect();
    let deleted = deleted(log, &missing).await?;
    for entry in entries
        .iter_mut()
        .filter(|entry| entry.size_bytes.is_none())
    {
        entry.deleted_at = deleted.get(&entry.digest).copied();
    }
    let manifest = Manifest {
        events: events.before,
        is_sealed: events.is_sealed,
        late: events.late,
        artifacts: entries,
        before: writer.hasher.clone().finish(),
    };
    let manifest = manifest.encode();
    writer.entry(EntryName::Manifest, manifest.into()).await?;
    writer.put(Bytes::from_static(&[0; TRAILER_BYTES])).await
}

/// Events not yet written as entries.
struct Events {
    root: RunId,
    lines: Vec<u8>,
    lines_count: usize,
    entries: u32,
    before: u64,
    is_sealed: bool,
    late: u64,
    artifacts: BTreeSet<Digest>,
}

impl Events {
    const fn new(root: RunId) -> Self {
        Self {
            root,
            lines: Vec::new(),
            lines_count: 0,
            entries: 0,
            before: 0,
            is_sealed: false,
            late: 0,
            artifacts: BTreeSet::new(),
        }
    }

    async fn take(&mut self, stored: StoredEvent, writer: &mut Writer) -> Result<(), ExportError> {
        if Subject::is_state(&stored.subject) {
            // An unreadable event names no artifact; verification of the bundle reports it.
            let recorded = stored.decode::<Event>();
            if let Ok(recorded) = recorded {
                let named = bundled_by(&recorded.event).into_iter();
                self.artifacts.extend(named.map(|named| named.digest));
                let is_of_root = Subject::run_of(&stored.subject) == Some(self.root);
                if matches!(recorded.event, Event::Sealed(_)) && is_of_root && !self.is_sealed {
                    self.flush(writer).await?;
                    self.is_sealed = true;
                    self.entries = 0;
                    return writer.entry(EntryName::Seal, stored.bytes).await;
                }
            }
        }
        let line = Line {
            sequence: stored.sequence,
            subject: stored.subject,
            bytes: stored.bytes.into(),
        };
        self.lines.extend(line.encode()?);
        self.lines_count += 1;
        if self.is_sealed {
            self.late += 1;
        } else {
            self.before += 1;
        }
        if self.lines_count == CHUNK_EVENTS {
            self.flush(writer).await?;
        }
        Ok(())
    }

    /// Writes the pending entry, if there is one.
    async fn flush(&mut self, writer: &mut Writer) -> Result<(), ExportError> {
        if self.lines_count == 0 {
            return Ok(());
        }
        self.entries += 1;
        self.lines_count = 0;
        let name = if self.is_sealed {
            EntryName::Late(self.entries)
        } else {
            EntryName::Events(self.entries)
        };
        let lines = std::mem::take(&mut self.lines);
        writer.entry(name, lines.into()).await
    }
}

/// The archive so far.
struct Writer {
    pieces: mpsc::Sender<Result<Bytes, ExportError>>,
    hasher: Hasher,
}

impl Writer {
    async fn put(&mut self, bytes: Bytes) -> Result<(), ExportError> {
        self.hasher.update(&bytes);
        let put = self.pieces.send(Ok(bytes)).await;
        put.map_err(|_| ExportError::Untaken)
    }

    async fn header(&mut self, name: EntryName, size_bytes: u64) -> Result<(), ExportError> {
        let name = name.to_string();
        let block = Header { name, size_bytes }.to_block();
        self.put(Bytes::copy_from_slice(&block)).await
    }

    async fn entry(&mut self, name: EntryName, bytes: Bytes) -> Result<(), ExportError> {
        let size_bytes = bytes.len() as u64;
        self.header(name, size_bytes).await?;
        self.put(bytes).await?;
        self.put(vec![0; padding(size_bytes)].into()).await
    }

    /// Its size; none if the store no longer has it.
    async fn artifact(
        &mut self,
        artifacts: &dyn ArtifactStore,
        digest: Digest,
    ) -> Result<Option<u64>, ExportError> {
        let mut content = match artifacts.get_stream(digest, None).await {
            Ok(content) => content,
            Err(StoreError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.header(EntryName::Artifact(digest), content.size_bytes)
            .await?;
        let mut length = 0;
        while let Some(piece) = content.bytes.next().await {
            match piece {
                Ok(piece) => {
                    length += piece.len() as u64;
                    self.put(piece).await?;
                }
                // The length is right; verification of the bundle finds the difference.
                Err(StoreError::Corrupt { .. }) if length == content.size_bytes => break,
                Err(error) => return Err(error.into()),
            }
        }
        let padding = vec![0; padding(content.size_bytes)];
        self.put(padding.into()).await?;
        Ok(Some(content.size_bytes))
    }
}
