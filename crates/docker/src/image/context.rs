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

/// A piece of the tar file that the engine gets.
#[derive(Debug)]
enum Piece {
    /// These bytes of the packed directory.
    Packed(Range<u64>),
    New(Bytes),
}

/// The packed directory `file` without the entries of its `Dockerfile`. The entry with `dockerfile` is the last one, so
/// that it also replaces an entry of this name whose form is not recognized here.
fn with(mut file: &File, size_bytes: u64, dockerfile: &str) -> io::Result<Vec<Piece>> {
    file.seek(SeekFrom::Start(0))?;
    let mut pieces = Vec::new();
    let (mut header, mut start) = (Header::new_gnu(), None);
    let (mut kept, mut end) = (0, 0);
    // Raw entries: a long name or attributes of an entry are entries before it, which leave with it.
    for entry in Archive::new(file).entries_with_seek()?.raw(true) {
        let entry = entry?;
        let first = *start.get_or_insert(entry.raw_header_position());
        end = entry.raw_file_position() + entry.size().next_multiple_of(BLOCK_BYTES as u64);
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
            continue;
        }
        start = None;
        let path = entry.path_bytes();
        if path.strip_prefix(b"./").unwrap_or(&path) == DOCKERFILE.as_bytes() {
            header = entry.header().clone();
            pieces.push(Piece::Packed(kept..first));
            kept = end;
        }
    }
    pieces.push(Piece::Packed(kept..end));
    header.set_path(DOCKERFILE)?;
    header.set_size(dockerfile.len() as u64);
    header.set_cksum();
    let mut new = header.as_bytes().to_vec();
    new.extend(dockerfile.as_bytes());
    new.resize(new.len().next_multiple_of(BLOCK_BYTES), 0);
    pieces.push(Piece::New(new.into()));
    pieces.push(Piece::Packed(end..size_bytes));
    Ok(pieces)
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
            Some(text) => with(&file, size_bytes, &text),
            None => Ok(vec![Piece::Packed(0..size_bytes)]),
        }
    };
    let pieces = tokio::task::spawn_blocking(cut).await;
    let pieces = pieces.map_err(io::Error::other)??;
    let open = move |piece| open(path.clone(), piece);
    Ok(stream::iter(pieces).then(open).try_flatten())
}

async fn open(
    path: PathBuf,
    piece: Piece,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + use<>> {
    Ok(match piece {
        Piece::Packed(range) => part_of(path, range).await?.left_stream(),
        Piece::New(bytes) => stream::iter([Ok(bytes)]).right_stream(),
    })
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

    /// The entries of a tar file with these names, each with its name as content, and their form after [`stream`].
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
                ("a", "a"),
                (&long, &long),
                ("b/Dockerfile", "b/Dockerfile"),
                new,
            ],
        )
        .await;
        check(&["Dockerfile", "a", "Dockerfile"], &[("a", "a"), new]).await;
    }
}
