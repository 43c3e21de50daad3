//! A real S3 server with spool and cache, and faults of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aod_artifacts::CacheConfig;
use aod_domain::digest::Digest;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_testkit::artifacts::{Pattern, bytes, check_all, memory_growth_bytes, put, read};
use aod_testkit::{S3Server, Scratch, TinyDisk};

const GIB: u64 = 1 << 30;

/// A server, its credentials, and directories for caches.
struct Fixture {
    server: S3Server,
    scratch: Scratch,
}

impl Fixture {
    fn start() -> Self {
        let scratch = Scratch::new("s3-client");
        let credentials = format!(
            "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY
        );
        fs::write(scratch.path().join("credentials"), credentials).expect("a directory of ours");
        Self {
            server: S3Server::start(),
            scratch,
        }
    }

    fn url(&self) -> String {
        format!(
            "s3://{}/some/prefix?endpoint={}&region=us-east-1&credentials={}",
            S3Server::BUCKET,
            self.server.endpoint(),
            self.scratch.path().join("credentials").display()
        )
    }

    /// A store with its own cache, like another host.
    fn open(&self, host: &str, cache_bytes_max: u64) -> Arc<dyn ArtifactStore> {
        let directory = self.scratch.path().join(host);
        let cache = CacheConfig {
            directory,
            bytes_max: cache_bytes_max,
        };
        aod_artifacts::open(&self.url(), &cache).expect("a URL of ours")
    }

    /// The file in which the server keeps an object.
    fn object(&self, digest: Digest) -> PathBuf {
        let text = digest.to_string();
        self.server
            .bucket_directory()
            .join("some/prefix/sha256")
            .join(&text[..2])
            .join(text)
    }
}

/// Waits until `condition` holds, at most 30 s.
async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within 30 s"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sum of the files in a directory and below, in bytes.
fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

#[tokio::test]
async fn s3_store_conforms() {
    let fixture = Fixture::start();
    check_all(&*fixture.open("a", GIB)).await;
}

#[tokio::test]
async fn s3_store_conforms_with_tiny_cache() {
    let fixture = Fixture::start();
    check_all(&*fixture.open("a", 0)).await;
    let left = size_of(&fixture.scratch.path().join("a"));
    assert_eq!(left, 0, "no file is pinned");
}

#[tokio::test]
async fn concurrent_gets_of_host_fetch_once() {
    let fixture = Fixture::start();
    let (one, other) = (fixture.open("a", GIB), fixture.open("b", GIB));
    let content = bytes(20 << 20, 1);
    let stored = put(&*one, &content).await.expect("a put");
    let gets = (0..20).map(|_| other.get_file(stored.digest, stored.size_bytes));
    let files = futures::future::join_all(gets).await;
    for file in files {
        assert!(fs::read(file.expect("a file").path()).expect("its bytes") == content);
    }
    // The host does not fetch a cached artifact again.
    fs::remove_file(fixture.object(stored.digest)).expect("the object");
    let file = other
        .get_file(stored.digest, stored.size_bytes)
        .await
        .expect("a cached file");
    assert!(fs::read(file.path()).expect("its bytes") == content);
    let stream = one
        .get_stream(stored.digest, None)
        .await
        .expect("a cached file");
    assert!(
        read(stream).await.expect("its bytes") == content,
        "a put keeps a copy"
    );
}

#[tokio::test]
async fn put_of_cached_file_is_sent() {
    let fixture = Fixture::start();
    let store = fixture.open("a", GIB);
    for size in [1000, 9 << 20] {
        let content = bytes(size, 2);
        let stored = put(&*store, &content).await.expect("a put");
        fs::remove_file(fixture.object(stored.digest)).expect("the object");
        put(&*store, &content).await.expect("a put");
        assert!(fixture.object(stored.digest).exists());
    }
}

#[tokio::test]
async fn damaged_object_is_detected_and_repaired_by_next_put() {
    let fixture = Fixture::start();
    let writer = fixture.open("a", GIB);
    for size in [100_000, 9 << 20] {
        let content = bytes(size, 3);
        let stored = put(&*writer, &content).await.expect("a put");
        let reader = fixture.open("b", 0);
        for broken in [bytes(size, 4), content.slice(..size / 2)] {
            fs::write(fixture.object(stored.digest), &broken).expect("the object");
            let got = reader.get_file(stored.digest, stored.size_bytes).await;
            assert!(matches!(got, Err(StoreError::Corrupt { .. })), "{got:?}");
            let stream = reader
                .get_stream(stored.digest, None)
                .await
                .expect("a stream");
            let error = read(stream).await.expect_err("damage shows at the end");
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
            let intact = reader.renew_intact(stored.digest).await;
            assert_eq!(intact.expect("an answer"), None);
            assert_eq!(put(&*reader, &content).await.expect("a put"), stored);
            let file = reader
                .get_file(stored.digest, stored.size_bytes)
                .await
                .expect("a file");
            assert!(fs::read(file.path()).expect("its bytes") == content);
        }
    }
}

