//! What a push stores, a pull sends.

use aod_domain::digest::Digest;
use reqwest::Method;

use crate::bench::{Bench, send};

#[tokio::test]
async fn pushed_image_is_pulled() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"one", b"two"]).await;
    for digest in image.artifacts() {
        assert!(bench.artifacts.contains(digest).await.expect("an answer"));
    }
    let transfer = bench.pull(&image).await;
    let path = format!("manifests/{}", transfer.tag());
    let manifest = send(bench.request(&transfer, Method::GET, &path)).await;
    assert_eq!(manifest.status(), 200);
    let bytes = manifest.bytes().await.expect("a body");
    assert_eq!(Digest::of(&bytes).to_string(), transfer.tag());
    for (digest, expected) in [(Digest::of("one"), "one"), (Digest::of("two"), "two")] {
        let path = format!("blobs/sha256:{digest}");
        let head = send(bench.request(&transfer, Method::HEAD, &path)).await;
        assert_eq!(head.headers()["content-length"], "3");
        let blob = send(bench.request(&transfer, Method::GET, &path)).await;
        assert_eq!(blob.text().await.expect("a body"), expected);
        let rest = bench.request(&transfer, Method::GET, &path);
        let rest = send(rest.header("range", "bytes=1-")).await;
        assert_eq!(rest.status(), 206);
        assert_eq!(rest.headers()["content-range"], "bytes 1-2/3");
        assert_eq!(rest.text().await.expect("a body"), &expected[1..]);
    }
}

#[tokio::test]
async fn second_version_sends_only_its_new_layer() {
    let bench = Bench::new().await;
    bench.image(&[b"base", b"first"]).await;
    let transfer = bench.push();
    let base = format!("blobs/sha256:{}", Digest::of("base"));
    let head = send(bench.request(&transfer, Method::HEAD, &base)).await;
    assert_eq!(head.status(), 200, "the client need not send it");
    let mount = format!(
        "blobs/uploads/?mount=sha256:{}&from=aod",
        Digest::of("base")
    );
    let mounted = send(bench.request(&transfer, Method::POST, &mount)).await;
    assert_eq!(mounted.status(), 201);
    let other = format!("blobs/sha256:{}", Digest::of("second"));
    let head = send(bench.request(&transfer, Method::HEAD, &other)).await;
    assert_eq!(head.status(), 404);
    assert_eq!(transfer.moved_bytes(), 0);
    bench.upload(&transfer, b"second").await;
    assert_eq!(transfer.moved_bytes(), 6);
}

#[tokio::test]
async fn upload_in_pieces_and_in_one_request() {
    let bench = Bench::new().await;
    let transfer = bench.push();
    let path = bench.begin_upload(&transfer).await;
    for (range, piece, received) in [("0-2", "abc", "0-2"), ("3-4", "de", "0-4")] {
        let appended = bench.request(&transfer, Method::PATCH, &path);
        let appended = send(appended.header("content-range", range).body(piece)).await;
        assert_eq!(appended.headers()["range"], received);
        let status = send(bench.request(&transfer, Method::GET, &path)).await;
        assert_eq!(status.headers()["range"], received);
    }
    let finished = format!("{path}?digest=sha256:{}", Digest::of("abcdef"));
    let finished = send(bench.request(&transfer, Method::PUT, &finished).body("f")).await;
    assert_eq!(finished.status(), 201);
    let whole = format!("blobs/uploads/?digest=sha256:{}", Digest::of("whole"));
    let whole = send(bench.request(&transfer, Method::POST, &whole).body("whole")).await;
    assert_eq!(whole.status(), 201);
    for text in ["abcdef", "whole"] {
        assert!(
            bench
                .artifacts
                .contains(Digest::of(text))
                .await
                .expect("an answer")
        );
    }
}
