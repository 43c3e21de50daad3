//! Images of capsules on two hosts, each with its own Docker.

use std::collections::BTreeSet;

use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::{Person, ProgramCluster, Store};
use futures::future::join_all;
use serde_json::json;

/// Directories, each with its own image.
const IMAGES: usize = 10;

/// Concurrent clients that build and run: five for each image.
const STARTERS: usize = 50;

/// A small table.
const TABLE: &[u8] = b"1,2\n";

/// A capsule like `worker` under another name.
fn directory(number: usize) -> CapsuleDirectory {
    let capsule = CapsuleDirectory::new("worker");
    let agent = format!("name: worker-{number}\nresources: {{memory: 128m}}\n");
    std::fs::write(capsule.path().join("agent.yaml"), agent).expect("a test directory");
    capsule
}

/// Builds the capsule and runs it; returns whether that succeeded.
async fn build_and_run(person: &Person, capsule: &CapsuleDirectory, number: usize) -> bool {
    person.register(capsule, "any").await;
    let file = ("table.csv", TABLE.to_vec());
    let arguments = json!({"table": "table.csv", "seconds": 0});
    let run = person
        .start(&format!("worker-{number}"), arguments, file)
        .await;
    person.result(&run).await["success"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_builds_of_ten_images_build_each_image_once() {
    let cluster = ProgramCluster::start(Store::JetStream, 2, &["any", "any"]).await;
    let people = [0, 1].map(|gateway| cluster.person(gateway));
    let capsules: Vec<_> = tokio::task::block_in_place(|| (0..IMAGES).map(directory).collect());
    let starters = (0..STARTERS).map(|starter| {
        let number = starter % IMAGES;
        build_and_run(&people[starter % 2], &capsules[number], number)
    });
    let succeeded = join_all(starters).await;
    assert_eq!(succeeded, vec![true; STARTERS]);

    let mut nodes = BTreeSet::new();
    for number in 0..IMAGES {
        let runs = people[0]
            .get(&format!("/v1/runs?capsule=worker-{number}&limit=100"))
            .await;
        let items = runs["items"].as_array().expect("a list");
        let (builds, runs): (Vec<_>, Vec<_>) =
            items.iter().partition(|item| item["kind"] == "build");
        assert_eq!(builds.len(), 1, "{builds:?}");
        assert_eq!(builds[0]["attempts"], 1, "{builds:?}");
        assert_eq!(runs.len(), STARTERS / IMAGES, "{runs:?}");
        nodes.extend(runs.iter().map(|run| run["node"].to_string()));
    }
    assert_eq!(nodes.len(), 2, "both hosts have worked");
}
