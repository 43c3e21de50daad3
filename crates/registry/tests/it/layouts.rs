//! Images in directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use aod_domain::digest::Digest;
use aod_registry::exchange::{ExchangeError, Parts};
use aod_registry::layout::{self, Layout, Watch};
use serde_json::{Value, json};

use crate::bench::Bench;

/// Adds an image, and returns the digest of its manifest.
fn add(path: &Path, tag: &str, parts: &Parts) -> Result<Digest, ExchangeError> {
    add_with(path, tag, parts, &|_| ())
}

fn add_with(
    path: &Path,
    tag: &str,
    parts: &Parts,
    progress: &dyn Fn(String),
) -> Result<Digest, ExchangeError> {
    let is_stopped = &|| false;
    layout::add(
        path,
        tag,
        parts,
        &Watch {
            progress,
            is_stopped,
        },
    )
}

fn blob(layout: &Path, digest: Digest) -> PathBuf {
    layout.join("blobs/sha256").join(digest.to_string())
}

/// The names of all files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("a name in UTF-8"))
        .collect();
    names.sort();
    names
}

fn index(layout: &Path) -> Value {
    let bytes = fs::read(layout.join("index.json")).expect("an index");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// What a pull of the image with this tag, or of the only one, fails with.
async fn refusal(bench: &Bench, path: &Path, tag: Option<&str>) -> ExchangeError {
    let layout = match Layout::open(path) {
        Ok(layout) => layout,
        Err(error) => return error,
    };
    let found = match layout.find(tag).await {
        Ok(found) => found,
        Err(error) => return error,
    };
    let copied = layout.copy(&found, &bench.artifacts).await;
    copied.expect_err("a damaged image is refused")
}

#[tokio::test]
async fn two_programs_create_one_layout() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("new/images");
    let first = bench.parts(&[b"base", b"one"]).await;
    let second = bench.parts(&[b"base", b"two"]).await;
    let is_second = std::cell::Cell::new(true);
    // The second program begins and ends while the first one writes.
    let meanwhile = |_| {
        if is_second.replace(false) {
            add(&path, "2", &second).expect("it is added");
        }
    };
    add_with(&path, "1", &first, &meanwhile).expect("it is added, too");
    let layout = Layout::open(&path).expect("a layout");
    for tag in ["1", "2"] {
        let found = layout.find(Some(tag)).await.expect("an image");
        layout.copy(&found, &bench.artifacts).await.expect("a copy");
    }
    assert_eq!(names(path.parent().expect("a parent")), ["images"]);
}

#[tokio::test]
async fn layout_has_images_by_tag_and_each_part_once() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("new/images");
    let one = bench.image(&[b"base", b"one"]).await;
    let first = bench.parts(&[b"base", b"one"]).await;
    let second = bench.parts(&[b"base", b"two"]).await;
    layout::check(&path).expect("nothing is there");
    let lines = std::cell::RefCell::new(Vec::new());
    let keep = |line| lines.borrow_mut().push(line);
    let digest = add_with(&path, "1", &first, &keep).expect("it is added");
    assert_eq!(names(path.parent().expect("a parent")), ["images"]);
    assert_eq!(names(&path), ["blobs", "index.json", "oci-layout"]);
    lines.borrow_mut().clear();
    layout::check(&path).expect("a layout is there");
    add_with(&path, "2", &second, &keep).expect("it is added");
    let lines = lines.into_inner();
    let reused = lines.iter().filter(|line| line.contains("already there"));
    assert_eq!(reused.count(), 1, "the common layer");
    // Two manifests, two configurations, three layers.
    assert_eq!(names(&path.join("blobs/sha256")).len(), 7);

    let layout = Layout::open(&path).expect("a layout");
    let found = layout.find(Some("1")).await.expect("an image");
    assert_eq!(found.digest, digest);
    assert_eq!(found.labels.name.as_deref(), Some("words"));
    let copied = layout.copy(&found, &bench.artifacts).await.expect("a copy");
    assert_eq!(copied.config_digest, one.config_digest);
    assert_eq!(copied.size_bytes(), one.size_bytes());
    bench.pull(&copied).await;

    let replaced = add(&path, "1", &second).expect("it is added");
    let found = layout.find(Some("1")).await.expect("an image");
    assert_eq!(found.digest, replaced);
    assert_eq!(
        index(&path)["manifests"].as_array().expect("a list").len(),
        2
    );
}

#[tokio::test]
async fn missing_tag_names_the_tags_of_the_layout() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("images");
    let parts = bench.parts(&[b"one"]).await;
    add(&path, "a", &parts).expect("it is added");
    let text = refusal(&bench, &path, Some("c")).await.to_string();
    assert!(text.ends_with("has no image c; it has: a"), "{text}");
    add(&path, "b", &parts).expect("it is added");
    let text = refusal(&bench, &path, None).await.to_string();
    assert!(
        text.contains("name a tag") && text.ends_with("it has: a, b"),
        "{text}"
    );
}

