//! The object store on a real nats-server: the tests of `object_store` itself, and tests of broken
//! connections, full streams and damaged objects.

mod artifacts;

use std::io::ErrorKind;
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{
    Error, GetOptions, MultipartUpload as _, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload,
    WriteMultipart, integration,
};
use aod_jetstream::object_store::{BucketConfig, JetStreamObjectStore, OpenError};
use aod_testkit::{NatsConfig, NatsServer};
use async_nats::jetstream;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};

const CHUNK_BYTES: usize = 512 * 1024;

fn config() -> BucketConfig {
    BucketConfig {
        stream: "FILES".to_owned(),
        bucket: "artifacts".to_owned(),
        bytes_max: 1 << 30,
        replicas: 1,
    }
}

async fn connect(server: &NatsServer) -> async_nats::Client {
    async_nats::connect(server.url())
        .await
        .expect("a server that has just started")
}

async fn start() -> (NatsServer, JetStreamObjectStore) {
    let server = NatsServer::start(NatsConfig::default());
    let store = open(&server).await;
    (server, store)
}

async fn open(server: &NatsServer) -> JetStreamObjectStore {
    let client = connect(server).await;
    JetStreamObjectStore::open(client, &config())
        .await
        .expect("a store on a fresh server")
}

/// Bytes that differ from chunk to chunk.
fn bytes(size: usize) -> Bytes {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ size as u64;
    let words = std::iter::from_fn(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    });
    words.flatten().take(size).collect::<Vec<u8>>().into()
}

async fn read(store: &JetStreamObjectStore, path: &Path) -> Bytes {
    store
        .get(path)
        .await
        .expect("an object")
        .bytes()
        .await
        .expect("its bytes")
}

/// The number of chunks in the stream.
async fn chunk_count(server: &NatsServer) -> usize {
    let context = jetstream::new(connect(server).await);
    let stream = context.get_stream("FILES").await.expect("the stream");
    let subjects = stream
        .info_with_subjects("obj.artifacts.c.>")
        .await
        .expect("its subjects");
    subjects.count().await
}

/// The kind of the first IO error among the sources.
fn io_kind(error: &Error) -> Option<ErrorKind> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = cause.source();
    }
    None
}

