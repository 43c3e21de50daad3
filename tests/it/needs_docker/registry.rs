//! Capsules in a real registry and in a directory, pushed and pulled by `aod`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use aod_testkit::RegistryServer;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::aod;
use serde_json::Value;

/// The name of the built image on the engine.
const PUSHED: &str = "aod/worker:pushed";

/// `aod capsule …`, with no credentials except the given ones.
fn aod_capsule(arguments: &[&str], home: &Path) -> Output {
    let output = Command::new(aod())
        .args(["--format", "json", "capsule"])
        .args(arguments)
        .env("HOME", home)
        .env_remove("DOCKER_CONFIG")
        .output();
    output.expect("aod starts")
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("stdout is JSON")
}

fn forget(image: &str) {
    let removed = Command::new("docker")
        .args(["rmi", "--force", image])
        .output();
    removed.expect("docker is installed");
}

#[test]
fn capsule_is_pushed_to_and_pulled_from_a_private_registry() {
    let registry = RegistryServer::start();
    let capsule = CapsuleDirectory::new("worker");
    let home = tempfile::tempdir().expect("a directory");
    let directory = capsule.path();
    let directory = directory.to_str().expect("a test path");
    let reference = format!("{}/demo/worker:1", registry.name());

    let refused = aod_capsule(&["push", directory, &reference], home.path());
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(errors.contains("no basic auth credentials"), "{errors}");

    let credentials = registry.credentials();
    let credentials = credentials.to_str().expect("a test path");
    let with = ["--registries", credentials];
    let pushed = [&["push", directory, &reference][..], &with].concat();
    let pushed = report(&aod_capsule(&pushed, home.path()));
    let exact = pushed["reference"]
        .as_str()
        .expect("a reference")
        .to_owned();
    assert!(exact.contains("/demo/worker@sha256:"), "{pushed}");
    forget(PUSHED);

    let target = home.path().join("pulled");
    let target = target.to_str().expect("a test path");
    let pulled = [&["pull", &reference, target][..], &with].concat();
    let pulled = report(&aod_capsule(&pulled, home.path()));
    assert_eq!(pulled["reference"], exact.as_str());
    assert_eq!(pulled["capsule"], "worker");
    let read = |directory: &str, name: &str| {
        fs::read_to_string(Path::new(directory).join(name)).expect("a file of the capsule")
    };
    for name in ["schema.json", "agent.yaml"] {
        assert_eq!(read(target, name), read(directory, name), "{name}");
    }
    assert_eq!(read(target, "Dockerfile"), format!("FROM {exact}\n"));

    // An existing directory is not overwritten; a pulled capsule runs like any other.
    let again = [&["pull", &reference, target][..], &with].concat();
    assert!(!aod_capsule(&again, home.path()).status.success());
    let table = home.path().join("table.csv");
    fs::write(&table, "1,2\n").expect("a file");
    let table = format!("table=@{}", table.display());
    let run = ["run", target, "-i", &table, "-i", "seconds=0"];
    let answer = report(&aod_capsule(&run, home.path()));
    forget(&exact);
    assert_eq!(answer["output"]["made"], "made.bin", "{answer}");
}

/// The failure of a pull into `target`, which must not exist afterwards; its exit code must be `exit`.
fn refusal(reference: &str, target: &Path, exit: i32) -> String {
    let path = target.to_str().expect("a test path");
    let home = target.parent().expect("a home");
    let output = aod_capsule(&["pull", reference, path], home);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit), "{errors}");
    assert!(!target.exists(), "{errors}");
    errors
}

#[test]
fn capsule_travels_in_a_directory_without_a_registry() {
    // Another name than in other tests: the engine has one image of a name.
    let capsule = CapsuleDirectory::new("worker");
    capsule.write("agent.yaml", "version: 1\nname: traveller\n");
    let home = tempfile::tempdir().expect("a directory");
    let directory = capsule.path();
    let directory = directory.to_str().expect("a test path");
    let usb = home.path().join("usb");
    let place = format!("oci:{}", usb.display());

    let pushed = report(&aod_capsule(
        &["push", directory, &format!("{place}:1")],
        home.path(),
    ));
    assert_eq!(pushed["reference"], format!("{place}:1"));
    let inspected = Command::new("skopeo")
        .args(["inspect", &format!("{place}:1")])
        .output()
        .expect("skopeo is installed");
    let inspected = report(&inspected);
    assert_eq!(inspected["Digest"], pushed["digest"]);
    assert_eq!(inspected["Labels"]["dev.aod.name"], "traveller");
    // The next version adds only what is new; its image is the same, so nothing.
    let again = aod_capsule(&["push", directory, &format!("{place}:2")], home.path());
    let lines = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(report(&again)["digest"], pushed["digest"]);
    let is_sent = |line: &&str| line.contains("part ") && !line.contains("already there");
    assert_eq!(lines.lines().find(is_sent), None, "{lines}");
    forget("aod/traveller:pushed");

    let target = home.path().join("pulled");
    let text = refusal(&format!("{place}:3"), &target, 2);
    assert!(text.contains("no image 3; it has: 1, 2"), "{text}");
    let layers = inspected["Layers"].as_array().expect("a list");
    let layer = layers[0].as_str().expect("a digest");
    let file = usb
        .join("blobs/sha256")
        .join(layer.trim_start_matches("sha256:"));
    let whole = fs::read(&file).expect("a layer");
    fs::write(&file, &whole[1..]).expect("a layer");
    let text = refusal(&format!("{place}:1"), &target, 6);
    assert!(text.contains(layer) && text.contains("usb"), "{text}");
    fs::write(&file, &whole).expect("a layer");

    let path = target.to_str().expect("a test path");
    let pulled = ["pull", &format!("{place}:1"), path];
    let pulled = report(&aod_capsule(&pulled, home.path()));
    let digits = &pushed["digest"].as_str().expect("a digest")["sha256:".len()..][..12];
    let local = format!("aod-pulled.invalid/traveller:{digits}");
    assert_eq!(pulled["reference"], local);
    let recipe = fs::read_to_string(target.join("Dockerfile")).expect("a file of the capsule");
    assert_eq!(recipe, format!("FROM {local}\n"));
    let table = home.path().join("table.csv");
    fs::write(&table, "1,2\n").expect("a file");
    let table = format!("table=@{}", table.display());
    let run = ["run", path, "-i", &table, "-i", "seconds=0"];
    let answer = report(&aod_capsule(&run, home.path()));
    let names = Command::new("docker")
        .args(["images", "--format", "{{.Repository}}:{{.Tag}}"])
        .args(["--filter", "label=dev.aod.name=traveller"])
        .output()
        .expect("docker is installed");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    for name in names.lines() {
        forget(name);
    }
    assert_eq!(answer["output"]["made"], "made.bin", "{answer}");
    // Neither push nor pull leaves names of its transfer.
    assert!(names.contains(&local), "{names}");
    assert!(!names.contains("127.0.0.1:"), "{names}");
}
