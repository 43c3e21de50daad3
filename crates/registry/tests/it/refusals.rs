//! Clients that may not, and clients that send rubbish.

use std::time::Duration;

use aod_domain::capsule::{Blob, Image, ImageContent};
use aod_domain::digest::Digest;
use aod_ports::artifact_store::StoreError;
use aod_registry::PullError;
use aod_registry::manifest::Manifest;
use reqwest::Method;
use tokio::net::TcpStream;

use crate::bench::{Bench, config, refusal, send};

#[tokio::test]
async fn only_an_open_transfer_has_access() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"layer"]).await;
    let transfer = bench.pull(&image).await;
    let blob = format!("/v2/aod/blobs/sha256:{}", Digest::of("layer"));
    let upload = "/v2/aod/blobs/uploads/";
    for (method, path) in [
        (Method::GET, "/v2/"),
        (Method::GET, blob.as_str()),
        (Method::POST, upload),
        (Method::GET, "/v2/_catalog"),
    ] {
        let anonymous = send(bench.anonymous(method.clone(), path)).await;
        assert_eq!(
            anonymous.headers()["www-authenticate"],
            "Basic realm=\"aod\""
        );
        assert_eq!(refusal(anonymous).await.0, 401, "{path}");
        let wrong = bench.anonymous(method, path);
        let wrong = send(wrong.basic_auth(transfer.user(), Some("wrong"))).await;
        assert_eq!(wrong.status(), 401, "{path}");
    }
    assert!(!transfer.was_used());
    let (user, secret) = (transfer.user().to_owned(), transfer.secret().to_owned());
    let again = || {
        let request = bench.anonymous(Method::GET, &blob);
        send(request.basic_auth(&user, Some(&secret)))
    };
    assert_eq!(again().await.status(), 200);
    drop(transfer);
    assert_eq!(again().await.status(), 401, "the transfer is over");
}

#[tokio::test]
async fn pull_stores_nothing_and_reads_only_its_image() {
    let bench = Bench::new().await;
    let other = bench.image(&[b"other"]).await;
    let image = bench.image(&[b"layer"]).await;
    let transfer = bench.pull(&image).await;
    let begun = send(bench.request(&transfer, Method::POST, "blobs/uploads/")).await;
    assert_eq!(refusal(begun).await.0, 403);
    let manifest = Manifest::docker(blob("x"), &[blob("y")]);
    let put = bench.put_manifest(&transfer, manifest).await;
    assert_eq!(refusal(put).await.0, 403);
    for path in [
        format!("blobs/sha256:{}", Digest::of("other")),
        format!("manifests/sha256:{}", other.artifacts()[0]),
        "manifests/latest".to_owned(),
    ] {
        let found = send(bench.request(&transfer, Method::GET, &path)).await;
        assert_eq!(refusal(found).await.0, 404, "{path}");
    }
    let push = bench.push();
    let path = format!("blobs/sha256:{}", Digest::of("layer"));
    let read = send(bench.request(&push, Method::GET, &path)).await;
    assert_eq!(refusal(read).await.0, 403, "a push reads nothing");
}

#[tokio::test]
async fn wrong_bytes_are_not_stored() {
    let bench = Bench::new().await;
    let transfer = bench.push();
    let wrong = format!("blobs/uploads/?digest=sha256:{}", Digest::of("right"));
    let put = send(bench.request(&transfer, Method::POST, &wrong).body("wrong")).await;
    let (status, code, message) = refusal(put).await;
    assert_eq!((status, code.as_str()), (400, "DIGEST_INVALID"));
    assert!(
        message.contains(&Digest::of("wrong").to_string()),
        "{message}"
    );
    let path = bench.begin_upload(&transfer).await;
    let jump = bench.request(&transfer, Method::PATCH, &path);
    let jump = send(jump.header("content-range", "5-6").body("ab")).await;
    assert_eq!(refusal(jump).await.0, 416);
    let gone = send(bench.request(&transfer, Method::GET, &path)).await;
    assert_eq!(refusal(gone).await.0, 404, "a failed upload is over");
    for text in ["right", "wrong"] {
        assert!(
            !bench
                .artifacts
                .contains(Digest::of(text))
                .await
                .expect("an answer")
        );
    }
    assert_eq!(bench.uploads(), 0);
}

#[tokio::test]
async fn push_that_ends_in_the_middle_leaves_nothing() {
    let bench = Bench::new().await;
    let transfer = bench.push();
    for _ in 0..16 {
        let begun = send(bench.request(&transfer, Method::POST, "blobs/uploads/")).await;
        assert_eq!(begun.status(), 202);
    }
    let one_more = send(bench.request(&transfer, Method::POST, "blobs/uploads/")).await;
    assert_eq!(refusal(one_more).await.0, 429);
    assert_eq!(bench.uploads(), 16);
    assert!(transfer.pushed().is_none());
    drop(transfer);
    assert_eq!(bench.uploads(), 0);
}

