//! Streams from files and stores, as ranges, verified at their end.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use aod_domain::digest::{Digest, Hasher};
use aod_ports::artifact_store::{Content, Outgoing, StoreError, Stored};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};

use crate::shelf::describe;
use crate::spool::{READ_BYTES, blocking};

/// Resolves `range` to bytes of an artifact; none means the whole artifact.
pub(crate) fn resolve(
    stored: Stored,
    range: Option<&Range<u64>>,
) -> Result<Range<u64>, StoreError> {
    let Stored { digest, size_bytes } = stored;
    let Some(&Range { start, end }) = range else {
        return Ok(0..size_bytes);
    };
    if start >= size_bytes || end <= start {
        return Err(StoreError::OutOfRange {
            digest,
            size_bytes,
            start,
            end,
        });
    }
    Ok(start..end.min(size_bytes))
}

/// Streams an open file, which is verified. `pin` lives as long as the stream.
pub(crate) fn of_file(
    file: File,
    place: String,
    stored: Stored,
    range: Option<&Range<u64>>,
    pin: impl Send + 'static,
) -> Result<Content, StoreError> {
    let is_whole = range.is_none();
    let range = resolve(stored, range)?;
    let (file, end) = (Arc::new(file), range.end);
    let bytes = stream::try_unfold((range.start, pin), move |(offset, pin)| {
        let (file, place) = (Arc::clone(&file), place.clone());
        async move {
            let count =
                usize::try_from(end - offset).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            if count == 0 {
                return Ok(None);
            }
            let read = blocking(move || read_at(&file, offset, count)).await;
            let bytes = read.map_err(|error| StoreError::from_io(&place, error))?;
            if bytes.is_empty() {
                let found = format!("the file ends after {offset} bytes");
                return Err(StoreError::Corrupt {
                    digest: stored.digest,
                    found,
                });
            }
            let next = offset + bytes.len() as u64;
            Ok(Some((bytes, (next, pin))))
        }
    });
    let bytes = if is_whole {
        verified(bytes.boxed(), stored.digest)
    } else {
        bytes.boxed()
    };
    Ok(Content {
        size_bytes: stored.size_bytes,
        range,
        bytes,
    })
}

/// Opens a file and returns its size; none if it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    match File::open(path) {
        Ok(file) => {
            let size_bytes = file.metadata()?.len();
            Ok(Some((file, size_bytes)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Passes bytes on, and ends with an error if their digest differs from `digest`.
pub(crate) fn verified(bytes: Outgoing, digest: Digest) -> Outgoing {
    let begin = Some((bytes, Hasher::new(), 0_u64));
    stream::try_unfold(begin, move |state| async move {
        let Some((mut bytes, mut hasher, size_bytes)) = state else {
            return Ok(None);
        };
        if let Some(piece) = bytes.next().await {
            let piece: Bytes = piece?;
            hasher.update(&piece);
            let size_bytes = size_bytes + piece.len() as u64;
            return Ok(Some((piece, Some((bytes, hasher, size_bytes)))));
        }
        let found = Stored {
            digest: hasher.finish(),
            size_bytes,
        };
        if found.digest != digest {
            return Err(StoreError::Corrupt {
                digest,
                found: describe(found),
            });
        }
        Ok(None)
    })
    .boxed()
}

fn read_at(file: &File, offset: u64, count: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; count];
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(read) => {
                buffer.truncate(read);
                return Ok(buffer.into());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}
