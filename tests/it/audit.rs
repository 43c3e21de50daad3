//! Trees exported from a real cluster: an unchanged bundle verifies, every change is reported.

mod changes;

use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::audit::{FindingKind, PublicKey, Report, SealKey, Verdict};
use aod_domain::capsule::{Blob, Image, ImageContent};
use aod_domain::digest::Digest;
use aod_ports::feed::GIVEN_FOR;
use aod_testkit::capsules::registration;
use aod_tests::client::eventually;
use aod_tests::cluster::{Cluster, SEAL_SEED, any_schema, append_registration, store_schema};
use aod_tests::programs::aod;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use serde_json::{Value, json};

use self::changes::{CHANGES, Parts, change};

/// Size of an argument and an output that are artifacts.
const LARGE_BYTES: usize = 20_000;

/// A capsule that calls itself `depth` levels down, prints a line, and writes a file and a large output.
fn survey() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let depth = inside.input()["depth"].as_u64().expect("a depth");
            if depth > 0 {
                let args = json!({"depth": depth - 1, "text": "t".repeat(LARGE_BYTES)});
                let body = json!({"target": "survey", "args": args});
                let (status, answer) = handoff(&inside, &body).await;
                assert_eq!(status, 200, "{answer}");
                // Rejected, which is a note.
                handoff(&inside, &json!({"target": "nobody", "args": {}})).await;
            }
            let file = inside.spec.io.outputs.join("report.txt");
            std::fs::write(file, format!("report {depth}")).expect("a directory of its own");
            inside.write_output(&json!({"text": "o".repeat(LARGE_BYTES)}));
            0
        })
    })
}

/// A capsule that never ends.
fn stay() -> Command {
    Arc::new(|_| Box::pin(std::future::pending()))
}

async fn cluster(gateways: usize) -> Cluster {
    let mut cluster = Cluster::start(gateways).await;
    let capacity = Capacity {
        slots: 4,
        containers_max: 32,
        memory_bytes: 4 << 30,
    };
    let engine = runtime([("survey".to_owned(), survey()), ("stay".to_owned(), stay())]);
    cluster.add_node(&["any"], capacity, engine).await;
    cluster.register("survey", &any_schema()).await;
    cluster.register("stay", &any_schema()).await;
    cluster
}

fn key() -> PublicKey {
    SealKey::from_seed(&SEAL_SEED).public_key()
}

/// The sealed bundle of a tree with two callees; the cluster no longer exists.
async fn sealed_bundle() -> Vec<u8> {
    let cluster = cluster(1).await;
    let client = cluster.client(0);
    let run = client.start("survey", json!({"depth": 2})).await;
    let result = client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    eventually("a seal", async || client.seals(&run).await == 1).await;
    client.bytes(&format!("/v1/runs/{run}/bundle")).await
}

