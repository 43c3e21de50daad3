//! Failed runs that are retried because the request allows it.

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use serde_json::{Value, json};

/// Fails after its call was answered, except in the third attempt; its callee prints the time.
const FAILS_TWICE: &str = r#"
cd $OUTGOING
cat >once.sh <<'END'
date +%s%N >/io/output/when.txt; echo '{"report": "when.txt"}' | answer
END
call probe '{"script": "once.sh"}' | grep -q '"success": *true' || exit 4
echo "{\"notes\": [\"$AOD_ATTEMPT\"]}" | answer
echo "attempt $AOD_ATTEMPT"
[ "$AOD_ATTEMPT" -ge 3 ]
"#;

/// Computes forever, except in the second attempt.
const SLOW_ONCE: &str = r"
[ $AOD_ATTEMPT -ge 2 ] || while :; do :; done
echo '{}' | answer
";

async fn events(cluster: &DockerCluster, run: &str) -> Vec<Value> {
    let path = format!("/v1/runs/{run}/events");
    let (status, page) = cluster.client.get(&path).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().cloned().unwrap_or_default()
}

fn of_type<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    let kind = format!("dev.aod.run.{kind}.v1");
    events
        .iter()
        .filter(|event| event["type"] == *kind)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_is_retried_without_running_its_callee_again() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let options = json!({"retries": {"capsule": 2}});
    let run = cluster.start_script(FAILS_TWICE, options).await;
    let result = cluster.client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    let (_, view) = cluster.client.get(&format!("/v1/runs/{run}")).await;
    assert_eq!(view["attempts"], 3, "{view}");
    assert_eq!(view["failed"], json!({"capsule": 2, "time": 0}), "{view}");
    let (_, tree) = cluster.client.get(&format!("/v1/runs/{run}/tree")).await;
    let callees = tree["children"].as_array().expect("the callees of a run");
    assert_eq!(callees.len(), 1, "{tree}");

    let events = events(&cluster, &run).await;
    let failed = of_type(&events, "attempt_failed");
    assert_eq!(failed.len(), 2, "{events:?}");
    for event in failed {
        assert_eq!(event["data"]["error"]["code"], "capsule_exit", "{event}");
        assert!(event["data"]["logs"]["digest"].is_string(), "{event}");
        assert!(event["data"]["pause_ms"].as_u64() >= Some(500), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timed_out_run_is_retried_and_last_failure_is_reported() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let options = json!({"timeout_seconds": 2, "retries": {"time": 1}});
    let slow = cluster.start_script(SLOW_ONCE, options).await;
    let options = json!({"retries": {"capsule": 1, "time": 5}});
    let broken = cluster.start_script("exit 3", options).await;
    let result = cluster.client.result(&slow).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    let result = cluster.client.result(&broken).await;
    assert_eq!(result["state"], "failed", "{result}");
    assert_eq!(result["error"]["code"], "capsule_exit", "{result}");
    let (_, view) = cluster.client.get(&format!("/v1/runs/{broken}")).await;
    assert_eq!(
        (&view["attempts"], &view["attempts_lost"]),
        (&json!(2), &json!(0)),
        "{view}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn run_waiting_for_its_retry_is_cancelled_immediately() {
    let cluster = DockerCluster::start(&["probe"]).await;
    let options = json!({"retries": {"capsule": 20}});
    let run = cluster.start_script("exit 3", options).await;
    let path = format!("/v1/runs/{run}");
    // From the fifth failure on it pauses for eight seconds and more.
    eventually("a long pause", async || {
        let (_, view) = cluster.client.get(&path).await;
        view["failed"]["capsule"].as_u64() >= Some(4) && view["state"] == "queued"
    })
    .await;
    cluster.cancel(&run).await;
    let result = cluster.client.result(&run).await;
    assert_eq!(result["state"], "cancelled", "{result}");
}
