//! Retention and garbage collection through `aod`: real gateways, a real broker, capsules as functions.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_domain::admission::Capacity;
use aod_domain::digest::Digest;
use aod_domain::retention::UNNAMED_FOR;
use aod_ports::log_stream::Output;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, runtime};
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Arguments and outputs of this size are artifacts.
const LARGE_BYTES: usize = 20_000;

/// Prints a line, and returns its input: its text as a large output, its file as a file.
fn copy() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let read = fs::read(inside.spec.io.inputs.join("in.txt")).expect("an input");
            fs::write(inside.spec.io.outputs.join("out.txt"), read).expect("its own directory");
            let text = inside.input()["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            inside.say(Output::Stdout, "it is copied\n");
            inside.write_output(&json!({"text": text + &"o".repeat(LARGE_BYTES)}));
            0
        })
    })
}

/// Gateways that delete unnamed artifacts after `unnamed_for`, and a node.
async fn cluster(gateways: usize, unnamed_for: SignedDuration) -> Cluster {
    let mut cluster = Cluster::start(0).await;
    cluster.unnamed_for = unnamed_for;
    for _ in 0..gateways {
        cluster.add_gateway().await;
    }
    let capacity = Capacity {
        slots: 4,
        containers_max: 32,
        memory_bytes: 4 << 30,
    };
    let engine = runtime([("copy".to_owned(), copy())]);
    cluster.add_node(&["any"], capacity, engine).await;
    cluster.register("copy", &any_schema()).await;
    cluster
}

/// Runs `copy` with a large text and its own file; returns its id.
async fn copied(cluster: &Cluster, client: &Client, name: &str) -> String {
    let file = stored(cluster, name).await;
    let run = ask_for(client, name, &file).await;
    let result = client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    run
}

async fn ask_for(client: &Client, name: &str, file: &Digest) -> String {
    let text = format!("{name} {}", "t".repeat(LARGE_BYTES));
    let files = json!([{"name": "in.txt", "file": format!("{FILE_REFERENCE_PREFIX}{file}")}]);
    let body = json!({"files": files});
    client.start_with("copy", json!({"text": text}), body).await
}

/// Uploads a file.
async fn stored(cluster: &Cluster, name: &str) -> Digest {
    let url = format!("{}/v1/files", cluster.gateways[0].url());
    let body = format!("the file of {name}");
    let sent = reqwest::Client::new().post(url).body(body).send().await;
    let stored: Value = sent.expect("an answer").json().await.expect("JSON");
    let digest = stored["digest"].as_str().expect("a digest");
    digest.parse().expect("a digest")
}

