//! Builds, stores and fetches images.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use aod_docker::config::BuildLimits;
use aod_domain::capsule::{Image, ImageContent};
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild, ImagePush, RuntimeError};
use tokio::sync::mpsc;

use crate::fixture::{Fixture, docker, files, finish};

/// The packed directory of a capsule with this Dockerfile and the files of the test image.
pub(crate) fn context(fixture: &Fixture, dockerfile: &str) -> PathBuf {
    // The label is also on images of a failed build, so the test finds and removes them.
    let label = format!("FROM scratch\nLABEL dev.aod.cluster={}", fixture.cluster);
    let dockerfile = dockerfile.replace("FROM scratch", &label);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("Dockerfile", dockerfile.as_bytes().to_vec()),
        ("root.tar", files()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &bytes[..])
            .expect("a tar in memory takes all");
    }
    let path = fixture.path("context.tar");
    fs::write(&path, tar.into_inner().expect("a tar in memory takes all")).expect("a file");
    path
}

#[tokio::test]
async fn concurrent_builds_of_directory_share_one_build() {
    let fixture = Fixture::new().await;
    let dockerfile =
        "FROM scratch\nADD root.tar /\nRUN busybox date > /made\nCMD busybox cat /made";
    let context = context(&fixture, dockerfile);
    let tag = format!("aod/{}:0123", fixture.cluster);
    let (progress, mut lines) = mpsc::channel(1_000);
    let build = || {
        fixture.runtime.build_image(ImageBuild::new(
            context.clone(),
            "demo",
            &tag,
            progress.clone(),
        ))
    };
    let (first, second) = tokio::join!(build(), build());
    let image = first.expect("it builds");
    assert_eq!(image, second.expect("it builds"));
    assert!(image.starts_with("sha256:"), "{image}");
    assert!(
        fixture
            .runtime
            .has_image(&image)
            .await
            .expect("the engine answers")
    );
    drop(progress);
    let mut steps = 0;
    while let Some(line) = lines.recv().await {
        steps += usize::from(line.starts_with("Step 1/"));
    }
    assert_eq!(steps, 1, "both callers share one build");
    let labels =
        "{{index .Config.Labels \"dev.aod.name\"}} {{index .Config.Labels \"dev.aod.version\"}}";
    assert_eq!(
        docker(&["inspect", "-f", labels, &image]).trim(),
        "demo 0123"
    );
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    assert!(outcome.stdout.contains("UTC"), "{outcome:?}");
}

