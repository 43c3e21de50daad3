//! Conformance suite of artifact stores.

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use aod_domain::digest::{Digest, Hasher};
use aod_ports::artifact_store::{ArtifactStore, Content, Listed, Removal, StoreError, Stored};
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::SignedDuration;

const MIB: usize = 1024 * 1024;

/// Sizes around every boundary of the stores: records and chunks of JetStream (64 and 512 KiB), parts (5 MiB), single
/// puts (8 MiB).
const SIZES_BYTES: [usize; 13] = [
    0,
    1,
    64 * 1024,
    64 * 1024 + 1,
    512 * 1024,
    512 * 1024 + 1,
    5 * MIB,
    5 * MIB + 1,
    8 * MIB - 1,
    8 * MIB,
    8 * MIB + 1,
    10 * MIB,
    10 * MIB + 1,
];

/// Runs the whole suite; the store may already hold other artifacts.
pub async fn check_all(store: &dyn ArtifactStore) {
    store.check().await.expect("a healthy store");
    for size in SIZES_BYTES {
        check_size(store, size).await;
    }
    check_ways_in(store).await;
    check_refusals(store).await;
    check_side_by_side(store).await;
    check_links(store).await;
    check_removal(store).await;
    store.check().await.expect("a store that is still healthy");
}

/// `size` bytes that differ between blocks and between values of `seed`.
pub fn bytes(size: usize, seed: u64) -> Bytes {
    let mut bytes = vec![0; size];
    Pattern::new(size as u64, seed)
        .read_exact(&mut bytes)
        .expect("a pattern of this size");
    bytes.into()
}

/// Reads a content to its end.
pub async fn read(content: Content) -> Result<Vec<u8>, StoreError> {
    let collect = |mut all: Vec<u8>, piece: Bytes| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    };
    content.bytes.try_fold(Vec::new(), collect).await
}

/// Puts bytes through a reader.
pub async fn put(store: &dyn ArtifactStore, bytes: &Bytes) -> Result<Stored, StoreError> {
    store
        .put_reader(Box::new(io::Cursor::new(bytes.clone())))
        .await
}

async fn check_size(store: &dyn ArtifactStore, size: usize) {
    let content = bytes(size, 1);
    let stored = put(store, &content).await.expect("a put");
    let expected = Stored {
        digest: Digest::of(&content),
        size_bytes: size as u64,
    };
    assert_eq!(stored, expected);
    let Stored { digest, size_bytes } = stored;
    assert_eq!(
        store.size(digest).await.expect("an answer"),
        Some(size_bytes)
    );
    assert!(store.contains(digest).await.expect("an answer"));

    let whole = store.get_stream(digest, None).await.expect("a stream");
    assert_eq!(
        (whole.size_bytes, whole.range.clone()),
        (size_bytes, 0..size_bytes)
    );
    assert!(
        read(whole).await.expect("its bytes") == content,
        "{size} bytes"
    );
    for range in [0..1, size / 3..size / 2, size.saturating_sub(2)..size + 7] {
        check_range(store, &content, range).await;
    }
    check_beyond(store, stored, size_bytes..size_bytes + 1).await;

    let file = store.get_file(digest, size_bytes).await.expect("a file");
    assert_eq!((file.digest(), file.size_bytes()), (digest, size_bytes));
    assert!(
        fs::read(file.path()).expect("its bytes") == content,
        "{size} bytes"
    );
    let mode = fs::metadata(file.path())
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o444);
    let other_size = store.get_file(digest, size_bytes + 1).await;
    assert!(
        matches!(other_size, Err(StoreError::Corrupt { .. })),
        "{other_size:?}"
    );
}

async fn check_range(store: &dyn ArtifactStore, content: &Bytes, range: Range<usize>) {
    if range.start >= content.len() || range.is_empty() {
        return;
    }
    let wanted = range.start as u64..range.end as u64;
    let part = store
        .get_stream(Digest::of(content), Some(wanted))
        .await
        .expect("a part");
    let within = range.start..range.end.min(content.len());
    assert_eq!(part.range, within.start as u64..within.end as u64);
    assert_eq!(part.size_bytes, content.len() as u64);
    assert!(
        read(part).await.expect("its bytes") == content[within],
        "{range:?}"
    );
}

async fn check_beyond(store: &dyn ArtifactStore, stored: Stored, range: Range<u64>) {
    let error = store
        .get_stream(stored.digest, Some(range))
        .await
        .expect_err("nothing there");
    assert!(
        matches!(error, StoreError::OutOfRange { size_bytes, .. } if size_bytes == stored.size_bytes),
        "{error}"
    );
}