#[tokio::test]
async fn damaged_part_is_named_with_its_place() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("images");
    let parts = bench.parts(&[b"layer"]).await;
    let manifest = add(&path, "1", &parts).expect("it is added");
    let layer = blob(&path, Digest::of("layer"));
    let check = async |digest: Digest, expected: &str| {
        let error = refusal(&bench, &path, Some("1")).await;
        assert!(matches!(&error, ExchangeError::Damaged { digest: found, .. } if *found == digest));
        let text = error.to_string();
        let place = path.display().to_string();
        assert!(text.contains(expected) && text.contains(&place), "{text}");
    };
    for (bytes, expected) in [
        ("other", "other content"),
        ("much longer", "another size than 5 bytes"),
        ("", "another size"),
    ] {
        fs::write(&layer, bytes).expect("a file");
        check(Digest::of("layer"), expected).await;
    }
    fs::remove_file(&layer).expect("a file");
    check(Digest::of("layer"), "is missing").await;
    // The same push repairs it.
    add(&path, "1", &parts).expect("it is added");
    assert_eq!(fs::read(&layer).expect("a file"), b"layer");
    let file = blob(&path, manifest);
    let mut bytes = fs::read(&file).expect("a file");
    bytes[5] ^= 1;
    fs::write(&file, bytes).expect("a file");
    check(manifest, "other content").await;
}

#[tokio::test]
async fn links_in_a_layout_are_refused_and_never_followed() {
    let bench = Bench::new().await;
    let parts = bench.parts(&[b"layer"]).await;
    let layer = format!("blobs/sha256/{}", Digest::of("layer"));
    let elsewhere = bench.directory.path().join("elsewhere");
    for entry in ["oci-layout", "index.json", "blobs", "blobs/sha256", &layer] {
        let path = bench.directory.path().join("images");
        add(&path, "1", &parts).expect("it is added");
        // The link leads to the true content.
        fs::rename(path.join(entry), &elsewhere).expect("an entry");
        symlink(&elsewhere, path.join(entry)).expect("a link");
        let error = refusal(&bench, &path, Some("1")).await;
        let text = error.to_string();
        let is_refused = matches!(error, ExchangeError::Layout { .. });
        assert!(
            is_refused && text.contains(entry) && text.contains("is a link"),
            "{text}"
        );
        if entry != layer {
            add(&path, "2", &parts).expect_err("not through a link");
        }
        fs::remove_dir_all(&path).expect("a directory");
        let _ = fs::remove_dir_all(&elsewhere);
        let _ = fs::remove_file(&elsewhere);
    }
    // A pipe without a writer does not block.
    let path = bench.directory.path().join("images");
    add(&path, "1", &parts).expect("it is added");
    fs::remove_file(path.join("index.json")).expect("a file");
    let made = std::process::Command::new("mkfifo")
        .arg(path.join("index.json"))
        .status();
    assert!(made.expect("mkfifo of coreutils").success());
    let text = refusal(&bench, &path, Some("1")).await.to_string();
    assert!(
        text.contains("index.json is a link or another special file"),
        "{text}"
    );
}

#[tokio::test]
async fn image_of_an_index_with_two_platforms_is_found() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("images");
    let [arm, amd] = [bench.parts(&[b"arm"]).await, bench.parts(&[b"amd"]).await];
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let entry = |digest: Digest, processor: &str| {
        let size = fs::metadata(blob(&path, digest)).expect("a blob").len();
        json!({
            "mediaType": kind,
            "digest": format!("sha256:{digest}"),
            "size": size,
            "platform": {"os": "linux", "architecture": processor},
        })
    };
    let arm = add(&path, "arm", &arm).expect("it is added");
    let amd = add(&path, "amd", &amd).expect("it is added");
    let both = json!({"schemaVersion": 2, "manifests": [entry(arm, "arm64"), entry(amd, "amd64")]});
    let put = |text: String| {
        let digest = Digest::of(&text);
        fs::write(blob(&path, digest), &text).expect("a blob");
        let index = json!({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "digest": format!("sha256:{digest}"),
            "size": text.len(),
            "annotations": {"org.opencontainers.image.ref.name": "both"},
        }]});
        fs::write(path.join("index.json"), index.to_string()).expect("an index");
        digest
    };
    let digest = put(both.to_string());
    let layout = Layout::open(&path).expect("a layout");
    let found = layout.find(Some("both")).await.expect("an image");
    let own = if cfg!(target_arch = "aarch64") {
        arm
    } else {
        amd
    };
    assert_eq!((found.digest, found.manifest_digest), (digest, own));
    let copied = layout.copy(&found, &bench.artifacts).await;
    assert_eq!(copied.expect("a copy").size_bytes(), 3);

    let other = json!({"schemaVersion": 2, "manifests": [entry(arm, "s390x")]});
    put(other.to_string());
    let error = refusal(&bench, &path, Some("both")).await;
    let source = std::error::Error::source(&error)
        .expect("a source")
        .to_string();
    assert!(source.contains("linux/s390x"), "{source}");

    // An index that contains itself under another name: the digest ends it, so nest deeply instead.
    let mut nested = put(both.to_string());
    for _ in 0..3 {
        let size = fs::metadata(blob(&path, nested)).expect("a blob").len();
        let text = json!({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "digest": format!("sha256:{nested}"),
            "size": size,
        }]});
        nested = put(text.to_string());
    }
    let error = refusal(&bench, &path, Some("both")).await;
    let source = std::error::Error::source(&error)
        .expect("a source")
        .to_string();
    assert!(source.contains("nested"), "{source}");
}