#[tokio::test]
async fn manifest_with_unusable_parts_is_refused() {
    let bench = Bench::new().await;
    let transfer = bench.push();
    let layer = bench.upload(&transfer, b"layer").await;
    let config = bench
        .upload(&transfer, config(&[b"layer"]).as_bytes())
        .await;
    let short = Blob {
        size_bytes: 4,
        ..layer
    };
    for (layers, code, text) in [
        (vec![blob("missing")], "MANIFEST_BLOB_UNKNOWN", "is missing"),
        (
            vec![short],
            "MANIFEST_BLOB_UNKNOWN",
            "is 5 bytes, expected 4",
        ),
        (vec![layer; 1_000], "MANIFEST_INVALID", "1000 layers"),
        (vec![layer; 5_000], "MANIFEST_INVALID", "at most"),
    ] {
        let put = bench
            .put_manifest(&transfer, Manifest::docker(config, &layers))
            .await;
        let (_, found, message) = refusal(put).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(text), "{message}");
    }
    let put = bench.put_manifest(&transfer, b"{}".to_vec()).await;
    assert_eq!(refusal(put).await.1, "MANIFEST_INVALID");
    let other = bench.request(&transfer, Method::PUT, "manifests/latest");
    let manifest = Manifest::docker(config, &[layer]);
    let other = send(other.body(manifest.clone())).await;
    assert_eq!(refusal(other).await.0, 403, "another tag");
    assert!(transfer.pushed().is_none());
    assert_eq!(bench.put_manifest(&transfer, manifest).await.status(), 201);
}

#[tokio::test]
async fn damaged_parts_are_never_sent() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"layer"]).await;
    let transfer = bench.pull(&image).await;
    let digest = Digest::of("layer");
    let file = bench.file(digest);
    std::fs::remove_file(&file).expect("the artifact is a file");
    std::fs::write(&file, "LAYER").expect("a file");
    let path = format!("blobs/sha256:{digest}");
    let found = send(bench.request(&transfer, Method::GET, &path)).await;
    let body = found.text().await.unwrap_or_default();
    assert!(!body.contains("LAYER"), "{body}");
    let failure = transfer.store_failure();
    assert!(
        matches!(failure, Some(StoreError::Corrupt { .. })),
        "{failure:?}"
    );
    std::fs::remove_file(&file).expect("a file");
    let found = send(bench.request(&transfer, Method::GET, &path)).await;
    assert_eq!(refusal(found).await.1, "BLOB_UNKNOWN");
}

#[tokio::test]
async fn image_without_its_manifest_is_not_pulled() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"layer"]).await;
    let mut other = image.clone();
    other.config_digest = format!("sha256:{}", Digest::of("another"));
    let pulled = bench.registry.pull(&other, &bench.artifacts).await;
    assert!(matches!(pulled, Err(PullError::OtherImage { .. })));
    let lost = Image {
        content: ImageContent::Layers {
            manifest: Digest::of("lost"),
            config: None,
            layers: vec![blob("layer")],
        },
        ..image
    };
    let pulled = bench.registry.pull(&lost, &bench.artifacts).await;
    assert!(matches!(
        pulled,
        Err(PullError::Store(StoreError::Missing { .. }))
    ));
}

fn blob(text: &str) -> Blob {
    Blob {
        digest: Digest::of(text),
        size_bytes: text.len() as u64,
    }
}

/// A push must send a damaged layer again: the store asks for it.
#[tokio::test]
async fn damaged_layer_is_pushed_again() {
    let bench = Bench::new().await;
    let layer = bench.upload(&bench.push(), b"layer").await;
    let text = layer.digest.to_string();
    let path = bench.directory.path().join("artifacts/sha256");
    let path = path.join(&text[..2]).join(&text);
    std::fs::remove_file(&path).expect("the layer");
    std::fs::write(&path, b"lazer").expect("a damaged layer");
    let transfer = bench.push();
    let blob = format!("blobs/sha256:{text}");
    let head = send(bench.request(&transfer, Method::HEAD, &blob)).await;
    assert_eq!(head.status(), 404);
    let again = bench.upload(&transfer, b"layer").await;
    assert_eq!(again, layer);
    let head = send(bench.request(&transfer, Method::HEAD, &blob)).await;
    assert_eq!(head.status(), 200);
}

/// Idle connections of a stranger end, and do not keep the engine out.
#[tokio::test]
async fn idle_connections_end() {
    let bench = Bench::new().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        let connected = TcpStream::connect(("127.0.0.1", bench.registry.port())).await;
        idle.push(connected.expect("a connection"));
    }
    let transfer = bench.push();
    let begun = send(bench.request(&transfer, Method::POST, "blobs/uploads/"));
    let begun = tokio::time::timeout(Duration::from_secs(120), begun).await;
    assert_eq!(begun.expect("an answer").status(), 202);
}