/// The JSON output of the real `aod` for an operator's command.
async fn operate(cluster: &Cluster, gateway: usize, words: &[&str]) -> Value {
    let words = [&["--format", "json"], words].concat();
    let output = ask(cluster.gateways[gateway].url(), 0, &words).await;
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// The number of artifacts of a kind in one of the lists of a collection.
fn count(collection: &Value, list: &str, kind: &str) -> u64 {
    let items = collection[list].as_array().expect("a list").iter();
    let mut of_kind = items.filter(|item| item["kind"] == kind);
    of_kind
        .next()
        .map_or(0, |item| item["artifacts"].as_u64().expect("a number"))
}

/// The digests that events record as deleted.
async fn deleted(client: &Client) -> BTreeSet<String> {
    let (_, page) = client.get("/v1/events?type=deleted&limit=500").await;
    let items = page["items"].as_array().expect("events").iter();
    let artifacts = items.flat_map(|event| event["data"]["artifacts"].as_array().expect("a list"));
    artifacts
        .map(|digest| digest.as_str().expect("a digest").to_owned())
        .collect()
}

async fn assert_reported_as_deleted(cluster: &Cluster, run: &str) {
    for gateway in 0..2 {
        let client = cluster.client(gateway);
        let mut answers = Vec::new();
        for path in ["files/out.txt", "inputs/in.txt", "result"] {
            answers.push(client.get(&format!("/v1/runs/{run}/{path}")).await);
        }
        let path = format!("/v1/runs/{run}/rerun");
        answers.push(client.post_json(&path, &json!({})).await);
        for (status, problem) in answers {
            let told = (status, &problem["code"]);
            assert_eq!(told, (410, &json!("artifact_deleted")), "{problem}");
        }
        let (status, view) = client.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(status, 200, "{view}");
        assert_eq!(view["deleted"], json!(["arguments", "output"]), "{view}");
        assert_eq!(view["state"], "succeeded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_outside_policy_are_deleted_and_recorded() {
    let cluster = cluster(2, SignedDuration::ZERO).await;
    let client = cluster.client(0);
    let held = copied(&cluster, &client, "held").await;
    let gone = copied(&cluster, &client, "gone").await;
    let unnamed = stored(&cluster, "nobody").await;

    // Without a policy, only unnamed artifacts can be deleted.
    let dry = operate(&cluster, 1, &["gc", "--dry-run"]).await;
    assert_eq!(dry["dry_run"], true, "{dry}");
    assert_eq!(count(&dry, "deleted", "unnamed"), 1, "{dry}");
    assert_eq!(dry["deleted"].as_array().map(Vec::len), Some(1), "{dry}");
    assert_eq!(count(&dry, "kept", "registered"), 1, "{dry}");
    assert!(count(&dry, "kept", "no_policy") >= 8, "{dry}");
    assert!(
        cluster
            .artifacts
            .contains(unnamed)
            .await
            .expect("an answer")
    );

    let hold = operate(
        &cluster,
        0,
        &["hold", "set", &held, "--reason", "a lawsuit"],
    )
    .await;
    assert_eq!(hold["reason"], "a lawsuit", "{hold}");
    let words = ["retention", "set", "all", "--logs", "0d", "--files", "0d"];
    operate(&cluster, 0, &words).await;
    let done = operate(&cluster, 1, &["gc"]).await;
    assert_eq!(done["failed"], 0, "{done}");
    assert_eq!(count(&done, "deleted", "unnamed"), 1, "{done}");
    assert_eq!(count(&done, "deleted", "logs"), 1, "{done}");
    // Its input, which is also its output file, its arguments and its output.
    assert_eq!(count(&done, "deleted", "files"), 3, "{done}");
    // The same files of the held run, with its logs and the schema of its capsule.
    assert_eq!(count(&done, "kept", "held"), 5, "{done}");
    assert!(
        !cluster
            .artifacts
            .contains(unnamed)
            .await
            .expect("an answer")
    );

    // Every gateway reports a deleted artifact as deleted, and returns held ones.
    assert_reported_as_deleted(&cluster, &gone).await;
    for gateway in 0..2 {
        let client = cluster.client(gateway);
        let path = format!("/v1/runs/{held}/files/out.txt");
        assert_eq!(client.bytes(&path).await, b"the file of held");
    }

    // After the hold is removed, the next collection deletes the rest.
    operate(&cluster, 0, &["hold", "rm", &held]).await;
    let done = operate(&cluster, 0, &["gc"]).await;
    assert_eq!(count(&done, "deleted", "files"), 3, "{done}");
    let again = operate(&cluster, 1, &["gc"]).await;
    assert_eq!(again["deleted"], json!([]), "{again}");
    let told = deleted(&client).await;
    assert_eq!(told.len(), 9, "{told:?}");
    assert!(told.contains(&unnamed.to_string()));

    // A new upload of the same bytes is available again.
    let run = copied(&cluster, &client, "gone").await;
    let bytes = client.bytes(&format!("/v1/runs/{run}/files/out.txt")).await;
    assert_eq!(bytes, b"the file of gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_reports_deleted_artifacts() {
    let cluster = cluster(1, SignedDuration::ZERO).await;
    let client = cluster.client(0);
    let run = copied(&cluster, &client, "gone").await;
    eventually("a seal", async || client.seals(&run).await == 1).await;
    operate(&cluster, 0, &["retention", "set", "logs", "--logs", "0d"]).await;
    operate(&cluster, 0, &["gc"]).await;
    let scratch = tempfile::tempdir().expect("a directory for a test");
    let bundle = scratch.path().join("bundle.tar");
    let bundle = bundle.to_str().expect("a text");
    let url = cluster.gateways[0].url();
    let exported = ask(url, 0, &["audit", "export", &run, "-o", bundle]).await;
    let told = String::from_utf8_lossy(&exported.stderr);
    assert_eq!(told.matches("not in the bundle: ").count(), 1, "{told}");
    assert!(
        told.contains("the cluster reports that it was deleted at 2"),
        "{told}"
    );
    // The signature does not prove the deletion.
    let report = ask(url, 7, &["--format", "json", "audit", "verify", bundle]).await;
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let kinds: Vec<&Value> = findings.iter().map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, ["deleted_artifact"], "{report:#}");
}

/// All artifacts in the store of a test.
fn objects(cluster: &Cluster) -> Vec<PathBuf> {
    let top = cluster.data("artifacts").join("sha256");
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).expect("a directory of a test");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    entries(&top)
        .iter()
        .flat_map(|shard| entries(shard))
        .collect()
}

/// Ages all puts and names by two days.
fn let_time_pass(cluster: &Cluster) {
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
    for path in objects(cluster) {
        let file = File::open(&path).expect("an object of a test");
        file.set_modified(long_ago).expect("an object of a test");
    }
}

/// Runs a whole garbage collection on a gateway.
async fn collect(cluster: &Cluster, gateway: usize) {
    let url = format!("{}/v1/gc", cluster.gateways[gateway].url());
    let sent = reqwest::Client::new().post(url).send().await;
    let text = sent.expect("an answer").text().await.expect("its lines");
    let last = text.trim_end().lines().last();
    assert!(last.is_some_and(|line| line.contains("ended")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_named_during_garbage_collection_is_kept() {
    const ROUNDS_MIN: usize = 12;
    const ROUNDS_MAX: usize = 100;
    const RUNS: usize = 4;
    let cluster = cluster(2, UNNAMED_FOR).await;
    let client = cluster.client(0);
    operate(
        &cluster,
        0,
        &["retention", "set", "all", "--logs", "0d", "--files", "0d"],
    )
    .await;
    let (mut went, mut stayed) = (0, 0);
    for round in 0..ROUNDS_MAX {
        // Sooner or later the runs begin after the collection.
        if round >= ROUNDS_MIN && went > 0 {
            break;
        }
        // The same files every time; no requests while time passes.
        for run in 0..RUNS {
            copied(&cluster, &client, &format!("{run}")).await;
        }
        let_time_pass(&cluster);
        let pause = Duration::from_millis(15 * round as u64);
        let begin = async {
            // From before the store is listed until after everything is deleted.
            tokio::time::sleep(pause).await;
            let begun = (0..RUNS).map(async |run| {
                let name = format!("{run}");
                // Half of the runs put the bytes again, the others only name them.
                let file = match run % 2 {
                    0 => stored(&cluster, &name).await,
                    _ => Digest::of(format!("the file of {name}")),
                };
                let files =
                    json!([{"name": "in.txt", "file": format!("{FILE_REFERENCE_PREFIX}{file}")}]);
                let body = json!({"capsule": "copy", "arguments": {"text": name}, "files": files});
                client.post_json("/v1/runs", &body).await
            });
            join_all(begun).await
        };
        let (begun, (), ()) = tokio::join!(begin, collect(&cluster, 0), collect(&cluster, 1));
        for (run, (status, view)) in begun.into_iter().enumerate() {
            if run % 2 == 1 && status == 400 {
                // Deleted before it was named.
                went += 1;
                continue;
            }
            assert!((200..300).contains(&status), "{status}: {view}");
            stayed += 1;
            let id = view["id"].as_str().expect("an id");
            let result = client.result(id).await;
            assert_eq!(result["state"], "succeeded", "{result}");
            for path in ["files/out.txt", "inputs/in.txt"] {
                let bytes = client.bytes(&format!("/v1/runs/{id}/{path}")).await;
                assert_eq!(bytes, format!("the file of {run}").into_bytes());
            }
        }
    }
    assert!(went > 0 && stayed > 0, "{went} went and {stayed} stayed");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_with_nearly_full_disk_rejects_trees_and_issues_tokens() {
    let mut cluster = Cluster::start(0).await;
    // More than any disk has.
    cluster.disk_reserve = Some(u64::MAX / 2);
    cluster.add_gateway().await;
    cluster.register("copy", &any_schema()).await;
    let client = cluster.client(0);
    let body = json!({"capsule": "copy", "arguments": {}});
    let (status, problem) = client.post_json("/v1/runs", &body).await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("disk_full")),
        "{problem}"
    );
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|text| text.starts_with("disk_full: ")),
        "{problem}"
    );
    // The operator who frees space may need a token.
    let body = json!({"name": "keeper", "role": "operate", "all_tenants": true});
    let (status, token) = client.post_json("/v1/tokens", &body).await;
    assert_eq!(status, 201, "{token}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_nearly_full_disk_takes_no_trees_and_reports_the_reason() {
    let mut cluster = Cluster::start(1).await;
    let capacity = Capacity {
        slots: 4,
        containers_max: 32,
        memory_bytes: 4 << 30,
    };
    let engine = runtime([("copy".to_owned(), copy())]);
    cluster.disk_reserve = Some(u64::MAX / 2);
    cluster.add_node(&["any"], capacity, engine).await;
    cluster.register("copy", &any_schema()).await;
    let client = cluster.client(0);
    let run = client.start("copy", json!({})).await;
    let expected = "node-0 takes no new trees: disk_full: the disk of ";
    eventually("a reason to wait", async || {
        let (_, view) = client.get(&format!("/v1/runs/{run}")).await;
        view["waits_for"]
            .as_str()
            .is_some_and(|text| text.starts_with(expected))
    })
    .await;
    let output = ask(cluster.gateways[0].url(), 0, &["nodes", "ls"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no new trees: disk_full: "), "{text}");
}