/// The same bytes through each kind of put, each of them twice.
async fn check_ways_in(store: &dyn ArtifactStore) {
    for size in [100_000, 9 * MIB + 3] {
        let content = bytes(size, 2);
        let stored = Stored {
            digest: Digest::of(&content),
            size_bytes: size as u64,
        };
        for known in [None, Some(stored), None] {
            let path = spool_file(store, &content);
            assert_eq!(store.put_file(&path, known).await.expect("a put"), stored);
            assert!(!path.exists(), "the file was given away");
        }
        for piece_bytes in [1000, 70_000] {
            let pieces: Vec<_> = content
                .chunks(piece_bytes)
                .map(|piece| Ok(content.slice_ref(piece)))
                .collect();
            let put = store.put_stream(stream::iter(pieces).boxed()).await;
            assert_eq!(put.expect("a put"), stored);
        }
        assert_eq!(put(store, &content).await.expect("a put"), stored);
    }
    // From another directory, possibly another file system.
    let scratch = crate::Scratch::new("given");
    let path = scratch.path().join("given");
    let content = bytes(3000, 3);
    fs::write(&path, &content).expect("a file");
    let stored = store.put_file(&path, None).await.expect("a put");
    assert_eq!(stored.digest, Digest::of(&content));
    assert!(!path.exists(), "the file was given away");
}

async fn check_refusals(store: &dyn ArtifactStore) {
    let digest = Digest::of("never stored");
    assert_eq!(store.size(digest).await.expect("an answer"), None);
    assert!(!store.contains(digest).await.expect("an answer"));
    let error = store
        .get_stream(digest, None)
        .await
        .expect_err("nothing there");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    let error = store
        .get_stream(digest, Some(0..1))
        .await
        .expect_err("nothing there");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    let error = store.get_file(digest, 1).await.expect_err("nothing there");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");

    let content = bytes(1000, 4);
    let stored = put(store, &content).await.expect("a put");
    let (empty, backwards) = (5..5, Range { start: 7, end: 3 });
    check_beyond(store, stored, empty).await;
    check_beyond(store, stored, backwards).await;

    let pieces = [Ok(bytes(1000, 5)), Err("the giver failed".into())];
    let put = store.put_stream(stream::iter(pieces).boxed()).await;
    assert!(matches!(put, Err(StoreError::Source { .. })), "{put:?}");
    assert!(
        !store
            .contains(Digest::of(bytes(1000, 5)))
            .await
            .expect("an answer")
    );

    let path = spool_file(store, &content);
    let lie = Stored {
        size_bytes: 1001,
        ..stored
    };
    let put = store.put_file(&path, Some(lie)).await;
    assert!(matches!(put, Err(StoreError::Source { .. })), "{put:?}");
    assert!(
        path.exists(),
        "the file stays with its giver until it is stored"
    );
    fs::remove_file(path).expect("a test file");
}

async fn check_side_by_side(store: &dyn ArtifactStore) {
    for size in [2000, 9 * MIB] {
        let content = bytes(size, 6);
        let puts = join_all((0..6).map(|_| put(store, &content))).await;
        for stored in puts {
            assert_eq!(stored.expect("a put").digest, Digest::of(&content));
        }
        let gets =
            join_all((0..6).map(|_| store.get_file(Digest::of(&content), size as u64))).await;
        for file in gets {
            let file = file.expect("a file");
            assert!(fs::read(file.path()).expect("its bytes") == content);
        }
    }
}

/// A hard link keeps the bytes when the name is removed.
async fn check_links(store: &dyn ArtifactStore) {
    let content = bytes(4000, 7);
    let stored = put(store, &content).await.expect("a put");
    let file = store
        .get_file(stored.digest, stored.size_bytes)
        .await
        .expect("a file");
    let link = store.spool_directory().join("link");
    fs::hard_link(file.path(), &link).expect("a link on the same file system");
    drop(file);
    assert!(fs::read(&link).expect("its bytes") == content);
    let file = store
        .get_file(stored.digest, stored.size_bytes)
        .await
        .expect("a file");
    assert!(fs::read(file.path()).expect("its bytes") == content);
    fs::remove_file(link).expect("a test link");
}

/// Only artifacts that were put or renewed before a given time can be removed; a new put restores them.
async fn check_removal(store: &dyn ArtifactStore) {
    let hour = SignedDuration::from_hours(1);
    for size in [0, 3000, 9 * MIB + 7] {
        let content = bytes(size, 10);
        let stored = put(store, &content).await.expect("a put");
        let digest = stored.digest;
        assert_eq!(
            store.renew(digest).await.expect("an answer"),
            Some(stored.size_bytes)
        );
        assert_eq!(
            store.renew_intact(digest).await.expect("an answer"),
            Some(stored.size_bytes)
        );
        let listed = listed(store, digest).await.expect("it is there");
        assert_eq!(listed.size_bytes, stored.size_bytes);
        let young = store.remove(digest, listed.renewed_at - hour).await;
        assert_eq!(young.expect("an answer"), Removal::Young);
        assert!(store.contains(digest).await.expect("an answer"));
        let removed = store.remove(digest, listed.renewed_at + hour).await;
        assert_eq!(removed.expect("an answer"), Removal::Removed);
        check_gone(store, digest, stored.size_bytes).await;
        let again = store.remove(digest, listed.renewed_at + hour).await;
        assert_eq!(again.expect("an answer"), Removal::Missing);
        assert_eq!(put(store, &content).await.expect("a put"), stored);
        let whole = store.get_stream(digest, None).await.expect("a stream");
        assert!(read(whole).await.expect("its bytes") == content);
    }
}

