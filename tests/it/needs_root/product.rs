//! The product's own capsules on two hosts: `survey` reads a table on one, `chart` and `report` create charts and
//! document on the other.

use std::collections::BTreeSet;

use aod_domain::digest::Digest;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::{Person, ProgramCluster, Store};
use serde_json::{Value, json};

const TABLE: &[u8] = include_bytes!("../../../capsules/survey/example/penguins.csv");

/// Minimum charts: one for each chapter of the penguins, and those of the report.
const CHARTS_MIN: usize = 8;

async fn surveys_over_two_hosts(store: Store) {
    let cluster = ProgramCluster::start(store, 2, &["one", "two"]).await;
    let [here, there] = [0, 1].map(|gateway| cluster.person(gateway));
    for (name, node, pool) in [
        ("survey", 0, "one"),
        ("chart", 1, "two"),
        ("report", 1, "two"),
    ] {
        let host = cluster.nodes[node].host();
        let capsule = tokio::task::block_in_place(|| CapsuleDirectory::of_product(name, host));
        here.register(&capsule, pool).await;
    }
    let run = here
        .start(
            "survey",
            json!({"table": "penguins.csv"}),
            ("penguins.csv", TABLE.to_vec()),
        )
        .await;
    let result = here.result(&run).await;
    assert_eq!(result["success"], true, "{result}");
    let tree = here.get(&format!("/v1/runs/{run}/tree")).await;
    assert_eq!(
        node_index(&cluster, &here, &tree).await,
        0,
        "survey runs on the first host"
    );
    let given = BTreeSet::from([Digest::of(TABLE).to_string()]);
    let kept: BTreeSet<String> = files_of(&result["files"])
        .into_iter()
        .map(|(_, digest)| digest)
        .collect();
    let charts = compare(&cluster, [&here, &there], &tree, &given, &kept).await;
    assert!(charts >= CHARTS_MIN, "{charts} charts in {tree}");
    let pdf = here
        .bytes(&format!("/v1/runs/{run}/files/report.pdf"))
        .await;
    assert!(pdf.starts_with(b"%PDF-"), "the report is no PDF");
}

/// Compares the files that a run passed to its callees and received from them with those on the other host,
/// recursively. Returns the number of charts.
async fn compare(
    cluster: &ProgramCluster,
    people: [&Person; 2],
    caller: &Value,
    given: &BTreeSet<String>,
    kept: &BTreeSet<String>,
) -> usize {
    let mut charts = 0;
    let mut passed_on = given.clone();
    let callees = caller["children"].as_array().expect("callees");
    for callee in callees {
        let id = callee["id"].as_str().expect("an id");
        assert_eq!(
            node_index(cluster, people[0], callee).await,
            1,
            "{callee} runs on the second host"
        );
        assert_eq!(
            people[1].count_events(id, "ended").await,
            1,
            "results of {id}"
        );
        let made = files_of(&people[1].get(&format!("/v1/runs/{id}/result")).await["files"]);
        for (name, digest) in &made {
            let bytes = people[1]
                .bytes(&format!("/v1/runs/{id}/files/{name}"))
                .await;
            assert_eq!(Digest::of(&bytes).to_string(), *digest, "{name} of {id}");
            assert!(
                kept.contains(digest),
                "{name} of {id} did not reach its caller"
            );
            passed_on.insert(digest.clone());
        }
        charts += usize::from(callee["capsule"] == "chart");
    }
    for callee in callees {
        let id = callee["id"].as_str().expect("an id");
        let inputs = inputs_of(people[1], id).await;
        assert!(!inputs.is_empty(), "{id} was given no file");
        for (name, digest) in &inputs {
            let bytes = people[1]
                .bytes(&format!("/v1/runs/{id}/inputs/{name}"))
                .await;
            assert_eq!(
                Digest::of(&bytes).to_string(),
                *digest,
                "{name} given to {id}"
            );
        }
        let given: BTreeSet<String> = inputs.into_iter().map(|(_, digest)| digest).collect();
        assert!(
            !given.is_disjoint(&passed_on),
            "{id} was given what its caller never had: {given:?}"
        );
    }
    charts
}

/// The node of a run in a tree.
async fn node_index(cluster: &ProgramCluster, person: &Person, run: &Value) -> usize {
    cluster.node_on(&person.host_of(&run["node"]).await)
}

/// The input files of a run, by name.
async fn inputs_of(person: &Person, run: &str) -> Vec<(String, String)> {
    let events = person.get(&format!("/v1/runs/{run}/events")).await;
    files_of(&events["items"][0]["data"]["files"])
}

fn files_of(files: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let files = files.as_array().into_iter().flatten();
    files
        .map(|file| (text(&file["name"]), text(&file["digest"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn survey_and_chart_work_through_the_broker() {
    surveys_over_two_hosts(Store::JetStream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn survey_and_chart_work_through_s3() {
    surveys_over_two_hosts(Store::S3).await;
}
