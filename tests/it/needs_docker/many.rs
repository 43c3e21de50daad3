//! Waiting callers hold no slot: deep nesting and many callers finish on few slots.

use aod_tests::docker_cluster::{DockerCluster, RESOURCES};
use futures::future::join_all;
use serde_json::{Value, json};

/// Calls itself `depth` levels down and counts the levels.
const NEST: &str = r#"
depth="$(sed 's/.*"depth":\([0-9]*\).*/\1/' /io/input.json)"
caller="$(sed 's/.*"caller":\([0-9]*\).*/\1/' /io/input.json)"
levels=0
if [ "$depth" -gt 0 ]; then
    cp /io/input/nest.sh $OUTGOING/nest.sh
    below="$(call probe "{\"script\": \"nest.sh\", \"depth\": $((depth - 1)), \"caller\": $caller}")"
    levels="$(printf %s "$below" | sed -n 's/.*"pages":\([0-9]*\).*/\1/p')"
fi
printf '{"pages": %d}' "$((levels + 1))" | answer
"#;

async fn nest(cluster: &DockerCluster, caller: usize, depth: usize) -> Value {
    let arguments = json!({"script": "nest.sh", "depth": depth, "caller": caller});
    let request = json!({"capsule": "probe", "arguments": arguments});
    let (status, view) = cluster
        .post_run(&request, &[("nest.sh", NEST.as_bytes())])
        .await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("a run has an id");
    cluster.client.result(run).await
}

fn print_peak(what: &str, cluster: &DockerCluster) -> usize {
    let node = &cluster.cluster.nodes[0];
    let (containers, memory) = (node.containers_peak(), node.memory_peak_bytes());
    eprintln!(
        "{what}: at most {containers} containers alive, {} MiB reserved",
        memory >> 20
    );
    assert_eq!(memory, containers as u64 * RESOURCES.memory_bytes);
    containers
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_nested_eight_deep_finish_on_one_slot_in_docker() {
    let cluster = DockerCluster::start_with_slots(&["probe"], 1).await;
    let result = nest(&cluster, 0, 8).await;
    assert_eq!(result["output"]["pages"], 9, "{result}");
    assert_eq!(print_peak("8 deep on one slot", &cluster), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_callers_finish_on_two_slots() {
    let cluster = DockerCluster::start_with_slots(&["probe"], 2).await;
    let results = join_all((0..100).map(|caller| nest(&cluster, caller, 1))).await;
    for result in results {
        assert_eq!(result["output"]["pages"], 2, "{result}");
    }
    let peak = print_peak("100 callers on two slots", &cluster);
    // Roots stop at eight; their callees may still start, two at a time, and an ended container counts until the
    // engine reports its removal.
    assert!(peak <= 8 + 2 + 2, "{peak}");
}
