//! Capsules in a real registry, pushed and pulled by `aod`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use aod_testkit::RegistryServer;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::aod;
use serde_json::Value;

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
    forget(&reference);

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
    forget(&reference);
    forget(&exact);
    assert_eq!(answer["output"]["made"], "made.bin", "{answer}");
}
