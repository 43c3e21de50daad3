//! All regular work of the parts, each with its own rights: the counterpart to the rejections.

use aod_domain::admission::Capacity;
use aod_domain::placement::Equipment;
use aod_tests::client::eventually;
use aod_tests::cluster::{Cluster, Ways, any_schema, limits};
use aod_tests::programs::ask;
use aod_tests::simulated::runtime;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{by_hand, callee, caller, server};

/// A cluster whose parts have their own rights: two gateways that delete unnamed artifacts, and a node.
async fn limited() -> Cluster {
    let ways = Ways {
        limited: true,
        ..Ways::default()
    };
    let mut cluster = Cluster::start_on(server(limits()), ways, 0).await;
    cluster.unnamed_for = SignedDuration::ZERO;
    for _ in 0..2 {
        cluster.add_gateway().await;
    }
    add_node(&mut cluster, &["any", "gpu"]).await;
    for name in ["caller", "callee"] {
        cluster.register(name, &any_schema()).await;
    }
    cluster
}

async fn add_node(cluster: &mut Cluster, pools: &[&str]) {
    let capacity = Capacity {
        slots: 2,
        containers_max: 16,
        memory_bytes: 4 << 30,
    };
    let capsules = [("caller", caller()), ("callee", callee())];
    let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
    cluster.add_node(pools, capacity, runtime(capsules)).await;
}

fn assert_nothing_was_refused(cluster: &Cluster) {
    let log = cluster.nats.log();
    let violations: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Violation"))
        .collect();
    assert_eq!(violations, Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_each_part_suffice_for_runs() {
    let cluster = limited().await;
    let client = cluster.client(0);
    // Arguments and answers that are artifacts, in one message of the store and in several.
    for size in [10, 20_000, 60_000] {
        let arguments = json!({"texts": vec!["x".repeat(size); 3]});
        let run = client.start("caller", arguments.clone()).await;
        let result = client.result(&run).await;
        assert_eq!(result["output"], arguments, "{size}");
        let (status, logs) = client.get(&format!("/v1/runs/{run}/logs")).await;
        assert_eq!(status, 200, "{logs}");
        eventually("a seal", async || client.seals(&run).await == 1).await;
    }
    // An uploaded file that a run names.
    let url = format!("{}/v1/files", cluster.gateways[0].url());
    let sent = reqwest::Client::new().post(url).body("words").send().await;
    let stored: Value = sent.expect("an answer").json().await.expect("JSON");
    let files = json!({"files": [{"name": "words", "file": stored["file"]}]});
    let labelled = json!({"pool": "gpu"});
    for with in [files, labelled] {
        let run = client.start_with("callee", json!({}), with.clone()).await;
        let result = client.result(&run).await;
        assert_eq!(result["state"], "succeeded", "{with} {result}");
    }

    let stuck = client.start("caller", json!({"forever": true})).await;
    let path = format!("/v1/runs/{stuck}");
    eventually("it runs", async || {
        client.get(&path).await.1["state"] == "running"
    })
    .await;
    client.post(&format!("{path}/cancel")).await;
    assert_eq!(client.result(&stuck).await["state"], "cancelled");
    assert_nothing_was_refused(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_each_part_suffice_for_operators() {
    let cluster = limited().await;
    let client = cluster.client(0);
    let url = cluster.gateways[1].url();
    ask(url, 0, &["rules", "set", "all", "--concurrency", "1"]).await;
    eventually("the rule", async || {
        client.get("/v1/rules").await.1["items"][0]["name"] == "all"
    })
    .await;
    let text = "x".repeat(20_000);
    let admitted = client.start("callee", json!({"text": text})).await;
    assert_eq!(client.result(&admitted).await["state"], "succeeded");
    ask(url, 0, &["nodes", "drain", "node-0"]).await;
    ask(url, 0, &["nodes", "drain", "node-0", "--resume"]).await;
    ask(url, 0, &["events", "query", "--type", "ended"]).await;
    let token = "tokens create ci --tenant acme --role run";
    ask(url, 0, &token.split(' ').collect::<Vec<_>>()).await;
    ask(url, 0, &["retention", "set", "all", "--files", "0s"]).await;
    let deleted = ask(url, 0, &["--format", "json", "gc"]).await;
    let deleted: Value = serde_json::from_slice(&deleted.stdout).expect("JSON");
    assert_eq!(deleted["failed"], 0, "{deleted}");
    let kinds = deleted["deleted"].as_array().expect("a list");
    assert!(
        kinds.iter().any(|count| count["kind"] == "files"),
        "{deleted}"
    );
    assert_nothing_was_refused(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_queue_of_requirements_is_recreated() {
    let mut cluster = limited().await;
    let client = cluster.client(0);
    // A suitable node joins later; by then the broker has lost the queue.
    let required = json!({"require": ["zone=eu"]});
    let waiting = client.start_with("callee", json!({}), required).await;
    eventually("the lists have it", async || {
        client.get(&format!("/v1/runs/{waiting}")).await.1["state"] == "queued"
    })
    .await;
    let lost = queues_of_requirements(&cluster);
    assert_eq!(lost.len(), 2);
    let mut admin = by_hand(&cluster.nats, "admin");
    for name in lost {
        let removed = admin.request(&format!("$JS.API.CONSUMER.DELETE.WORK.{name}"), b"");
        assert_eq!(removed.expect("an answer").json()["success"], true);
    }
    eventually("its queue once more", async || {
        queues_of_requirements(&cluster).len() == 2
    })
    .await;
    let attribute = Equipment::read_attribute("zone=eu").expect("an attribute");
    cluster.equipment.attributes.extend([attribute]);
    add_node(&mut cluster, &["any"]).await;
    assert_eq!(client.result(&waiting).await["state"], "succeeded");
    assert_nothing_was_refused(&cluster);
}

fn queues_of_requirements(cluster: &Cluster) -> Vec<String> {
    let mut admin = by_hand(&cluster.nats, "admin");
    let answer = admin.request("$JS.API.CONSUMER.NAMES.WORK", b"");
    let names = answer.expect("an answer").json()["consumers"].clone();
    let mut names: Vec<String> = serde_json::from_value(names).expect("names");
    names.retain(|name| name.starts_with("needs-"));
    names
}
