//! The local store, and faults of a disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_artifacts::CacheConfig;
use aod_domain::digest::Digest;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_testkit::artifacts::{Pattern, bytes, check_all, memory_growth_bytes, put, read};
use aod_testkit::{Scratch, TinyDisk};

fn open(directory: &Path) -> Arc<dyn ArtifactStore> {
    let url = format!("file://{}", directory.display());
    let unused = CacheConfig {
        directory: PathBuf::new(),
        bytes_max: 0,
    };
    aod_artifacts::open(&url, &unused).expect("a directory of ours")
}

fn object(directory: &Path, digest: Digest) -> PathBuf {
    let text = digest.to_string();
    directory.join("sha256").join(&text[..2]).join(text)
}

/// Replaces the bytes of an object, as a broken disk would.
fn damage(path: &Path, content: &[u8]) {
    fs::remove_file(path).expect("an object");
    fs::write(path, content).expect("a directory of ours");
}

#[tokio::test]
async fn local_store_conforms() {
    let scratch = Scratch::new("local");
    check_all(&*open(scratch.path())).await;
}

#[tokio::test]
async fn processes_can_share_directory() {
    let scratch = Scratch::new("local");
    let (one, other) = (open(scratch.path()), open(scratch.path()));
    let content = bytes(1_000_000, 1);
    let stored = put(&*one, &content).await.expect("a put");
    let file = other
        .get_file(stored.digest, stored.size_bytes)
        .await
        .expect("a file");
    assert!(fs::read(file.path()).expect("its bytes") == content);
    assert_eq!(
        file.path(),
        object(scratch.path(), stored.digest),
        "no second copy"
    );
    assert_ne!(one.spool_directory(), other.spool_directory());
}

#[tokio::test]
async fn damaged_object_is_detected_and_repaired_by_next_put() {
    let scratch = Scratch::new("local");
    let store = open(scratch.path());
    let content = bytes(300_000, 2);
    let stored = put(&*store, &content).await.expect("a put");
    let path = object(scratch.path(), stored.digest);
    let mut flipped = content.to_vec();
    flipped[299_999] ^= 1;
    for broken in [&flipped[..], &content[..1000], &[]] {
        damage(&path, broken);
        let got = store.get_file(stored.digest, stored.size_bytes).await;
        assert!(matches!(got, Err(StoreError::Corrupt { .. })), "{got:?}");
        let stream = store
            .get_stream(stored.digest, None)
            .await
            .expect("a stream");
        let error = read(stream).await.expect_err("damage shows at the end");
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        let intact = store.renew_intact(stored.digest).await;
        assert_eq!(intact.expect("an answer"), None);
        assert_eq!(put(&*store, &content).await.expect("a put"), stored);
        let file = store
            .get_file(stored.digest, stored.size_bytes)
            .await
            .expect("a file");
        assert!(fs::read(file.path()).expect("its bytes") == content);
    }
}

#[tokio::test]
async fn damage_before_start_is_detected() {
    let scratch = Scratch::new("local");
    let content = bytes(300_000, 3);
    let stored = put(&*open(scratch.path()), &content).await.expect("a put");
    damage(&object(scratch.path(), stored.digest), &bytes(300_000, 4));
    let got = open(scratch.path())
        .get_file(stored.digest, stored.size_bytes)
        .await;
    assert!(matches!(got, Err(StoreError::Corrupt { .. })), "{got:?}");
}

#[tokio::test]
async fn needs_root_full_disk_is_reported_and_leaves_nothing() {
    let disk = TinyDisk::mount(8 << 20);
    let store = open(disk.path());
    let small = put(&*store, &bytes(1 << 20, 5)).await.expect("what fits");
    let too_much = store.put_reader(Box::new(Pattern::new(16 << 20, 6))).await;
    assert!(
        matches!(too_much, Err(StoreError::NoRoom { .. })),
        "{too_much:?}"
    );
    let left = fs::read_dir(store.spool_directory())
        .expect("the spool")
        .count();
    assert_eq!(left, 1, "only the lock");
    put(&*store, &bytes(4 << 20, 7))
        .await
        .expect("what fits now");
    store
        .get_file(small.digest, small.size_bytes)
        .await
        .expect("what was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_and_get_of_gigabyte_use_little_memory() {
    let scratch = Scratch::new("local");
    let (writer, reader) = (open(scratch.path()), open(scratch.path()));
    let growth = memory_growth_bytes(&*writer, &*reader, 1 << 30).await;
    println!("memory grew by {} KiB", growth / 1024);
    assert!(growth < 8 << 20, "memory grew by {growth} bytes");
}

#[tokio::test]
async fn store_is_private_and_open_directory_with_content_is_refused() {
    let scratch = Scratch::new("local");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let new = scratch.path().join("new");
    let store = open(&new);
    put(&*store, &bytes(6, 1)).await.unwrap();
    assert_eq!(
        (mode(&new), mode(&new.join("collector.lock"))),
        (0o700, 0o600)
    );

    let empty = scratch.path().join("empty");
    fs::create_dir(&empty).unwrap();
    set(&empty, 0o777);
    drop(open(&empty));
    assert_eq!(mode(&empty), 0o700);

    set(&new, 0o750);
    let unused = CacheConfig {
        directory: PathBuf::new(),
        bytes_max: 0,
    };
    let refused = aod_artifacts::open(&format!("file://{}", new.display()), &unused).unwrap_err();
    let text = std::error::Error::source(&refused).unwrap().to_string();
    assert!(text.contains("chmod 700"), "{text}");
    assert_eq!(mode(&new), 0o750);
}
