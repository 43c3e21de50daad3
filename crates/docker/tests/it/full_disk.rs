//! A disk that is full while an image is fetched: the disk of the engine, or the disk with the node's cache.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::sync::Arc;

use aod_artifacts::CacheConfig;
use aod_docker::{Config, RegistryUse};
use aod_domain::capsule::Image;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild, ImagePush, RuntimeError};
use aod_testkit::{S3Server, Scratch, TinyDisk};
use tokio::sync::mpsc;

use crate::daemon::{Alone, Daemon};
use crate::fixture::{Fixture, docker, eventually};
use crate::images::context;

const MIB: u64 = 1 << 20;

/// Size of the large layer of the image; its bytes do not compress.
const LAYER_BYTES: u64 = 24 * MIB;

/// Space for the small layers, but not for the large one.
const NOT_FOR_ONE: u64 = 8 * MIB;

/// Space for one copy of the large layer, but not for two: Docker and the archive of a whole image need two.
const NOT_FOR_TWO: u64 = 36 * MIB;

/// Space for everything.
const DISK_BYTES: u64 = 96 * MIB;

/// What an engine may keep besides images: its own records.
const RECORDS_BYTES: u64 = MIB / 2;

/// Builds an image with a large layer, and stores it; the engine of this machine does not keep it.
async fn stored_image(fixture: &Fixture, artifacts: &Arc<dyn ArtifactStore>) -> Image {
    let kibibytes = LAYER_BYTES / 1024;
    let steps = format!(
        "RUN busybox dd if=/dev/urandom of=/large bs=1024 count={kibibytes}\nCMD busybox true"
    );
    let context = context(fixture, &format!("FROM scratch\nADD root.tar /\n{steps}"));
    let tag = format!("aod/{}:large", fixture.cluster);
    let (progress, _lines) = mpsc::channel(1);
    let build = ImageBuild::new(context, "demo", &tag, progress.clone());
    let id = fixture.runtime.build_image(build).await.expect("it builds");
    let push = ImagePush {
        image: &id,
        artifacts,
        progress,
    };
    let stored = fixture.runtime.store_image(push).await;
    fixture.remove_images();
    stored.expect("it is stored")
}

/// The error with its causes.
fn chain(error: &RuntimeError) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// The files that a store is writing, and its lock.
fn spool(artifacts: &Arc<dyn ArtifactStore>) -> BTreeSet<OsString> {
    let entries = fs::read_dir(artifacts.spool_directory()).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.collect()
}

/// How images reach an engine, and the beginning of an error on this way.
fn ways() -> [(RegistryUse, &'static str); 2] {
    [
        (RegistryUse::Loopback(None), "fetching an image failed: "),
        (RegistryUse::Off, "loading an image failed: "),
    ]
}

#[tokio::test]
async fn needs_root_full_disk_of_the_engine_fails_the_fetch_and_leaves_nothing() {
    let name = "full_disk::needs_root_full_disk_of_the_engine_fails_the_fetch_and_leaves_nothing";
    let Some(alone) = Alone::run(name) else {
        return;
    };
    let builder = Fixture::new().await;
    let artifacts = &builder.artifacts;
    let image = stored_image(&builder, artifacts).await;
    let id = image.config_digest.as_str();
    let disk = TinyDisk::mount(DISK_BYTES);
    let daemon = Daemon::start(&alone, disk.path());
    let spooled = spool(artifacts);
    for (registry, beginning) in ways() {
        let fixture = Fixture::with(|config| Config {
            endpoint: daemon.socket(),
            registry,
            ..config
        })
        .await;
        let runtime = &fixture.runtime;
        let info = runtime.describe().await.expect("an answer");
        assert_eq!(info.directory.as_deref(), Some(disk.path()));
        let used_bytes = disk.used_bytes();
        for left in [NOT_FOR_ONE, NOT_FOR_TWO] {
            disk.leave(left);
            let error = runtime.fetch_image(&image, artifacts).await;
            let error = chain(&error.expect_err("the disk is full"));
            assert!(
                error.starts_with(beginning) && error.contains("no space left on device"),
                "{error}"
            );
            assert!(!runtime.has_image(id).await.expect("an answer"), "{error}");
            assert_eq!(daemon.docker(&["images", "-aq"]), "", "{error}");
            disk.empty();
            let is_empty = async || disk.used_bytes() <= used_bytes + RECORDS_BYTES;
            eventually("a disk without layers", is_empty).await;
            assert_eq!(spool(artifacts), spooled, "{error}");
        }

        // With space, the same node fetches the image.
        let fetched = runtime.fetch_image(&image, artifacts).await;
        fetched.expect("the disk has space");
        assert!(runtime.has_image(id).await.expect("an answer"));
        let names = daemon.docker(&["images", "--format", "{{.Repository}}"]);
        assert!(!names.contains("127.0.0.1"), "{names}");
        daemon.docker(&["rmi", "-f", id]);
    }
}

#[tokio::test]
async fn needs_root_full_disk_of_the_cache_fails_the_fetch_and_leaves_nothing() {
    let scratch = Scratch::new("full-cache");
    let server = S3Server::start();
    let credentials = scratch.path().join("credentials");
    let text = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    fs::write(&credentials, text).expect("a test directory");
    let url = format!(
        "s3://{}/artifacts?endpoint={}&region=us-east-1&credentials={}",
        S3Server::BUCKET,
        server.endpoint(),
        credentials.display()
    );
    let open = |directory| {
        let bytes_max = 1 << 30;
        let cache = CacheConfig {
            directory,
            bytes_max,
        };
        aod_artifacts::open(&url, &cache).expect("a URL of ours")
    };
    let builder = Fixture::new().await;
    let image = stored_image(&builder, &open(scratch.path().join("builder"))).await;
    let id = image.config_digest.as_str();

    for (registry, beginning) in ways() {
        let has_registry = registry != RegistryUse::Off;
        let disk = TinyDisk::mount(DISK_BYTES);
        let artifacts = open(disk.path().join("cache"));
        let fixture = Fixture::with(|config| Config { registry, ..config }).await;
        let runtime = &fixture.runtime;
        let spooled = spool(&artifacts);
        let check = async |error: &RuntimeError| {
            let error = chain(error);
            assert!(error.to_lowercase().contains("no space left"), "{error}");
            assert!(!runtime.has_image(id).await.expect("an answer"), "{error}");
            assert_eq!(spool(&artifacts), spooled, "{error}");
            disk.empty();
        };
        disk.leave(NOT_FOR_ONE);
        let error = runtime.fetch_image(&image, &artifacts).await;
        let error = error.expect_err("the disk is full");
        let is_no_room = matches!(error, RuntimeError::Store(StoreError::NoRoom { .. }));
        assert!(is_no_room, "{error:?}");
        check(&error).await;
        if !has_registry {
            // The cache has space for the layers, but not for the archive of the whole image.
            disk.leave(NOT_FOR_TWO);
            let error = runtime.fetch_image(&image, &artifacts).await;
            let error = error.expect_err("the disk is full");
            assert!(chain(&error).starts_with(beginning), "{error:?}");
            check(&error).await;
        }

        let fetched = runtime.fetch_image(&image, &artifacts).await;
        fetched.expect("the disk has space");
        assert!(runtime.has_image(id).await.expect("an answer"));
        let names = docker(&["inspect", "--format", "{{.RepoTags}}", id]);
        assert!(!names.contains("127.0.0.1"), "{names}");
        builder.remove_images();
    }
}
