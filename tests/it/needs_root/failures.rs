//! Any program between a caller and its worker may die: the caller gets the same answer, once.

use std::time::Duration;

use aod_tests::hosts::eventually;
use aod_tests::programs::{Plan, Program, ProgramCluster, Store};
use serde_json::Value;

use super::chain;

/// Duration of a worker's first attempt that must die, in seconds: longer than any wait of these tests.
const FOR_EVER_SECONDS: u32 = 170;

/// Maximum time until containers are removed: the lease, and the node's check of its engine.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);

/// The number of the node on which the callee of `run` computes.
async fn worker_node(cluster: &ProgramCluster, run: &str) -> usize {
    let person = cluster.person(0);
    let callee = person.callee(run, "running").await;
    cluster.node_on(&person.host_of(&callee["node"]).await)
}

/// Waits until no capsule runs on the host of the node with this number.
fn wait_until_idle(cluster: &ProgramCluster, node: usize) {
    let host = cluster.nodes[node].host();
    eventually("the end of running containers", REMOVAL_PATIENCE, || {
        host.docker(&["ps", "--quiet"]).is_empty().then_some(())
    });
}

/// Waits until no host has a container, not even an ended one.
fn wait_until_clean(cluster: &ProgramCluster) {
    for node in &cluster.nodes {
        eventually("the end of all containers", REMOVAL_PATIENCE, || {
            node.host().containers().is_empty().then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_is_replaced_by_another() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    cluster.nodes[first].kill();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert_eq!(callee["attempts"], 2, "{callee}");
    let second = cluster.node_on(&cluster.person(0).host_of(&callee["node"]).await);
    assert_ne!(second, first, "another node has taken over");
    // The gate ends by itself, with all processes of its container.
    wait_until_idle(&cluster, first);
    cluster.nodes[first].restart();
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_engine_fails_no_run() {
    let cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    let host = cluster.nodes[first].host();
    host.kill_engine();
    // It asks the running containers to end.
    host.start_engine();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert!(callee["attempts"].as_u64() >= Some(2), "{callee}");
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnected_host_leaves_one_result_and_no_container() {
    let cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    cluster.nodes[first].host().cut();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert_eq!(callee["attempts"], 2, "{callee}");
    wait_until_idle(&cluster, first);
    cluster.nodes[first].host().join();
    wait_until_clean(&cluster);
    // The node is present again, and has added no event.
    let host = cluster.nodes[first].host().name();
    let person = cluster.person(0);
    person
        .eventually("the node that was cut off", async || {
            let nodes = person.get("/v1/nodes").await;
            nodes["items"]
                .as_array()?
                .iter()
                .any(|node| node["host"] == host.as_str())
                .then_some(())
        })
        .await;
    chain::check(&person, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_gateway_is_replaced_by_another() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 10).await;
    worker_node(&cluster, &run).await;
    // The caller's node can only wait at the first gateway.
    cluster.add_gateway().await;
    let [first, _] = &mut cluster.gateways[..] else {
        panic!("two gateways")
    };
    first.kill();
    let callee = chain::check(&cluster.person(1), &run).await;
    assert_eq!(
        callee["attempts"], 1,
        "the worker has not noticed: {callee}"
    );
    let shown = cluster
        .aod(1)
        .args(["runs", "show", &run])
        .output()
        .expect("aod starts");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("a run as JSON");
    assert_eq!(shown["state"], "succeeded", "{shown}");
    wait_until_clean(&cluster);
}

/// The gateway at which a caller waits falls silent, while another one is present.
async fn is_replaced_when_silent(silence: impl Fn(&Program), end: impl Fn(&Program)) {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 3).await;
    worker_node(&cluster, &run).await;
    cluster.add_gateway().await;
    silence(&cluster.gateways[0]);
    let callee = chain::check(&cluster.person(1), &run).await;
    assert_eq!(
        callee["attempts"], 1,
        "the worker has not noticed: {callee}"
    );
    end(&cluster.gateways[0]);
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_gateway_is_replaced_when_its_presence_expires() {
    is_replaced_when_silent(Program::pause, Program::resume).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_gateway_is_replaced_when_its_presence_expires() {
    is_replaced_when_silent(
        |gateway| gateway.host().cut(),
        |gateway| gateway.host().join(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_broker_loses_no_event() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 20).await;
    worker_node(&cluster, &run).await;
    cluster.brokers[0].kill();
    // The outage under test: as long as a lease.
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.brokers[0].restart();
    chain::check(&cluster.person(0), &run).await;
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_joins_its_earlier_worker_after_node_restart() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 15).await;
    let worker = worker_node(&cluster, &run).await;
    let caller = 1 - worker;
    cluster.nodes[caller].restart();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert_eq!(
        callee["attempts"], 1,
        "the worker was not run again: {callee}"
    );
    let caller = cluster.person(0).get(&format!("/v1/runs/{run}")).await;
    assert_eq!(caller["attempts"], 2, "{caller}");
    wait_until_clean(&cluster);
}

/// Whether the node with this number reports that it takes work.
async fn takes_work(cluster: &ProgramCluster, node: usize) -> bool {
    let host = cluster.nodes[node].host().name();
    let nodes = cluster.person(0).get("/v1/nodes").await;
    let items = nodes["items"].as_array().expect("nodes").iter();
    let mut found = items.filter(|item| item["host"] == host.as_str());
    found.any(|item| item["not_ready"].is_null())
}

async fn wait_until_it_takes_work(cluster: &ProgramCluster, node: usize, expected: bool) {
    let person = cluster.person(0);
    let what = format!("a node that takes work: {expected}");
    person
        .eventually(&what, async || {
            (takes_work(cluster, node).await == expected).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_full_disk_takes_no_work_and_fails_no_run() {
    let cluster = ProgramCluster::start_as(&Plan {
        store: Store::JetStream,
        brokers: 1,
        gateways: 1,
        pools: &["one", "two", "two"],
        disk_bytes: Some(512 << 20),
    })
    .await;
    chain::register(&cluster).await;
    let person = cluster.person(0);
    let run = chain::start(&person, 5).await;
    let first = worker_node(&cluster, &run).await;
    let disk = cluster.nodes[first].host().disk().expect("of its own");
    disk.fill();
    let callee = chain::check(&person, &run).await;
    assert_eq!(callee["attempts"], 2, "it could not write: {callee}");
    wait_until_it_takes_work(&cluster, first, false).await;
    let run = chain::start(&person, 0).await;
    let callee = chain::check(&person, &run).await;
    assert_eq!(
        callee["attempts"], 1,
        "it went to a node with free capacity: {callee}"
    );
    disk.empty();
    wait_until_it_takes_work(&cluster, first, true).await;
    wait_until_clean(&cluster);
}

/// A field of a node as gateways return it.
async fn node_field(cluster: &ProgramCluster, node: usize, field: &str) -> Value {
    let nodes = cluster.person(0).get("/v1/nodes").await;
    let items = nodes["items"].as_array().expect("nodes").iter();
    let mut found = items.filter(|item| {
        item["host"]
            .as_str()
            .is_some_and(|host| cluster.node_on(host) == node)
    });
    found.next().map_or(Value::Null, |item| item[field].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_nearly_full_disk_finishes_running_trees() {
    /// More than the limit for a full disk, 64 MiB, and less than the reserve for running trees, 128 MiB.
    const LEFT_BYTES: u64 = 96 << 20;
    let cluster = ProgramCluster::start_as(&Plan {
        store: Store::JetStream,
        brokers: 1,
        gateways: 1,
        pools: &["one", "two"],
        disk_bytes: Some(512 << 20),
    })
    .await;
    chain::register(&cluster).await;
    let person = cluster.person(0);
    // Both capsules have already run there, so that little is written to the disk.
    let run = chain::start(&person, 0).await;
    chain::check(&person, &run).await;
    let run = chain::start(&person, 15).await;
    worker_node(&cluster, &run).await;
    for node in &cluster.nodes {
        node.host().disk().expect("of its own").leave(LEFT_BYTES);
    }
    for node in 0..2 {
        person
            .eventually("a node that takes no new trees", async || {
                let told = node_field(&cluster, node, "no_roots").await;
                told.as_str()?.starts_with("disk_full: ").then_some(())
            })
            .await;
        assert_eq!(node_field(&cluster, node, "not_ready").await, Value::Null);
    }
    // A new tree waits with a reason; the running one ends, on the same disks.
    let waiting = chain::start(&person, 0).await;
    person
        .eventually("a reason to wait", async || {
            let view = person.get(&format!("/v1/runs/{waiting}")).await;
            let reason = view["waits_for"].as_str()?.to_owned();
            reason
                .contains(" takes no new trees: disk_full: ")
                .then_some(())
        })
        .await;
    let callee = chain::check(&person, &run).await;
    assert_eq!(callee["attempts"], 1, "{callee}");
    let view = person.get(&format!("/v1/runs/{waiting}")).await;
    assert_eq!(view["state"], "queued", "{view}");
    for node in &cluster.nodes {
        node.host().disk().expect("of its own").empty();
    }
    chain::check(&person, &waiting).await;
    wait_until_clean(&cluster);
}
