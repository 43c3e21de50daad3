//! A capsule on one host that hands its file to a capsule on another, and the expected files of both.

use aod_domain::digest::Digest;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::{Person, ProgramCluster, Store};
use serde_json::{Value, json};

/// The worker's output before the bytes of its input.
pub(super) const FIRST_LINE: &[u8] = b"made by the worker\n";

/// Name of the caller's input file.
pub(super) const TABLE: &str = "table.csv";

/// A cluster in which `caller` runs on the first node and `worker` on the others.
pub(super) async fn cluster(store: Store, gateways: usize, workers: usize) -> ProgramCluster {
    let pools: Vec<_> = std::iter::once("one")
        .chain(std::iter::repeat_n("two", workers))
        .collect();
    let cluster = ProgramCluster::start(store, gateways, &pools).await;
    register(&cluster).await;
    cluster
}

/// Builds `caller` on the first node and `worker` on another one.
pub(super) async fn register(cluster: &ProgramCluster) {
    let person = cluster.person(0);
    person
        .register(&CapsuleDirectory::new("caller"), "one")
        .await;
    person
        .register(&CapsuleDirectory::new("worker"), "two")
        .await;
}

/// A small table.
pub(super) fn table() -> Vec<u8> {
    (0..1_000)
        .flat_map(|row| format!("{row},{}\n", row * row).into_bytes())
        .collect()
}

/// Starts the caller on [`table`]; the first attempt of its worker takes this long.
pub(super) async fn start(person: &Person, seconds: u32) -> String {
    person
        .start(
            "caller",
            json!({"table": TABLE, "seconds": seconds}),
            (TABLE, table()),
        )
        .await
}

/// Checks that the caller succeeded with the worker's result for [`table`], that caller and worker have one result
/// each, and that all files are equal on both sides. Returns the worker as shown in trees.
pub(super) async fn check(person: &Person, run: &str) -> Value {
    let result = person.result(run).await;
    let given = table();
    let made = [FIRST_LINE, &given].concat();
    let expected = json!({
        "returned": "made.bin",
        "returned_sha256": Digest::of(&made).to_string(),
        "answer": {"received_sha256": Digest::of(&given).to_string(), "made": "made.bin"},
    });
    assert_eq!(result["output"], expected, "{result}");
    let callee = person.callee(run, "succeeded").await;
    let id = callee["id"].as_str().expect("an id");
    for (path, bytes) in [
        (format!("/v1/runs/{run}/inputs/{TABLE}"), &given),
        (format!("/v1/runs/{id}/inputs/{TABLE}"), &given),
        (format!("/v1/runs/{id}/files/made.bin"), &made),
        (format!("/v1/runs/{run}/files/made.bin"), &made),
    ] {
        assert!(
            person.bytes(&path).await == *bytes,
            "{path} has other bytes"
        );
    }
    for run in [run, id] {
        assert_eq!(
            person.count_events(run, "ended").await,
            1,
            "results of {run}"
        );
    }
    let tree = person.get(&format!("/v1/runs/{run}/tree")).await;
    assert_eq!(tree["children"].as_array().map(Vec::len), Some(1), "{tree}");
    callee
}