#[tokio::test]
async fn object_store_conforms() {
    let (_server, store) = start().await;
    integration::put_get_delete_list(&store).await;
    integration::get_opts(&store).await;
    integration::put_opts(&store, true).await;
    integration::list_uses_directories_correctly(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::list_with_offset_exclusivity(&store).await;
    integration::rename_and_copy(&store).await;
    integration::copy_if_not_exists(&store).await;
    integration::copy_rename_nonexistent_object(&store).await;
    integration::get_nonexistent_object(&store, None)
        .await
        .expect_err("no such object");
}

#[tokio::test]
async fn object_store_conforms_for_uploads_in_parts() {
    let (_server, store) = start().await;
    integration::stream_get(&store).await;
    integration::multipart_race_condition(&store, true).await;
    integration::multipart_out_of_order(&store).await;
}

#[tokio::test]
async fn objects_of_every_size_are_read_in_all_ranges() {
    let (_server, store) = start().await;
    let edge = 64 * 1024;
    let mib = 1 << 20;
    for size in [
        0,
        1,
        edge,
        edge + 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        5 * mib + 1,
    ] {
        let path = Path::from(format!("sizes/{size}"));
        let content = bytes(size);
        store
            .put(&path, content.clone().into())
            .await
            .expect("a put");
        assert_eq!(store.head(&path).await.expect("a head").size, size as u64);
        assert!(read(&store, &path).await == content, "{size}");
        for (start, end) in [
            (0, 1),
            (size / 3, size / 2),
            (size.saturating_sub(1), size + 9),
        ] {
            if start >= size || start >= end {
                continue;
            }
            let part = store
                .get_range(&path, start as u64..end as u64)
                .await
                .expect("a range");
            assert!(
                part == content[start..end.min(size)],
                "{size}: {start}..{end}"
            );
        }
        let beyond = store.get_range(&path, size as u64..size as u64 + 1).await;
        beyond.expect_err("a range beyond the end");
    }
}

#[tokio::test]
async fn copy_has_its_own_chunks() {
    let (_server, store) = start().await;
    let (from, to) = (Path::from("from"), Path::from("to"));
    let content = bytes(3 * CHUNK_BYTES + 7);
    let mut upload = store.put_multipart(&from).await.expect("an upload");
    upload
        .put_part(content.slice(..CHUNK_BYTES + 5).into())
        .await
        .expect("a part");
    upload
        .put_part(content.slice(CHUNK_BYTES + 5..).into())
        .await
        .expect("a part");
    upload.complete().await.expect("its end");
    store.copy(&from, &to).await.expect("a copy");
    store.delete(&from).await.expect("a delete");
    assert!(read(&store, &to).await == content);
}

#[tokio::test]
async fn failed_uploads_leave_nothing() {
    let (server, store) = start().await;
    let path = Path::from("broken");
    let mut upload = store.put_multipart(&path).await.expect("an upload");
    upload
        .put_part(bytes(2 * CHUNK_BYTES).into())
        .await
        .expect("a part");
    drop(upload.put_part(bytes(10).into()));
    upload.complete().await.expect_err("a part was never sent");
    assert_eq!(chunk_count(&server).await, 2);
    upload.abort().await.expect("an abort");
    assert_eq!(chunk_count(&server).await, 0);

    let content = bytes(4 * CHUNK_BYTES);
    store
        .put(&path, content.clone().into())
        .await
        .expect("a put");
    let again = store
        .put_opts(&path, content.into(), PutMode::Create.into())
        .await;
    assert!(
        matches!(again, Err(Error::AlreadyExists { .. })),
        "{again:?}"
    );
    store.delete(&path).await.expect("a delete");
    assert_eq!(chunk_count(&server).await, 0);
}

#[tokio::test]
async fn one_of_many_creates_wins_and_leaves_nothing_else() {
    let (server, store) = start().await;
    let path = Path::from("contended");
    let content = bytes(3 * CHUNK_BYTES);
    let puts = (0..8).map(|_| {
        let (store, path, content) = (store.clone(), path.clone(), content.clone());
        async move {
            store
                .put_opts(&path, content.into(), PutMode::Create.into())
                .await
        }
    });
    let results = futures::future::join_all(puts).await;
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    for error in results.into_iter().filter_map(Result::err) {
        assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    }
    assert!(read(&store, &path).await == content);
    assert_eq!(chunk_count(&server).await, 3);
}

#[tokio::test]
async fn restart_of_server_during_put_and_get_loses_nothing() {
    let (mut server, store) = start().await;
    let path = Path::from("restarted");
    let content = bytes(64 << 20);
    let upload = store.put_multipart(&path).await.expect("an upload");
    let mut writer = WriteMultipart::new_with_chunk_size(upload, 4 << 20);
    for (number, part) in content.chunks(4 << 20).enumerate() {
        writer.wait_for_capacity(2).await.expect("earlier parts");
        writer.put(Bytes::copy_from_slice(part));
        if number == 7 {
            server = tokio::task::spawn_blocking(move || killed_for_a_while(server))
                .await
                .expect("a restart");
        }
    }
    writer.finish().await.expect("the end of the upload");

    let mut stream = store.get(&path).await.expect("the object").into_stream();
    let mut read = Vec::new();
    while let Some(piece) = stream.try_next().await.expect("its bytes") {
        let before = read.len();
        read.extend_from_slice(&piece);
        if before / (32 << 20) != read.len() / (32 << 20) && read.len() < content.len() {
            server = tokio::task::spawn_blocking(move || killed_for_a_while(server))
                .await
                .expect("a restart");
        }
    }
    assert!(read == content);
    drop(server);
}

/// Kills the server, and restarts it after clients have failed to connect.
fn killed_for_a_while(mut server: NatsServer) -> NatsServer {
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    server.restart();
    server
}

#[tokio::test]
async fn put_survives_server_that_hangs() {
    let (server, store) = start().await;
    let path = Path::from("paused");
    let content = bytes(8 << 20);
    server.pause();
    let put = tokio::spawn({
        let (store, path, content) = (store.clone(), path.clone(), content.clone());
        async move { store.put(&path, content.into()).await }
    });
    // One answer may take 5 s: the chunks are sent twice and stored once.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(!put.is_finished());
    server.resume();
    put.await.expect("a task").expect("a put");
    assert!(read(&store, &path).await == content);
    assert_eq!(chunk_count(&server).await, 16);
}

#[tokio::test]
async fn full_stream_rejects_puts_and_keeps_objects() {
    let server = NatsServer::start(NatsConfig::default());
    let small = BucketConfig {
        bytes_max: 4 << 20,
        ..config()
    };
    let client = connect(&server).await;
    let store = JetStreamObjectStore::open(client, &small)
        .await
        .expect("a small store");
    let kept = Path::from("kept");
    store
        .put(&kept, bytes(1 << 20).into())
        .await
        .expect("what fits");
    let chunks = chunk_count(&server).await;
    let error = store
        .put(&Path::from("too-much"), bytes(8 << 20).into())
        .await
        .expect_err("too many bytes");
    assert_eq!(io_kind(&error), Some(ErrorKind::StorageFull), "{error}");
    assert_eq!(
        chunk_count(&server).await,
        chunks,
        "the chunks of the failed put are removed"
    );
    assert!(read(&store, &kept).await == bytes(1 << 20));

    let larger = open(&server).await;
    larger
        .put(&Path::from("too-much"), bytes(8 << 20).into())
        .await
        .expect("a raised limit");
}

#[tokio::test]
async fn object_without_a_chunk_is_damaged_not_short() {
    let (server, store) = start().await;
    let path = Path::from("damaged");
    store
        .put(&path, bytes(4 * CHUNK_BYTES).into())
        .await
        .expect("a put");
    let context = jetstream::new(connect(&server).await);
    let stream = context.get_stream("FILES").await.expect("the stream");
    let third = "obj.artifacts.c.*.0.2";
    stream
        .purge()
        .filter(third)
        .await
        .expect("the third chunk to go");
    let error = store
        .get(&path)
        .await
        .expect("its record")
        .bytes()
        .await
        .expect_err("damage");
    assert_eq!(io_kind(&error), Some(ErrorKind::InvalidData), "{error}");
    let begin = store
        .get_range(&path, 0..2 * CHUNK_BYTES as u64)
        .await
        .expect("what is whole");
    assert!(begin == bytes(4 * CHUNK_BYTES)[..2 * CHUNK_BYTES]);
}

#[tokio::test]
async fn reader_of_overwritten_object_can_finish() {
    let (_server, store) = start().await;
    let path = Path::from("overwritten");
    let (old, new) = (bytes(20 << 20), bytes((20 << 20) + 1));
    store.put(&path, old.clone().into()).await.expect("a put");
    let mut stream = store.get(&path).await.expect("the object").into_stream();
    let mut read_back = stream
        .try_next()
        .await
        .expect("its bytes")
        .expect("a piece")
        .to_vec();
    store
        .put(&path, new.clone().into())
        .await
        .expect("an overwrite");
    while let Some(piece) = stream.try_next().await.expect("its bytes") {
        read_back.extend_from_slice(&piece);
    }
    assert!(read_back == old);
    assert!(read(&store, &path).await == new);
}

#[tokio::test]
async fn unsupported_operations_are_rejected() {
    let (_server, store) = start().await;
    let path = Path::from("refused");
    let attributes = ::object_store::Attributes::from_iter([(
        ::object_store::Attribute::ContentType,
        "text/plain",
    )]);
    let put = store
        .put_opts(&path, PutPayload::new(), attributes.into())
        .await;
    assert!(matches!(put, Err(Error::NotImplemented { .. })), "{put:?}");
    let options = GetOptions {
        version: Some("1".to_owned()),
        ..GetOptions::default()
    };
    let get = store.get_opts(&path, options).await;
    assert!(matches!(get, Err(Error::NotImplemented { .. })), "{get:?}");
    store
        .put(&Path::ROOT, PutPayload::new())
        .await
        .expect_err("an object needs a name");
}

/// Creates the stream `foreign`, opens the store, and compares the field in the error.
async fn check_refused(foreign: jetstream::stream::Config, expected_field: &str) {
    let server = NatsServer::start(NatsConfig::default());
    let client = connect(&server).await;
    jetstream::new(client.clone())
        .create_stream(foreign)
        .await
        .expect("a stream");
    let error = JetStreamObjectStore::open(client, &config())
        .await
        .expect_err("a mismatch");
    let OpenError::Mismatch { field, .. } = &error else {
        panic!("{error}: {error:?}")
    };
    assert_eq!(field, expected_field, "{error}");
}

#[tokio::test]
async fn foreign_stream_is_rejected_with_field() {
    let ours = jetstream::stream::Config {
        name: "FILES".to_owned(),
        subjects: vec!["obj.artifacts.>".to_owned()],
        ..Default::default()
    };
    check_refused(ours.clone(), "allow_direct").await;
    let not_durable = jetstream::stream::Config {
        persist_mode: Some(jetstream::stream::PersistenceMode::Async),
        ..ours
    };
    check_refused(not_durable, "persist_mode").await;
}

#[tokio::test]
async fn server_with_small_max_payload_is_rejected() {
    let extra = "max_payload: 262144\n".to_owned();
    let server = NatsServer::start(NatsConfig {
        extra,
        ..NatsConfig::default()
    });
    let client = connect(&server).await;
    let error = JetStreamObjectStore::open(client, &config())
        .await
        .expect_err("a limit");
    assert!(matches!(error, OpenError::MaxPayload { .. }), "{error}");
}
