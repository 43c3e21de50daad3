//! Artifacts on the object store: the conformance suite, and faults of the server.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aod_artifacts::CacheConfig;
use aod_jetstream::object_store::JetStreamObjectStore;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_testkit::artifacts::{Pattern, bytes, check_all, memory_growth_bytes, put, read};
use aod_testkit::{NatsConfig, NatsServer, Scratch};
use async_nats::jetstream;

use super::{BucketConfig, config, connect, killed_for_a_while};

const GIB: u64 = 1 << 30;

/// A store with its own connection and cache, like another host.
async fn open(server: &NatsServer, scratch: &Scratch, host: &str) -> Arc<dyn ArtifactStore> {
    open_with(server, scratch, host, 3 * GIB).await
}

async fn open_with(
    server: &NatsServer,
    scratch: &Scratch,
    host: &str,
    bytes_max: u64,
) -> Arc<dyn ArtifactStore> {
    let bucket = BucketConfig {
        bytes_max,
        ..config()
    };
    let store = JetStreamObjectStore::open(connect(server).await, &bucket).await;
    let cache = CacheConfig {
        directory: scratch.path().join(host),
        bytes_max: 2 * GIB,
    };
    let store = Arc::new(store.expect("a store on a fresh server"));
    let limited = Arc::clone(&store) as _;
    aod_artifacts::over(store, Some(limited), &cache).expect("a cache of its own")
}

#[tokio::test]
async fn artifact_store_on_broker_conforms() {
    let server = NatsServer::start(NatsConfig::default());
    let scratch = Scratch::new("artifacts");
    check_all(&*open(&server, &scratch, "a").await).await;
}

#[tokio::test]
async fn lost_chunk_is_damage_that_next_put_repairs() {
    let server = NatsServer::start(NatsConfig::default());
    let scratch = Scratch::new("artifacts");
    let content = bytes(9 << 20, 1);
    let stored = put(&*open(&server, &scratch, "a").await, &content)
        .await
        .expect("a put");
    let context = jetstream::new(connect(&server).await);
    let stream = context.get_stream("FILES").await.expect("the stream");
    stream
        .purge()
        .filter("obj.artifacts.c.*.0.3")
        .await
        .expect("a chunk to go");

    let other = open(&server, &scratch, "b").await;
    let got = other.get_file(stored.digest, stored.size_bytes).await;
    assert!(matches!(got, Err(StoreError::Corrupt { .. })), "{got:?}");
    let whole = other
        .get_stream(stored.digest, None)
        .await
        .expect("a stream");
    let error = read(whole).await.expect_err("a chunk is missing");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    put(&*other, &content).await.expect("a put");
    let third = open(&server, &scratch, "c").await;
    let file = third
        .get_file(stored.digest, stored.size_bytes)
        .await
        .expect("a file");
    assert!(fs::read(file.path()).expect("its bytes") == content);
}

#[tokio::test]
async fn full_stream_is_reported_as_no_room() {
    let server = NatsServer::start(NatsConfig::default());
    let scratch = Scratch::new("artifacts");
    let store = open_with(&server, &scratch, "a", 6 << 20).await;
    for size in [7 << 20, 20 << 20] {
        let error = put(&*store, &bytes(size, 2)).await.expect_err("too much");
        assert!(matches!(error, StoreError::NoRoom { .. }), "{error:?}");
    }
    put(&*store, &bytes(5 << 20, 3))
        .await
        .expect("what fits once the broken puts are gone");
    let space = store.space().await.expect("an answer").expect("a limit");
    assert_eq!(space.size_bytes, 6 << 20);
    assert!(space.free_bytes < 1 << 20, "{space:?}");
}

#[tokio::test]
async fn killed_server_only_delays_put_and_get() {
    let mut server = NatsServer::start(NatsConfig::default());
    let scratch = Scratch::new("artifacts");
    let (one, other) = (
        open(&server, &scratch, "a").await,
        open(&server, &scratch, "b").await,
    );
    let size = 192 << 20;
    let putting = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.put_reader(Box::new(Pattern::new(size, 4))).await }
    });
    let context = jetstream::new(connect(&server).await);
    let mut stream = context.get_stream("FILES").await.expect("the stream");
    let deadline = Instant::now() + Duration::from_secs(60);
    while stream.info().await.expect("the stream").state.bytes < size / 4 {
        assert!(Instant::now() < deadline && !putting.is_finished());
    }
    server = restarted(server).await;
    let stored = putting.await.expect("a task").expect("a put");

    let spool = other.spool_directory().to_owned();
    let getting = tokio::spawn({
        let other = Arc::clone(&other);
        async move { other.get_file(stored.digest, size).await }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while size_of_files(&spool) < size / 4 {
        assert!(Instant::now() < deadline && !getting.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server = restarted(server).await;
    let file = getting.await.expect("a task").expect("a file");
    assert_eq!(fs::metadata(file.path()).expect("a file").len(), size);
    drop(server);
}

async fn restarted(server: NatsServer) -> NatsServer {
    let restart = tokio::task::spawn_blocking(move || killed_for_a_while(server));
    restart.await.expect("a restart")
}

fn size_of_files(directory: &std::path::Path) -> u64 {
    let entries = fs::read_dir(directory)
        .expect("a directory of ours")
        .filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_and_get_of_gigabyte_use_little_memory() {
    let server = NatsServer::start(NatsConfig::default());
    let scratch = Scratch::new("artifacts");
    let (one, other) = (
        open(&server, &scratch, "a").await,
        open(&server, &scratch, "b").await,
    );
    let growth = memory_growth_bytes(&*one, &*other, GIB).await;
    println!("memory grew by {} KiB", growth / 1024);
    assert!(growth < 48 << 20, "memory grew by {growth} bytes");
}