async fn check_gone(store: &dyn ArtifactStore, digest: Digest, size_bytes: u64) {
    assert_eq!(store.size(digest).await.expect("an answer"), None);
    assert_eq!(store.renew(digest).await.expect("an answer"), None);
    assert_eq!(store.renew_intact(digest).await.expect("an answer"), None);
    assert_eq!(listed(store, digest).await, None);
    let stream = store.get_stream(digest, None).await;
    assert!(
        matches!(stream, Err(StoreError::Missing { .. })),
        "{stream:?}"
    );
    let file = store.get_file(digest, size_bytes).await;
    assert!(matches!(file, Err(StoreError::Missing { .. })), "{file:?}");
}

/// An artifact as the store lists it, once.
async fn listed(store: &dyn ArtifactStore, digest: Digest) -> Option<Listed> {
    let all: Vec<Listed> = store
        .list()
        .await
        .expect("a list")
        .try_collect()
        .await
        .expect("its entries");
    let mut found = all.into_iter().filter(|listed| listed.digest == digest);
    let first = found.next();
    assert_eq!(found.next(), None, "it is listed once");
    first
}

fn spool_file(store: &dyn ArtifactStore, content: &Bytes) -> PathBuf {
    let path = store.spool_directory().join("given");
    fs::write(&path, content).expect("a spool directory");
    path
}

/// Sends a file of `size_bytes` to the store and back, and returns the maximum growth of this process's memory in the
/// meantime. The file is never in memory here; `reader` is another store of the same place without a local copy.
pub async fn memory_growth_bytes(
    writer: &dyn ArtifactStore,
    reader: &dyn ArtifactStore,
    size_bytes: u64,
) -> u64 {
    // Allocations of the first use do not grow with the file.
    let warm_up = bytes(9 * MIB, 8);
    let stored = put(writer, &warm_up).await.expect("a put");
    let file = reader.get_file(stored.digest, stored.size_bytes).await;
    drop((file.expect("a file"), warm_up));

    let before = resident_bytes();
    let sampler = tokio::task::spawn(async {
        let mut peak = 0;
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        loop {
            interval.tick().await;
            peak = resident_bytes().max(peak);
            PEAK_BYTES.store(peak, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let stored = writer
        .put_reader(Box::new(Pattern::new(size_bytes, 9)))
        .await
        .expect("a put");
    assert_eq!(stored.size_bytes, size_bytes);
    let mut content = reader
        .get_stream(stored.digest, None)
        .await
        .expect("a stream")
        .bytes;
    let mut hasher = Hasher::new();
    while let Some(piece) = content.try_next().await.expect("its bytes") {
        hasher.update(&piece);
    }
    assert_eq!(hasher.finish(), stored.digest);
    let file = reader.get_file(stored.digest, size_bytes).await;
    let file = file.expect("a file");
    assert_eq!(fs::metadata(file.path()).expect("a file").len(), size_bytes);
    sampler.abort();
    PEAK_BYTES
        .load(std::sync::atomic::Ordering::Relaxed)
        .saturating_sub(before)
}

static PEAK_BYTES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    /// Size of a page on the supported platforms.
    const PAGE_BYTES: u64 = 4096;
    let text = fs::read_to_string("/proc/self/statm").expect("a Linux kernel");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number of statm") * PAGE_BYTES
}

/// Bytes that differ between blocks, generated while they are read.
#[derive(Debug)]
pub struct Pattern {
    block: Vec<u8>,
    offset: u64,
    size_bytes: u64,
}

impl Pattern {
    /// Size of a block, in bytes.
    const BLOCK_BYTES: u64 = 4096;

    pub fn new(size_bytes: u64, seed: u64) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ seed;
        let words = std::iter::from_fn(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Some(state.to_le_bytes())
        });
        let block = words.flatten().take(4096).collect();
        Self {
            block,
            offset: 0,
            size_bytes,
        }
    }
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let within = self.offset % Self::BLOCK_BYTES;
        if within == 0 {
            let number = (self.offset / Self::BLOCK_BYTES).to_le_bytes();
            self.block[..8].copy_from_slice(&number);
        }
        let left = (Self::BLOCK_BYTES - within).min(self.size_bytes - self.offset);
        let count = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let begin = usize::try_from(within).map_err(io::Error::other)?;
        buffer[..count].copy_from_slice(&self.block[begin..begin + count]);
        self.offset += count as u64;
        Ok(count)
    }
}