#[tokio::test]
async fn cache_keeps_its_limit_under_load() {
    let fixture = Fixture::start();
    let limit = 4 << 20;
    let store = fixture.open("a", limit);
    let cache = fixture.scratch.path().join("a/sha256");
    let mut held = Vec::new();
    for number in 0..12 {
        let stored = put(&*store, &bytes(1 << 20, number)).await.expect("a put");
        if number < 2 {
            held.push(
                store
                    .get_file(stored.digest, stored.size_bytes)
                    .await
                    .expect("a file"),
            );
        }
        assert!(size_of(&cache) <= limit, "after {number}");
    }
    for file in &held {
        assert!(file.path().exists(), "{file:?}");
    }
    // A file larger than the whole cache is fetched too, and evicted after its use.
    let large = put(&*fixture.open("b", GIB), &bytes(6 << 20, 99))
        .await
        .expect("a put");
    let file = store
        .get_file(large.digest, large.size_bytes)
        .await
        .expect("a file");
    assert!(file.path().exists());
    drop(file);
    assert!(size_of(&cache) <= limit);
}

#[tokio::test]
async fn needs_root_full_disk_of_cache_is_reported_and_recovers() {
    let fixture = Fixture::start();
    let content = bytes(16 << 20, 7);
    let stored = put(&*fixture.open("a", GIB), &content)
        .await
        .expect("a put");
    let disk = TinyDisk::mount(8 << 20);
    let cache = CacheConfig {
        directory: disk.path().to_owned(),
        bytes_max: GIB,
    };
    let store = aod_artifacts::open(&fixture.url(), &cache).expect("a URL of ours");
    let got = store.get_file(stored.digest, stored.size_bytes).await;
    assert!(matches!(got, Err(StoreError::NoRoom { .. })), "{got:?}");
    let stream = store
        .get_stream(stored.digest, None)
        .await
        .expect("a stream");
    assert!(
        read(stream).await.expect("its bytes") == content,
        "a stream needs no disk"
    );
    let small = put(&*store, &bytes(5 << 20, 8)).await.expect("what fits");
    store
        .get_file(small.digest, small.size_bytes)
        .await
        .expect("a cached file");
}

#[tokio::test]
async fn killed_server_only_delays_put_and_get() {
    let mut fixture = Fixture::start();
    let (one, other) = (fixture.open("a", GIB), fixture.open("b", GIB));
    let size = 192 << 20;
    let bucket = fixture.server.bucket_directory();
    let root = bucket.parent().expect("the root of the server").to_owned();
    let putting = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.put_reader(Box::new(Pattern::new(size, 5))).await }
    });
    wait_until("the upload", || size_of(&root) > size / 4).await;
    assert!(!putting.is_finished());
    fixture = killed_for_a_while(fixture).await;
    let stored = putting.await.expect("a task").expect("a put");

    let spool = other.spool_directory().to_owned();
    let getting = tokio::spawn({
        let other = Arc::clone(&other);
        async move { other.get_file(stored.digest, size).await }
    });
    wait_until("the download", || size_of(&spool) > size / 4).await;
    assert!(!getting.is_finished());
    fixture = killed_for_a_while(fixture).await;
    let file = getting.await.expect("a task").expect("a file");
    assert_eq!(fs::metadata(file.path()).expect("a file").len(), size);
    drop(fixture);
}

/// Kills the server, and restarts it after clients have failed to connect.
async fn killed_for_a_while(mut fixture: Fixture) -> Fixture {
    let killed = tokio::task::spawn_blocking(move || {
        fixture.server.kill();
        std::thread::sleep(Duration::from_millis(500));
        fixture.server.restart();
        fixture
    });
    killed.await.expect("a restart")
}

#[tokio::test]
async fn wrong_credentials_are_reported() {
    let fixture = Fixture::start();
    let credentials = "aws_access_key_id = test-access\naws_secret_access_key = wrong\n";
    fs::write(fixture.scratch.path().join("credentials"), credentials).expect("a file");
    let store = fixture.open("a", GIB);
    let error = store.check().await.expect_err("wrong credentials");
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn second_process_cannot_open_cache() {
    let fixture = Fixture::start();
    let _one = fixture.open("a", GIB);
    let cache = CacheConfig {
        directory: fixture.scratch.path().join("a"),
        bytes_max: GIB,
    };
    let error = aod_artifacts::open(&fixture.url(), &cache).expect_err("the cache is in use");
    assert!(
        matches!(error, aod_artifacts::OpenError::CacheInUse { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_put_and_get_of_large_file_use_little_memory() {
    let fixture = Fixture::start();
    let (writer, reader) = (fixture.open("a", 2 * GIB), fixture.open("b", 2 * GIB));
    let growth = memory_growth_bytes(&*writer, &*reader, GIB / 2).await;
    println!("memory grew by {} KiB", growth / 1024);
    assert!(growth < 32 << 20, "memory grew by {growth} bytes");
}
