//! Limits that end real containers, and dead-lettered runs.

use std::fs;

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use serde_json::{Value, json};

/// Prints a line, then nothing.
const SILENT: &str = "echo begun; while :; do sleep 1; done";

/// Sends heartbeats for longer than the limit, by output and then by requests.
const LIVELY: &str = r"
for i in 1 2 3 4 5; do echo $i; sleep 1; done
for i in 1 2 3 4 5; do call none '{}' >/dev/null || true; sleep 1; done
echo '{}' | answer
";

/// Nests more directories than a stack, a table of descriptors or a path can hold.
const DEEP: &str = r#"
cd /workspace
levels="$(yes d | head -n 1000 | tr '\n' '/')"
for _ in $(seq 12); do
    mkdir -p "$levels" && cd -P "$levels" || exit 9
done
cd /
echo '{"pages": 1}' | answer
"#;

#[tokio::test(flavor = "multi_thread")]
async fn capsule_that_nests_12_000_directories_succeeds_and_its_node_continues() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let result = cluster.run_script(DEEP).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    let data = cluster.cluster.data("node-0");
    eventually("no directory of an ended run", async || {
        let runs = fs::read_dir(data.join("runs")).expect("directories of runs");
        runs.count() == 0
    })
    .await;
    assert!(!data.join("leftovers").exists());
    let next = cluster.run_script("echo '{\"pages\": 1}' | answer").await;
    assert_eq!(next["state"], "succeeded", "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_capsule_is_ended_and_one_with_heartbeats_continues() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let options = json!({"limits": {"heartbeat_seconds": 3}});
    let lively = cluster.start_script(LIVELY, options.clone()).await;
    let silent = cluster.start_script(SILENT, options).await;
    let result = cluster.client.result(&silent).await;
    assert_eq!(result["state"], "timed_out", "{result}");
    assert_eq!(result["error"]["code"], "heartbeat_missed", "{result}");
    let message = "the capsule sent no heartbeat for 3 s";
    assert_eq!(result["error"]["message"], message, "{result}");
    let result = cluster.client.result(&lively).await;
    assert_eq!(result["state"], "succeeded", "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_loses_every_attempt_is_dead_lettered_and_requeued() {
    let cluster = DockerCluster::start(&["probe"]).await;
    // No node may take the run before its file is lost.
    let (_, nodes) = cluster.client.get("/v1/nodes").await;
    let node = format!(
        "/v1/nodes/{}",
        nodes["items"][0]["id"].as_str().expect("a node")
    );
    cluster.client.post(&format!("{node}/drain")).await;
    eventually("a draining node", async || {
        let (_, nodes) = cluster.client.get("/v1/nodes").await;
        nodes["items"][0]["draining"] == true
    })
    .await;
    let script = "echo '{\"pages\": 7}' | answer";
    let run = cluster.start_script(script, json!({})).await;
    let (_, view) = cluster.client.get(&format!("/v1/runs/{run}")).await;
    let digest = view["inputs"][0]["digest"].as_str().expect("a digest");
    let store = cluster.cluster.data("artifacts").join("sha256");
    let stored = store.join(&digest[..2]).join(digest);
    let lost = cluster.cluster.data("lost").join(digest);
    fs::rename(&stored, &lost).expect("the store loses the file");
    cluster.client.post(&format!("{node}/resume")).await;

    let result = cluster.client.result(&run).await;
    assert_eq!(result["error"]["code"], "dead_letter", "{result}");
    let last = &result["error"]["detail"]["last_error"]["code"];
    assert_eq!(last, "input_unavailable", "{result}");
    let path = format!("/v1/deadletters/{run}");
    let (_, letter) = cluster.client.get(&path).await;
    let attempts = letter["attempts"].as_array().expect("attempts");
    let codes: Vec<&Value> = attempts
        .iter()
        .map(|attempt| &attempt["error"]["code"])
        .collect();
    assert_eq!(
        codes[..5],
        ["input_unavailable"; 5]
            .map(Value::from)
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(codes[5], "dead_letter", "{letter}");

    // The operator repairs the store.
    fs::rename(&lost, &stored).expect("the file is there again");
    cluster.client.post(&format!("{path}/requeue")).await;
    let (_, letter) = cluster.client.get(&path).await;
    let requeued = letter["requeued_as"].as_str().expect("another run");
    let result = cluster.client.result(requeued).await;
    assert_eq!(result["output"], json!({"pages": 7}), "{result}");
    let (_, view) = cluster.client.get(&format!("/v1/runs/{requeued}")).await;
    assert_eq!(view["requeued_from"], json!(run), "{view}");
}
