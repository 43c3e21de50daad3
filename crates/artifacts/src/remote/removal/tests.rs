//! Artifacts that are put, renewed and deleted concurrently, in a slow store.

use std::fmt;

use aod_testkit::Scratch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::*;
use crate::CacheConfig;
use crate::remote::RemoteStore;

/// Number of rounds.
const ROUNDS: usize = 60;

/// Maximum delay of puts and renewals after removals.
const LATE_MILLISECONDS_MAX: u64 = 25;

/// Longest pause before and after each request, in microseconds.
const PAUSE_MICROSECONDS_MAX: u64 = 400;

/// A store with slow requests and slow answers.
#[derive(Debug, Default)]
struct Slow(InMemory);

impl Slow {
    async fn pause() {
        let microseconds = u64::from(Uuid::now_v7().as_bytes()[15]) * PAUSE_MICROSECONDS_MAX / 256;
        sleep(Duration::from_micros(microseconds)).await;
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("slow")
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        Self::pause().await;
        // Store a copy, because the sent bytes use memory for uploads.
        let copied = Bytes::copy_from_slice(&Bytes::from(payload));
        let put = self.0.put_opts(path, copied.into(), options).await;
        Self::pause().await;
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        Self::pause().await;
        let got = self.0.get_opts(path, options).await;
        Self::pause().await;
        got
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let paths = paths.then(async |path| {
            Self::pause().await;
            path
        });
        let deleted = self.0.delete_stream(paths.boxed());
        deleted
            .then(async |path| {
                Self::pause().await;
                path
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// Several programs on one store, which renew every artifact that they name.
fn programs(scratch: &Scratch) -> [RemoteStore; 3] {
    let store: Arc<dyn ObjectStore> = Arc::new(Slow::default());
    [0, 1, 2].map(|number| {
        let config = CacheConfig {
            directory: scratch.path().join(format!("{number}")),
            bytes_max: 0,
        };
        let (store, removing) = (Arc::clone(&store), Arc::clone(&store));
        let mut opened = RemoteStore::open(store, removing, None, &config).expect("a cache");
        let remote = Arc::get_mut(&mut opened.remote).expect("nobody else has it");
        remote.renewed_after = Duration::ZERO;
        opened
    })
}

fn now() -> Timestamp {
    Timestamp::now()
}

/// Puts `content` as a whole.
async fn put(program: &RemoteStore, content: &[u8]) -> Digest {
    use aod_ports::artifact_store::ArtifactStore as _;
    let reader = std::io::Cursor::new(content.to_vec());
    let stored = program.put_reader(Box::new(reader)).await;
    stored.expect("a put").digest
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_put_or_renewed_during_removal_exists() {
    let scratch = Scratch::new("removal");
    let [one, two, three] = programs(&scratch);
    let (mut removals, mut renewals) = (0, [0, 0]);
    for round in 0..ROUNDS {
        let content = round.to_be_bytes();
        let digest = put(&one, &content).await;
        sleep(Duration::from_micros(10)).await;
        let before = now();
        // Sometimes before the collectors, sometimes after them.
        let begin =
            async || sleep(Duration::from_millis(round as u64 % LATE_MILLISECONDS_MAX)).await;
        let ((), renewed, first, second) = tokio::join!(
            async {
                begin().await;
                // In every second round no program puts the bytes.
                if round % 2 == 0 {
                    put(&one, &content).await;
                }
            },
            async {
                begin().await;
                two.remote.renewed(digest).await
            },
            two.remote.remove(digest, before),
            three.remote.remove(digest, before),
        );
        let (first, second) = (first.expect("an answer"), second.expect("an answer"));
        let renewed = renewed.expect("an answer").is_some();
        let is_there = one.remote.size(digest).await.expect("an answer").is_some();
        let is_expected = round % 2 == 0 || renewed;
        assert!(is_there || !is_expected, "{round}: {first:?}, {second:?}");
        assert!((first, second) != (Removal::Removed, Removal::Removed) || round % 2 == 0);
        removals += usize::from(first == Removal::Removed || second == Removal::Removed);
        renewals[usize::from(renewed)] += 1;
    }
    assert!(removals > 0, "nothing was ever removed");
    assert!(renewals.iter().all(|count| *count > 0), "{renewals:?}");
}

#[tokio::test(start_paused = true)]
async fn dead_collector_blocks_puts_only_briefly() {
    let scratch = Scratch::new("removal");
    let [one, two, _] = programs(&scratch);
    let digest = Digest::of("content");
    let object = object_path(digest);
    let put = one.remote.store.put(&object, Bytes::from("content").into());
    put.await.expect("a put");
    one.remote
        .mark(digest, &path(MARKED, digest))
        .await
        .expect("a mark");
    let began = Instant::now();
    assert_eq!(
        two.remote.renewed(digest).await.expect("an answer"),
        Some(7)
    );
    assert!(began.elapsed() >= COLLECTOR_DEAD_AFTER);
    // One of the next collectors takes the mark over.
    let (first, second) = tokio::join!(
        one.remote.remove(digest, Timestamp::MAX),
        two.remote.remove(digest, Timestamp::MAX),
    );
    let removals = [first.expect("an answer"), second.expect("an answer")];
    assert!(removals.contains(&Removal::Removed), "{removals:?}");
    assert!(removals.contains(&Removal::Missing), "{removals:?}");
    let left: Vec<ObjectMeta> = one
        .remote
        .store
        .list(None)
        .try_collect()
        .await
        .expect("a list");
    assert_eq!(left, [], "nothing is left behind");
}