fn verify(bundle: &[u8], key: Option<PublicKey>) -> Report {
    aod_audit::verify(bundle, key).expect("memory can be read")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_a_hundred_changes_to_a_bundle_is_reported() {
    let honest = sealed_bundle().await;
    let report = verify(&honest, Some(key()));
    assert_eq!(report.findings, []);
    assert_eq!(report.verdict, Verdict::Sealed);
    assert_eq!(report.runs, 3);
    // A schema, two arguments, an output and a file of each, and logs.
    assert!(report.artifacts >= 6, "{report:#?}");
    let parts = Parts::of(&honest);
    assert_eq!(parts.write(), honest, "parts are whole");
    assert_eq!(
        parts.clone().refitted().write(),
        honest,
        "a manifest follows"
    );
    for seed in 0..CHANGES {
        let changed = change(&parts, seed);
        let what = format!("seed {seed}, {}", changed.what);
        assert_ne!(changed.bytes, honest, "{what}");
        let report = verify(&changed.bytes, Some(key()));
        assert_eq!(report.verdict, Verdict::Findings, "{what}");
        let text = format!("{report:#?}");
        assert!(
            text.contains(&changed.names),
            "{what} at {}: {text}",
            changed.names
        );
    }
}

/// The verdict of `aod audit` on a machine without a cluster: the exit code and the report.
fn judged(bundle: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Process::new(aod())
        .env_clear()
        .current_dir("/")
        .args(["--format", "json", "audit", "verify"])
        .arg(bundle)
        .args(arguments)
        .output()
        .expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (
        output.status.code(),
        report.unwrap_or_else(|_| panic!("{error}")),
    )
}

/// The output of `aod audit …` with a gateway.
fn asked(gateway: &str, arguments: &[&str]) -> Value {
    let output = Process::new(aod())
        .env_clear()
        .args(["--format", "json", "audit"])
        .args(arguments)
        .args(["--url", gateway])
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn aod_exports_a_tree_and_verifies_it_without_the_cluster() {
    let cluster = cluster(1).await;
    let client = cluster.client(0);
    let url = cluster.gateways[0].url().to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let export = |run: &str, name: &str| {
        let file = path(name);
        let file = file.to_str().expect("a plain path");
        asked(&url, &["export", run, "-o", file])
    };
    let going_on = client.start("stay", json!({})).await;
    let run = client.start("survey", json!({"depth": 1})).await;
    client.result(&run).await;
    eventually("a seal", async || client.seals(&run).await == 1).await;

    let stored = export(&run, "sealed.tar");
    assert_eq!(stored["root"], *run);
    let (_, tree) = client.get(&format!("/v1/runs/{run}/tree")).await;
    let callee = tree["children"][0]["run"]["id"].as_str();
    let callee = callee.or(tree["children"][0]["id"].as_str());
    let of_callee = export(callee.unwrap_or_else(|| panic!("{tree}")), "again.tar");
    assert_eq!(of_callee["root"], *run);
    assert_eq!(
        of_callee["sha256"], stored["sha256"],
        "a tree has one bundle"
    );
    export(&going_on, "open.tar");
    let public_key = asked(&url, &["key"])["public_key"].clone();
    let public_key = public_key.as_str().expect("a key").to_owned();
    assert_eq!(public_key, key().to_string());
    drop(cluster);

    let (code, report) = judged(&path("sealed.tar"), &["--public-key", &public_key]);
    assert_eq!(
        (code, &report["verdict"]),
        (Some(0), &json!("sealed")),
        "{report}"
    );
    assert_eq!(report["seal"]["is_key_compared"], true);
    let (code, report) = judged(&path("sealed.tar"), &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["seal"]["is_key_compared"], false);
    let (code, report) = judged(&path("open.tar"), &[]);
    assert_eq!(
        (code, &report["verdict"]),
        (Some(8), &json!("open")),
        "{report}"
    );

    let other = SealKey::from_seed(&[9; 32]).public_key().to_string();
    std::fs::write(path("other.pub"), format!("{other}\n")).expect("a test file");
    let other = path("other.pub");
    let other = other.to_str().expect("a plain path");
    let (code, report) = judged(&path("sealed.tar"), &["--public-key", other]);
    assert_eq!(
        (code, &report["findings"][0]["kind"]),
        (Some(7), &json!("signer"))
    );
    let mut bytes = std::fs::read(path("sealed.tar")).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path("changed.tar"), bytes).expect("a test file");
    let (code, report) = judged(&path("changed.tar"), &[]);
    assert_eq!(
        (code, &report["verdict"]),
        (Some(7), &json!("findings")),
        "{report}"
    );
}

/// A bundle has the names of all parts of an image; the parts themselves are too large for it.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_names_each_layer_of_the_image_and_verifies() {
    let cluster = cluster(1).await;
    let layers = ["one", "two"].map(|text| Blob {
        digest: Digest::of(text),
        size_bytes: 3,
    });
    let manifest = Digest::of("manifest");
    let schema = store_schema(cluster.artifacts.as_ref(), &any_schema()).await;
    let mut layered = registration("layered", schema);
    layered.image = Image {
        config_digest: "survey".to_owned(),
        content: ImageContent::Layers {
            manifest,
            config: None,
            layers: layers.to_vec(),
        },
    };
    append_registration(&cluster.broker("registrar").await, layered).await;
    let client = cluster.client(0);
    let run = client.start("layered", json!({"depth": 1})).await;
    client.result(&run).await;
    eventually("a seal", async || client.seals(&run).await == 1).await;
    let bundle = client.bytes(&format!("/v1/runs/{run}/bundle")).await;
    let report = verify(&bundle, Some(key()));
    assert_eq!(report.findings, []);
    assert_eq!(report.verdict, Verdict::Sealed);
    let text = String::from_utf8_lossy(&bundle);
    for digest in layers.iter().map(|layer| layer.digest).chain([manifest]) {
        assert!(text.contains(&digest.to_string()), "{digest}");
    }
    // Its callee has an image of the former kind, one archive.
    assert!(
        text.contains("archive_size_bytes"),
        "both are in one bundle"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tree_is_sealed_once_when_gateways_stop_or_die() {
    const ROOTS: usize = 30;
    let mut cluster = cluster(3).await;
    let mut runs = Vec::new();
    let last = cluster.client(2);
    for number in 0..ROOTS {
        let client = cluster.client(number % 3);
        runs.push(client.start("survey", json!({"depth": number % 2})).await);
    }
    for run in &runs[..ROOTS / 2] {
        last.result(run).await;
    }
    // One stops orderly, one is killed.
    cluster.gateways.remove(0).shutdown().await;
    drop(cluster.gateways.remove(0));
    for run in &runs {
        last.result(run).await;
    }
    for run in &runs {
        eventually("a seal", async || last.seals(run).await > 0).await;
        assert_eq!(last.seals(run).await, 1, "{run}");
        let bundle = last.bytes(&format!("/v1/runs/{run}/bundle")).await;
        let report = verify(&bundle, Some(key()));
        assert_eq!(report.verdict, Verdict::Sealed, "{report:#?}");
    }
}

/// Half of the time after which an end is redelivered that a gateway held until its death.
const RETURNED_WITHIN: Duration = Duration::from_secs(GIVEN_FOR.as_secs() / 2);

#[tokio::test(flavor = "multi_thread")]
async fn stopping_gateway_returns_unsealed_ends_to_the_feed() {
    let mut cluster = cluster(2).await;
    let last = cluster.client(1);
    let mut runs = Vec::new();
    for number in 0..10 {
        let client = cluster.client(number % 2);
        runs.push(client.start("survey", json!({"depth": 0})).await);
    }
    for run in &runs {
        last.result(run).await;
    }
    cluster.gateways.remove(0).shutdown().await;
    let sealed = async {
        for run in &runs {
            eventually("a seal", async || last.seals(run).await == 1).await;
        }
    };
    let sealed = tokio::time::timeout(RETURNED_WITHIN, sealed).await;
    sealed.expect("nobody waits until the ends come back by themselves");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_artifact_is_reported_by_verify() {
    let cluster = cluster(1).await;
    let client = cluster.client(0);
    let run = client.start("survey", json!({"depth": 0})).await;
    let result = client.result(&run).await;
    let digest = result["files"][0]["digest"]
        .as_str()
        .expect("a file")
        .to_owned();
    eventually("a seal", async || client.seals(&run).await == 1).await;
    let store = cluster.data("artifacts");
    let removed = remove(&store, &digest);
    assert!(removed, "{digest} below {}", store.display());
    let bundle = client.bytes(&format!("/v1/runs/{run}/bundle")).await;
    let report = verify(&bundle, Some(key()));
    let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::MissingArtifact], "{report:#?}");
    assert!(report.findings[0].place.contains(&digest));
    assert!(
        report.findings[0]
            .found
            .contains("no longer had the artifact")
    );
}

/// Removes the artifact from the directory of a store.
fn remove(directory: &Path, digest: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut is_removed = false;
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            is_removed |= remove(&path, digest);
        } else if digest.ends_with(&*name) && name.len() > 32 {
            is_removed |= std::fs::remove_file(&path).is_ok();
        }
    }
    is_removed
}
