//! A registry, a store, and a client that sends what the test says.

use std::path::PathBuf;
use std::sync::Arc;

use aod_artifacts::CacheConfig;
use aod_domain::capsule::{Blob, Image};
use aod_domain::digest::Digest;
use aod_ports::artifact_store::ArtifactStore;
use aod_registry::exchange::Parts;
use aod_registry::manifest::Manifest;
use aod_registry::{Registry, Transfer};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) directory: TempDir,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) registry: Registry,
    client: Client,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        // Fails only if another test of this process has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("file://{}", directory.path().join("artifacts").display());
        let cache = CacheConfig {
            directory: directory.path().join("cache"),
            bytes_max: 1,
        };
        Self {
            artifacts: aod_artifacts::open(&url, &cache).expect("a store"),
            registry: Registry::serve(None).await.expect("a port"),
            client: Client::builder().no_proxy().build().expect("a client"),
            directory,
        }
    }

    pub(crate) fn push(&self) -> Transfer {
        self.registry.push(&self.artifacts)
    }

    pub(crate) async fn pull(&self, image: &Image) -> Transfer {
        let transfer = self.registry.pull(image, &self.artifacts).await;
        transfer.expect("a transfer")
    }

    /// A request within the repository, with the credentials of `transfer`.
    pub(crate) fn request(
        &self,
        transfer: &Transfer,
        method: Method,
        path: &str,
    ) -> RequestBuilder {
        self.anonymous(method, &format!("/v2/aod/{path}"))
            .basic_auth(transfer.user(), Some(transfer.secret()))
    }

    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://127.0.0.1:{}{path}", self.registry.port());
        self.client.request(method, url)
    }

    /// Begins an upload; returns its path within the repository.
    pub(crate) async fn begin_upload(&self, transfer: &Transfer) -> String {
        let begun = send(self.request(transfer, Method::POST, "blobs/uploads/")).await;
        let id = begun.headers()["docker-upload-uuid"].to_str();
        format!("blobs/uploads/{}", id.expect("a text"))
    }

    /// Uploads a blob as Docker does: begin, append, finish.
    pub(crate) async fn upload(&self, transfer: &Transfer, bytes: &[u8]) -> Blob {
        let begun = self.request(transfer, Method::POST, "blobs/uploads/");
        let begun = send(begun).await;
        assert_eq!(begun.status(), 202);
        let place = location(&begun);
        let appended = self.anonymous(Method::PATCH, &place).body(bytes.to_vec());
        let appended = send(appended.basic_auth(transfer.user(), Some(transfer.secret()))).await;
        assert_eq!(appended.status(), 202);
        let digest = Digest::of(bytes);
        let place = format!("{place}?digest=sha256:{digest}");
        let finished = self.anonymous(Method::PUT, &place);
        let finished = send(finished.basic_auth(transfer.user(), Some(transfer.secret()))).await;
        assert_eq!(finished.status(), 201);
        Blob {
            digest,
            size_bytes: bytes.len() as u64,
        }
    }

    /// Pushes an image with these layers.
    pub(crate) async fn image(&self, layers: &[&[u8]]) -> Image {
        let transfer = self.push();
        let mut blobs = Vec::new();
        for layer in layers {
            blobs.push(self.upload(&transfer, layer).await);
        }
        let config = self.upload(&transfer, config(layers).as_bytes()).await;
        let manifest = Manifest::docker(config, &blobs);
        let put = self.put_manifest(&transfer, manifest).await;
        assert_eq!(put.status(), 201);
        transfer.pushed().expect("an image")
    }

    /// An image with these layers, as other places get it.
    pub(crate) async fn parts(&self, layers: &[&[u8]]) -> Parts {
        let image = self.image(layers).await;
        let parts = Parts::of(&image, &self.artifacts).await;
        parts.expect("the store has all parts")
    }

    pub(crate) async fn put_manifest(&self, transfer: &Transfer, manifest: Vec<u8>) -> Response {
        let path = format!("manifests/{}", transfer.tag());
        send(self.request(transfer, Method::PUT, &path).body(manifest)).await
    }

    /// The number of spool files of uploads.
    pub(crate) fn uploads(&self) -> usize {
        let entries = std::fs::read_dir(self.artifacts.spool_directory()).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("upload-"))
            .count()
    }

    /// The file of an artifact.
    pub(crate) fn file(&self, digest: Digest) -> PathBuf {
        let text = digest.to_string();
        let root = self.directory.path().join("artifacts/sha256");
        root.join(&text[..2]).join(text)
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

pub(crate) fn location(response: &Response) -> String {
    let place = response.headers().get("location").expect("a location");
    place.to_str().expect("a text").to_owned()
}

/// Status, code and message of a refusal.
pub(crate) async fn refusal(response: Response) -> (u16, String, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("JSON");
    let text = |name: &str| body["errors"][0][name].as_str().expect("a text").to_owned();
    (status, text("code"), text("message"))
}

/// The configuration of an image with these layers.
pub(crate) fn config(layers: &[&[u8]]) -> String {
    let ids = layers
        .iter()
        .map(|layer| format!("sha256:{}", Digest::of(layer)));
    json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/nothing"], "Labels": {"dev.aod.name": "words", "other": "label"}},
        "rootfs": {"type": "layers", "diff_ids": ids.collect::<Vec<_>>()},
        "history": layers.iter().map(|_| json!({"created_by": "a test"})).collect::<Vec<_>>(),
    })
    .to_string()
}
