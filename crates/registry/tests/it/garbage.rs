//! Garbage collection between the steps of a push and of a pull.

use std::fs::File;
use std::time::{Duration, SystemTime};

use aod_domain::digest::Digest;
use aod_ports::artifact_store::{Removal, StoreError};
use aod_ports::clock::{Clock as _, SystemClock};
use aod_registry::manifest::Manifest;
use reqwest::Method;

use crate::bench::{Bench, config, refusal, send};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Lets the artifact be as old as one that nothing has named for a month.
fn age(bench: &Bench, digest: Digest) {
    let file = File::options().write(true).open(bench.file(digest));
    let file = file.expect("the artifact is a file");
    let date = SystemTime::now() - 30 * DAY;
    file.set_modified(date).expect("a date");
}

/// Removes the artifact if it is older than a day, as the garbage collection does with what nothing names.
async fn collect(bench: &Bench, digest: Digest) -> Removal {
    let before = SystemClock.now() - DAY;
    let removed = bench.artifacts.remove(digest, before).await;
    removed.expect("an answer")
}

#[tokio::test]
async fn layer_that_a_push_does_not_send_survives_garbage_collection() {
    let bench = Bench::new().await;
    let layer = bench.upload(&bench.push(), b"layer").await;
    age(&bench, layer.digest);
    let transfer = bench.push();
    let head = format!("blobs/sha256:{}", layer.digest);
    let head = send(bench.request(&transfer, Method::HEAD, &head)).await;
    assert_eq!(head.status(), 200, "the client does not send it");
    assert_eq!(collect(&bench, layer.digest).await, Removal::Young);

    // The configuration is old when the manifest names it.
    let text = config(&[b"layer"]);
    let config = bench.upload(&transfer, text.as_bytes()).await;
    age(&bench, config.digest);
    let manifest = Manifest::docker(config, &[layer]);
    let put = bench.put_manifest(&transfer, manifest).await;
    assert_eq!(put.status(), 201);
    assert_eq!(collect(&bench, config.digest).await, Removal::Young);
    let image = transfer.pushed().expect("an image");
    for digest in image.artifacts() {
        assert!(bench.artifacts.contains(digest).await.expect("an answer"));
    }
}

#[tokio::test]
async fn push_without_a_collected_layer_is_refused_until_the_layer_is_sent() {
    let bench = Bench::new().await;
    let transfer = bench.push();
    let layer = bench.upload(&transfer, b"layer").await;
    let text = config(&[b"layer"]);
    let config = bench.upload(&transfer, text.as_bytes()).await;
    age(&bench, layer.digest);
    assert_eq!(collect(&bench, layer.digest).await, Removal::Removed);
    let manifest = Manifest::docker(config, &[layer]);
    let put = bench.put_manifest(&transfer, manifest.clone()).await;
    let (_, code, message) = refusal(put).await;
    assert_eq!(code, "MANIFEST_BLOB_UNKNOWN");
    assert!(message.contains("is missing"), "{message}");
    assert!(transfer.pushed().is_none());

    bench.upload(&transfer, b"layer").await;
    let put = bench.put_manifest(&transfer, manifest).await;
    assert_eq!(put.status(), 201);
    assert!(transfer.pushed().is_some());
}

#[tokio::test]
async fn pull_of_a_collected_layer_fails_with_its_digest() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"one", b"two"]).await;
    let transfer = bench.pull(&image).await;
    let get = async |text: &str| {
        let path = format!("blobs/sha256:{}", Digest::of(text));
        send(bench.request(&transfer, Method::GET, &path)).await
    };
    assert_eq!(get("one").await.status(), 200);
    let digest = Digest::of("two");
    age(&bench, digest);
    assert_eq!(collect(&bench, digest).await, Removal::Removed);
    let (_, code, message) = refusal(get("two").await).await;
    assert_eq!(code, "BLOB_UNKNOWN");
    assert!(message.contains(&digest.to_string()), "{message}");
    let failure = transfer.store_failure();
    assert!(
        matches!(failure, Some(StoreError::Missing { digest: lost }) if lost == digest),
        "{failure:?}"
    );
}
