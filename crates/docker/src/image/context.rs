//! The packed directory that a build sends to the engine, with another `Dockerfile` in place of its own.
//!
//! The other one has the same name, so that `.dockerignore` has the same effect on it.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tar::{Archive, Header};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, Take};
use tokio_util::io::ReaderStream;

const DOCKERFILE: &str = "Dockerfile";

/// The size of a block of a tar file, in bytes.
const BLOCK_BYTES: usize = 512;

/// The pieces of a tar file: new bytes, then parts of the file at `path`.
#[derive(Debug)]
pub(crate) struct Pieces {
    first: Bytes,
    parts: Vec<Range<u64>>,
}

impl Pieces {
    /// The whole file.
    fn whole(size_bytes: u64) -> Self {
        let whole = 0..size_bytes;
        Self {
            first: Bytes::new(),
            parts: vec![whole],
        }
    }

    /// The file without the entries of its `Dockerfile`, after an entry with `dockerfile`.
    fn with(mut file: &File, size_bytes: u64, dockerfile: &str) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut parts = Vec::new();
        let (mut header, mut kept, mut start) = (Header::new_gnu(), 0, None);
        // Raw entries: a long name or attributes of an entry are entries before it, which leave with it.
        for entry in Archive::new(file).entries_with_seek()?.raw(true) {
            let entry = entry?;
            let first = *start.get_or_insert(entry.raw_header_position());
            let kind = entry.header().entry_type();
            if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
                continue;
            }
            start = None;
            let path = entry.path_bytes();
            if path.strip_prefix(b"./").unwrap_or(&path) == DOCKERFILE.as_bytes() {
                header = entry.header().clone();
                parts.push(kept..first);
                kept =
                    entry.raw_file_position() + entry.size().next_multiple_of(BLOCK_BYTES as u64);
            }
        }
        parts.push(kept..size_bytes);
        header.set_path(DOCKERFILE)?;
        header.set_size(dockerfile.len() as u64);
        header.set_cksum();
        let mut first = header.as_bytes().to_vec();
        first.extend(dockerfile.as_bytes());
        first.resize(first.len().next_multiple_of(BLOCK_BYTES), 0);
        Ok(Self {
            first: first.into(),
            parts,
        })
    }
}

/// The bytes of the packed directory at `path`, with `dockerfile` in place of its own.
pub(crate) async fn stream(
    path: &Path,
    dockerfile: Option<String>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + use<>> {
    let path = path.to_path_buf();
    let file = path.clone();
    let cut = move || {
        let file = File::open(file)?;
        let size_bytes = file.metadata()?.len();
        match dockerfile {
            Some(text) => Pieces::with(&file, size_bytes, &text),
            None => Ok(Pieces::whole(size_bytes)),
        }
    };
    let pieces = tokio::task::spawn_blocking(cut).await;
    let Pieces { first, parts } = pieces.map_err(io::Error::other)??;
    let parts = stream::iter(parts).then(move |part| part_of(path.clone(), part));
    let first = stream::iter((!first.is_empty()).then_some(Ok(first)));
    Ok(first.chain(parts.try_flatten()))
}

async fn part_of(
    path: PathBuf,
    part: Range<u64>,
) -> io::Result<ReaderStream<Take<tokio::fs::File>>> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(SeekFrom::Start(part.start)).await?;
    Ok(ReaderStream::new(file.take(part.end - part.start)))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The entries of a tar file with these names, each with its name as content, and their form after `with`.
    async fn check(names: &[&str], expected: &[(&str, &str)]) {
        let mut builder = tar::Builder::new(tempfile::NamedTempFile::new().unwrap());
        for name in names {
            let mut header = Header::new_gnu();
            header.set_size(name.len() as u64);
            header.set_mode(0o640);
            builder
                .append_data(&mut header, name, name.as_bytes())
                .unwrap();
        }
        let file = builder.into_inner().unwrap();
        let stream = stream(file.path(), Some("FROM new\n".into()))
            .await
            .unwrap();
        let bytes: Vec<Bytes> = stream.try_collect().await.unwrap();
        let bytes = bytes.concat();
        let mut archive = Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mode().unwrap(), 0o640);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        });
        let entries: Vec<_> = entries.collect();
        let entries: Vec<_> = entries
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(entries, expected);
    }

    #[tokio::test]
    async fn dockerfile_is_replaced_and_other_entries_stay() {
        let long = "x".repeat(300);
        let new = (DOCKERFILE, "FROM new\n");
        check(
            &["a", "./Dockerfile", &long, "b/Dockerfile"],
            &[
                new,
                ("a", "a"),
                (&long, &long),
                ("b/Dockerfile", "b/Dockerfile"),
            ],
        )
        .await;
        check(&["Dockerfile", "a", "Dockerfile"], &[new, ("a", "a")]).await;
    }
}
