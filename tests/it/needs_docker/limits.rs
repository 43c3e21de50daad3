//! Limits that end real containers, and runs that are given up.

use std::fs;

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use serde_json::{Value, json};

/// Says something, then nothing any more.
const SILENT: &str = "echo begun; while :; do sleep 1; done";

/// Shows life for longer than it may be silent, by its output and then by requests.
const LIVELY: &str = r"
for i in 1 2 3 4 5; do echo $i; sleep 1; done
for i in 1 2 3 4 5; do call none '{}' >/dev/null || true; sleep 1; done
echo '{}' | answer
";

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_capsule_is_ended_and_one_that_shows_life_is_not() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let options = json!({"limits": {"heartbeat_seconds": 3}});
    let lively = cluster.start_script(LIVELY, options.clone()).await;
    let silent = cluster.start_script(SILENT, options).await;
    let result = cluster.client.result(&silent).await;
    assert_eq!(result["state"], "timed_out", "{result}");
    assert_eq!(result["error"]["code"], "heartbeat_missed", "{result}");
    let message = "the capsule showed no sign of life for 3 s";
    assert_eq!(result["error"]["message"], message, "{result}");
    let result = cluster.client.result(&lively).await;
    assert_eq!(result["state"], "succeeded", "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_loses_every_attempt_is_a_dead_letter_and_is_requeued() {
    let cluster = DockerCluster::start(&["probe"]).await;
    // Meanwhile nobody takes the run whose file is to be lost.
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

    // The operator mends the store.
    fs::rename(&lost, &stored).expect("the file is there again");
    cluster.client.post(&format!("{path}/requeue")).await;
    let (_, letter) = cluster.client.get(&path).await;
    let anew = letter["requeued_as"].as_str().expect("another run");
    let result = cluster.client.result(anew).await;
    assert_eq!(result["output"], json!({"pages": 7}), "{result}");
    let (_, view) = cluster.client.get(&format!("/v1/runs/{anew}")).await;
    assert_eq!(view["requeued_from"], json!(run), "{view}");
}
