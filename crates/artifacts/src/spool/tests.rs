//! Spool directories live as long as their processes.

use aod_domain::digest::Digest;
use aod_testkit::Scratch;
use futures::{StreamExt as _, stream};

use super::*;

fn entries(directory: &Path) -> usize {
    let names = fs::read_dir(directory)
        .expect("a directory")
        .filter_map(Result::ok);
    names.filter(|entry| entry.file_name() != "lock").count()
}

#[test]
fn left_over_directories_are_removed_and_used_ones_stay() {
    let scratch = Scratch::new("spool");
    let dead = scratch.path().join("dead");
    fs::create_dir(&dead).expect("a directory");
    fs::write(dead.join("lock"), "").expect("a file without a lock");
    fs::write(dead.join(".0.incoming"), "half a file").expect("a file");
    let first = Spool::open(scratch.path()).expect("a spool");
    assert!(!dead.exists());
    let second = Spool::open(scratch.path()).expect("another");
    assert_eq!(entries(scratch.path()), 2);
    drop(first);
    assert_eq!(entries(scratch.path()), 1);
    drop(second);
    assert_eq!(entries(scratch.path()), 0);
}

#[tokio::test]
async fn unfinished_writes_leave_nothing() {
    let scratch = Scratch::new("spool");
    let spool = Arc::new(Spool::open(scratch.path()).expect("a spool"));
    let broken = stream::iter([
        Ok(Bytes::from_static(b"begin")),
        Err("the source failed".into()),
    ]);
    let error = spool
        .write_stream(broken.boxed())
        .await
        .expect_err("a broken stream");
    assert!(matches!(error, StoreError::Source { .. }), "{error}");
    let whole = spool.write_reader(&mut &b"whole"[..]).expect("a file");
    assert_eq!(
        whole.stored,
        Stored {
            digest: Digest::of(b"whole"),
            size_bytes: 5
        }
    );
    drop(whole);
    // The thread of the failed stream creates and removes its file at any time from now on.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while entries(spool.directory()) > 0 {
        assert!(std::time::Instant::now() < deadline, "a part stays");
        tokio::task::yield_now().await;
    }
}

#[test]
fn adopted_file_is_checked_for_size_and_kind() {
    let scratch = Scratch::new("spool");
    let path = scratch.path().join("given");
    fs::write(&path, "bytes").expect("a file");
    let stored = Stored {
        digest: Digest::of(b"bytes"),
        size_bytes: 5,
    };
    assert_eq!(adopt(&path, None).expect("a file").stored, stored);
    assert_eq!(adopt(&path, Some(stored)).expect("a file").stored, stored);
    adopt(
        &path,
        Some(Stored {
            size_bytes: 6,
            ..stored
        }),
    )
    .expect_err("another size");
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    adopt(&link, None).expect_err("no regular file");
    assert!(path.exists(), "the caller's file stays until it is stored");
}