#[tokio::test]
async fn failed_push_leaves_no_trace() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("place/images");
    let broken = async || {
        let layers = ["first", "second", "third"];
        let parts = bench.parts(&layers.map(str::as_bytes)).await;
        // Parts are sent in the order of their digests: at least two are written before this one.
        let last = layers.map(Digest::of).into_iter().max();
        let file = bench.file(last.expect("three layers"));
        fs::remove_file(file).expect("a part");
        parts
    };
    let parts = broken().await;
    add(&path, "1", &parts).expect_err("a part is missing");
    assert_eq!(names(path.parent().expect("a parent")), [""; 0]);

    let good = bench.parts(&[b"base"]).await;
    add(&path, "good", &good).expect("it is added");
    let before = (index(&path), names(&path.join("blobs/sha256")));
    let parts = broken().await;
    add(&path, "1", &parts).expect_err("a part is missing");
    assert_eq!((index(&path), names(&path.join("blobs/sha256"))), before);
    assert_eq!(names(&path), ["blobs", "index.json", "oci-layout"]);

    // A push that is stopped, after its first part.
    let parts = bench.parts(&[b"fourth", b"fifth"]).await;
    let lines = std::cell::Cell::new(0);
    let watch = Watch {
        progress: &|_| lines.set(lines.get() + 1),
        is_stopped: &|| lines.get() > 1,
    };
    layout::add(&path, "1", &parts, &watch).expect_err("it is stopped");
    assert_eq!((index(&path), names(&path.join("blobs/sha256"))), before);

    // What a killed push left behind goes with the next one.
    fs::write(path.join(".aod-left"), "half").expect("a file");
    add(&path, "again", &good).expect("it is added");
    assert_eq!(names(&path), ["blobs", "index.json", "oci-layout"]);
}

#[tokio::test]
async fn directory_that_is_no_layout_stays_as_it_is() {
    let bench = Bench::new().await;
    let parts = bench.parts(&[b"one"]).await;
    let path = bench.directory.path().join("photos");
    fs::create_dir(&path).expect("a directory");
    layout::check(&path).expect("an empty directory");
    fs::write(path.join("photo"), "bytes").expect("a file");
    for error in [
        layout::check(&path).expect_err("no layout"),
        add(&path, "1", &parts).expect_err("no layout"),
    ] {
        let text = error.to_string();
        assert!(text.contains("has no oci-layout"), "{text}");
    }
    assert_eq!(names(&path), ["photo"]);
    let file = path.join("photo");
    let text = add(&file, "1", &parts).expect_err("a file").to_string();
    assert!(text.contains("no such directory"), "{text}");
    fs::write(
        path.join("oci-layout"),
        r#"{"imageLayoutVersion": "2.0.0"}"#,
    )
    .expect("a file");
    let text = refusal(&bench, &path, None).await.to_string();
    assert!(
        text.contains("2.0.0") && text.contains("expected 1.0.0"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_into_one_layout_keep_all_images() {
    let bench = Bench::new().await;
    let path = bench.directory.path().join("images");
    let first = bench.parts(&[b"first"]).await;
    add(&path, "first", &first).expect("it is added");
    let mut tasks = Vec::new();
    for number in 0..8 {
        let text = number.to_string();
        let parts = bench.parts(&[b"base", text.as_bytes()]).await;
        let path = path.clone();
        tasks.push(std::thread::spawn(move || {
            add(&path, &text, &parts).map(drop)
        }));
    }
    for task in tasks {
        task.join().expect("no panic").expect("it is added");
    }
    let layout = Layout::open(&path).expect("a layout");
    for number in 0..8 {
        let found = layout.find(Some(&number.to_string())).await;
        let found = found.expect("an image");
        layout.copy(&found, &bench.artifacts).await.expect("a copy");
    }
    layout.find(Some("first")).await.expect("the first image");
}