#[tokio::test]
async fn failed_build_reports_its_last_lines() {
    let fixture = Fixture::new().await;
    let tag = format!("aod/{}:0", fixture.cluster);
    let build = async |dockerfile: &str| {
        let (progress, _lines) = mpsc::channel(1);
        let context = context(&fixture, dockerfile);
        fixture
            .runtime
            .build_image(ImageBuild::new(context, "demo", &tag, progress))
            .await
    };
    let dockerfile = "FROM scratch\nADD root.tar /\nRUN for i in $(busybox seq 30); do echo line $i; done; exit 7";
    match build(dockerfile).await {
        Err(RuntimeError::BuildFailed {
            message,
            last_lines,
        }) => {
            assert!(message.contains("returned a non-zero code: 7"), "{message}");
            assert_eq!(last_lines.len(), 20);
            assert!(
                last_lines.iter().any(|line| line == "line 30"),
                "{last_lines:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    for dockerfile in ["NONSENSE", "FROM scratch\nCOPY missing /"] {
        let outcome = build(dockerfile).await;
        assert!(
            matches!(outcome, Err(RuntimeError::BuildFailed { .. })),
            "{dockerfile}: {outcome:?}"
        );
    }
    let label = format!("label=dev.aod.cluster={}", fixture.cluster);
    let left = docker(&["ps", "-aq", "--filter", &label]);
    assert_eq!(left, "", "no container of a step is left");
}

#[tokio::test]
async fn build_has_limits() {
    let build = async |seconds, run: &str| {
        let limits = BuildLimits {
            memory_bytes: 64 << 20,
            seconds,
            image_size_bytes: 32 << 20,
        };
        let fixture = Fixture::with(|config| aod_docker::Config {
            build: limits,
            ..config
        })
        .await;
        let tag = format!("aod/{}:0", fixture.cluster);
        let (progress, _lines) = mpsc::channel(1);
        let context = context(
            &fixture,
            &format!("FROM scratch\nADD root.tar /\nRUN {run}"),
        );
        match fixture
            .runtime
            .build_image(ImageBuild::new(context, "demo", &tag, progress))
            .await
        {
            Err(RuntimeError::BuildFailed { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    };
    let message = build(60, "exec busybox tail /dev/zero").await;
    assert!(message.contains("137"), "{message}");
    // A layer that gzip compresses to a thousandth.
    let zeros = "busybox dd if=/dev/zero of=/zeros bs=1048576 count=40";
    let message = build(60, zeros).await;
    assert!(message.contains("at most 33554432"), "{message}");
    let message = build(3, "busybox sleep 600").await;
    assert!(message.contains("3 seconds"), "{message}");
}

/// Builds an image of busybox with these instructions.
async fn build(fixture: &Fixture, instructions: &str) -> Result<String, RuntimeError> {
    let (progress, _lines) = mpsc::channel(1);
    let dockerfile = format!("FROM scratch\nADD root.tar /\n{instructions}");
    let context = context(fixture, &dockerfile);
    let tag = format!("aod/{}:0", fixture.cluster);
    let build = ImageBuild::new(context, "checked", &tag, progress);
    fixture.runtime.build_image(build).await
}

#[tokio::test]
async fn image_with_unusable_mount_points_is_refused_with_all_reasons() {
    let fixture = Fixture::new().await;
    let refused = async |instructions: &str| match build(&fixture, instructions).await {
        Err(RuntimeError::BuildFailed { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    let message = refused(
        "RUN busybox rm -rf /tmp && busybox mkdir -m 0755 /tmp && busybox mkdir -p /run /other && \
         busybox ln -s /other /run/secrets && busybox touch /io && busybox ln -s /other /link\n\
         VOLUME /link/data\nUSER nobodyknows\nCMD busybox true",
    )
    .await;
    for problem in [
        "/tmp of the image has the mode 0755",
        "a link at /run/secrets",
        "a file at /io",
        "a link at /link",
        "USER nobodyknows",
    ] {
        assert!(message.contains(problem), "{problem}: {message}");
    }
    let message = refused("VOLUME /proc/x\nCMD busybox true").await;
    assert!(message.contains("volume at \"/proc/x\""), "{message}");
    let long = "x".repeat(50_000);
    let message = refused(&format!("ENV LONG={long}\nCMD busybox true")).await;
    assert!(message.contains("environment of the image"), "{message}");
    let label = format!("label=dev.aod.cluster={}", fixture.cluster);
    let left = docker(&["ps", "-aq", "--filter", &label]);
    assert_eq!(left, "", "no container of a check is left");
}

#[tokio::test]
async fn volume_has_the_files_of_the_image_and_belongs_to_its_owner() {
    let fixture = Fixture::new().await;
    let image = build(
        &fixture,
        "RUN busybox mkdir -p /data/sub && echo kept > /data/sub/file && \
         printf '#!/bin/sh\\nbusybox cat /data/sub/file && echo new > /data/sub/new && busybox stat -c %%a:%%u /data\\n' \
         > /data/run && busybox chmod 700 /data /data/run && busybox chown -R 1234 /data\n\
         VOLUME /data /./empty\nUSER 1234\nENTRYPOINT [\"/data/run\"]",
    )
    .await
    .expect("it builds");
    let spec = fixture.spec(&image);
    let volumes = spec.io.volumes.clone();
    let outcome = finish(fixture.start(spec).await).await;
    assert_eq!(outcome.stdout, "kept\n700:1234\n", "{outcome:?}");
    let written = fs::read_to_string(volumes.join("0/data/sub/new"));
    assert_eq!(written.expect("it was written"), "new\n");
    assert!(volumes.join("1/empty").is_dir());
}

#[tokio::test]
async fn a_rebuilt_image_moves_only_its_changed_layer() {
    let fixture = Fixture::new().await;
    let mut versions = Vec::new();
    for (version, stored) in [("one", "2 MiB"), ("two", "1 MiB")] {
        let rest = format!("RUN echo {version} > /version\nCMD busybox cat /version");
        let context = context(&fixture, &format!("FROM scratch\nADD root.tar /\n{rest}"));
        let tag = format!("aod/{}:{version}", fixture.cluster);
        let (progress, mut lines) = mpsc::channel(1_000);
        let build = ImageBuild::new(context, "demo", &tag, progress.clone());
        let id = fixture.runtime.build_image(build).await;
        let id = id.expect("it builds");
        let push = push(&fixture, &id, progress);
        let image = fixture.runtime.store_image(push).await;
        let image = image.expect("it is stored");
        let mut last = String::new();
        while let Some(line) = lines.recv().await {
            last = line;
        }
        assert_eq!(last, format!("Stored the image: {stored} of new layers"));
        let ImageContent::Layers { layers, .. } = &image.content else {
            panic!("{image:?}");
        };
        versions.push((id, layers.clone(), image.clone()));
    }
    let [(first, old, _), (second, new, image)] = &versions[..] else {
        panic!("{versions:?}");
    };
    let shared = old.len() - 1;
    assert_eq!(old[..shared], new[..shared]);
    assert_ne!(old[shared..], new[shared..]);
    let changed: u64 = new[shared..].iter().map(|layer| layer.size_bytes).sum();
    assert!(changed < 1_000, "{new:?}");

    // A host with the layers of the first version gets the second one, and its tag.
    docker(&["rmi", "-f", second]);
    let fetched = fixture.runtime.fetch_image(image, &fixture.artifacts).await;
    fetched.expect("it is fetched");
    let tags = docker(&["inspect", "--format", "{{.RepoTags}}", second]);
    assert_eq!(tags.trim(), "[aod/demo:two]");
    let outcome = finish(fixture.start(fixture.spec(second)).await).await;
    assert_eq!(outcome.stdout, "two\n");
    assert!(fixture.runtime.has_image(first).await.expect("an answer"));
}

/// A node that did not build the earlier version reuses its layers after it has fetched it.
#[tokio::test]
async fn build_reuses_layers_of_a_fetched_version() {
    let fixture = Fixture::new().await;
    let (runtime, artifacts) = (&fixture.runtime, &fixture.artifacts);
    let make = async |version: &str, earlier: Option<String>| {
        // Only a reused step has the same random bytes.
        let steps = "RUN busybox dd if=/dev/urandom of=/random bs=1024 count=1\nRUN echo";
        let rest = format!("{steps} {version} > /version\nCMD busybox cat /version");
        let context = context(&fixture, &format!("FROM scratch\nADD root.tar /\n{rest}"));
        let tag = format!("aod/{}:{version}", fixture.cluster);
        let (progress, _lines) = mpsc::channel(1_000);
        let build = ImageBuild {
            earlier,
            ..ImageBuild::new(context, "demo", &tag, progress.clone())
        };
        let id = runtime.build_image(build).await.expect("it builds");
        let stored = runtime.store_image(push(&fixture, &id, progress)).await;
        stored.expect("it is stored")
    };
    let layers = |image: &Image| match &image.content {
        ImageContent::Layers { layers, .. } => layers.clone(),
        ImageContent::Archive { .. } => Vec::new(),
    };
    let first = make("one", None).await;
    fixture.remove_images();
    runtime
        .fetch_image(&first, artifacts)
        .await
        .expect("it is fetched");
    let second = make("two", Some(first.config_digest.clone())).await;
    let (old, new) = (layers(&first), layers(&second));
    let shared = old.len() - 1;
    assert_eq!(old[..shared], new[..shared]);
    assert_ne!(old[shared..], new[shared..]);
}

fn push<'a>(fixture: &'a Fixture, image: &'a str, progress: mpsc::Sender<String>) -> ImagePush<'a> {
    ImagePush {
        image,
        artifacts: &fixture.artifacts,
        progress,
    }
}

/// A dropped call ends its push early, and leaves no name of the transfer.
#[tokio::test]
async fn dropped_push_leaves_no_name_and_no_failure_of_the_next() {
    let fixture = Fixture::new().await;
    let large = "RUN busybox dd if=/dev/urandom of=/large bs=1048576 count=150\nCMD busybox true";
    let context = context(&fixture, &format!("FROM scratch\nADD root.tar /\n{large}"));
    let tag = format!("aod/{}:large", fixture.cluster);
    let (progress, mut lines) = mpsc::channel(1_000);
    let build = ImageBuild::new(context, "demo", &tag, progress.clone());
    let id = fixture.runtime.build_image(build).await.expect("it builds");
    let runtime = &fixture.runtime;
    let begun = async {
        while let Some(line) = lines.recv().await {
            if line.starts_with("Storing the image: ") {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = begun => (),
        stored = runtime.store_image(push(&fixture, &id, progress.clone())) => panic!("{stored:?}"),
    }
    let names = || docker(&["inspect", "--format", "{{.RepoTags}}", &id]);
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while names().contains("127.0.0.1") {
        assert!(tokio::time::Instant::now() < end, "{}", names());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stored = runtime.store_image(push(&fixture, &id, progress)).await;
    assert_eq!(stored.expect("it is stored").config_digest, id);
    assert_eq!(names().trim(), format!("[{tag}]"));
}

/// Images that were stored before layers were: one archive, as `docker save` writes it.
#[tokio::test]
async fn archive_is_fetched_as_what_it_is() {
    let fixture = Fixture::new().await;
    let id = fixture.script("echo here");
    let archive = fixture.path("image.tar");
    docker(&["save", "-o", &archive.display().to_string(), &id]);
    let stored = fixture.artifacts.put_file(&archive, None).await;
    let stored = stored.expect("it is stored");
    let image = |config_digest: String| Image {
        config_digest,
        content: ImageContent::Archive {
            archive: stored.digest,
            archive_size_bytes: stored.size_bytes,
        },
    };
    let has = async || {
        let has = fixture.runtime.has_image(&id).await;
        has.expect("the engine answers")
    };
    docker(&["rmi", "-f", &id]);
    assert!(!has().await);

    // An archive of another image fails, and leaves nothing.
    let other = image(format!("sha256:{}", "1".repeat(64)));
    let fetched = fixture
        .runtime
        .fetch_image(&other, &fixture.artifacts)
        .await;
    assert!(
        matches!(fetched, Err(RuntimeError::Engine { .. })),
        "{fetched:?}"
    );
    assert!(!has().await);

    let image = image(id.clone());
    let fetch = || fixture.runtime.fetch_image(&image, &fixture.artifacts);
    let (first, second) = tokio::join!(fetch(), fetch());
    first.expect("it is fetched");
    second.expect("it is fetched");
    let outcome = finish(fixture.start(fixture.spec(&id)).await).await;
    assert_eq!(outcome.stdout, "here\n");
}

/// The error of a build of the Dockerfile.
async fn failure_of(fixture: &Fixture, dockerfile: &str) -> String {
    let (progress, _lines) = mpsc::channel(1);
    let tag = format!("aod/{}:unfit", fixture.cluster);
    let context = context(fixture, dockerfile);
    let built = fixture
        .runtime
        .build_image(ImageBuild::new(context, "demo", &tag, progress));
    match built.await {
        Err(RuntimeError::BuildFailed { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

/// Loads an image that claims to be for s390x; returns its tag.
fn image_for_another_processor(fixture: &Fixture) -> String {
    let (saved, changed) = (fixture.path("saved.tar"), fixture.path("changed.tar"));
    let [saved, changed] = [&saved, &changed].map(|path| path.to_str().expect("a path of ours"));
    docker(&["save", &fixture.image(&[]), "--output", saved]);
    let tag = format!("{}:other", fixture.cluster);
    let mut archive = tar::Archive::new(fs::File::open(saved).expect("a file"));
    let mut new = tar::Builder::new(fs::File::create(changed).expect("a file"));
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").into_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("its bytes");
        if let Ok(mut json) = serde_json::from_slice::<serde_json::Value>(&bytes) {
            if json.get("rootfs").is_some() {
                json["architecture"] = "s390x".into();
            } else if json[0].get("RepoTags").is_some() {
                json[0]["RepoTags"] = serde_json::json!([tag]);
            }
            bytes = json.to_string().into_bytes();
        }
        let mut header = entry.header().clone();
        header.set_size(bytes.len() as u64);
        new.append_data(&mut header, name, &bytes[..])
            .expect("a file takes all");
    }
    new.finish().expect("a file takes all");
    docker(&["load", "--input", changed]);
    tag
}

#[tokio::test]
async fn build_of_image_that_can_never_start_fails() {
    let fixture = Fixture::new().await;
    let message = failure_of(&fixture, "FROM scratch\nADD root.tar /").await;
    assert!(message.contains("neither ENTRYPOINT nor CMD"), "{message}");

    let base = image_for_another_processor(&fixture);
    let dockerfile = format!("FROM {base}\nCOPY Dockerfile /\nCMD busybox");
    let message = failure_of(&fixture, &dockerfile).await;
    assert!(message.contains("is for linux/s390x"), "{message}");
}

/// A registry that requires a user and a password and has no image: counts the requests with both.
async fn strict_registry() -> (u16, std::sync::Arc<std::sync::atomic::AtomicU32>) {
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    let told = std::sync::Arc::new(AtomicU32::new(0));
    let counter = std::sync::Arc::clone(&told);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 16_384];
            let length = stream.read(&mut request).await.unwrap_or_default();
            let text = String::from_utf8_lossy(&request[..length]).to_lowercase();
            // `user:secret` in base64, as HTTP has it.
            let is_known = text.contains(&"authorization: basic dxnlcjpzzwnyzxq=".to_lowercase());
            counter.fetch_add(u32::from(is_known), Ordering::Relaxed);
            let status = if is_known {
                "404 Not Found"
            } else {
                "401 Unauthorized\r\nWww-Authenticate: Basic realm=\"test\""
            };
            let body = r#"{"errors": [{"code": "UNKNOWN", "message": "answer of the registry"}]}"#;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, told)
}

#[tokio::test]
async fn error_of_registry_is_reported_and_credentials_reach_only_their_registry() {
    use std::sync::atomic::Ordering;

    let (port, told) = strict_registry().await;
    let dockerfile = format!("FROM 127.0.0.1:{port}/private/base:1\nCMD x");
    let stranger = Fixture::new().await;
    let message = failure_of(&stranger, &dockerfile).await;
    assert!(message.contains("no basic auth credentials"), "{message}");
    assert_eq!(told.load(Ordering::Relaxed), 0);

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.json");
    let entry = r#"{"username": "user", "password": "secret"}"#;
    let text = format!(r#"{{"auths": {{"127.0.0.1:{port}": {entry}}}}}"#);
    fs::write(&path, text).expect("a file");
    let known = Fixture::with(|config| aod_docker::config::Config {
        registries: Some(path),
        ..config
    })
    .await;
    let message = failure_of(&known, &dockerfile).await;
    assert!(message.contains("answer of the registry"), "{message}");
    assert!(!message.contains("secret"), "{message}");
    assert!(
        told.load(Ordering::Relaxed) > 0,
        "the registry received no credentials"
    );
}
