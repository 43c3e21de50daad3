//! Whatever dies between a caller and its worker, the caller has the same answer, once.

use std::time::{Duration, Instant};

use aod_tests::hosts::eventually;
use aod_tests::programs::{Plan, Program, ProgramCluster, Store};
use serde_json::Value;

use super::chain;

/// How long the first attempt of a worker takes that a test has to die, in seconds: longer than
/// anything here waits for.
const FOR_EVER_SECONDS: u32 = 170;

/// How long containers may take to be gone: the lease, and the node's look at its engine.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);

/// How long a chain of three seconds may take whose gateway falls silent: the presence of that (5 s), a
/// look at it, and two containers on a loaded machine. The silence itself would end after 35 s.
const SILENT_GATEWAY_MAX: Duration = Duration::from_secs(20);

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

/// Waits until there is no container on any host, not even one that has ended.
fn wait_until_clean(cluster: &ProgramCluster) {
    for node in &cluster.nodes {
        eventually("the end of all containers", REMOVAL_PATIENCE, || {
            node.host().containers().is_empty().then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_is_replaced_by_another() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    cluster.nodes[first].kill();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert_eq!(callee["attempts"], 2, "{callee}");
    let second = cluster.node_on(&cluster.person(0).host_of(&callee["node"]).await);
    assert_ne!(second, first, "another node has taken over");
    // The gate ends by itself, with everything in its container.
    wait_until_idle(&cluster, first);
    cluster.nodes[first].restart();
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_and_comes_back_fails_nobody() {
    let cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    let host = cluster.nodes[first].host();
    host.kill_engine();
    // It asks the containers to end that it finds running.
    host.start_engine();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert!(callee["attempts"].as_u64() >= Some(2), "{callee}");
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cut_off_and_comes_back_leaves_one_result_and_no_container() {
    let cluster = chain::cluster(Store::JetStream, 1, 2).await;
    let run = chain::start(&cluster.person(0), FOR_EVER_SECONDS).await;
    let first = worker_node(&cluster, &run).await;
    cluster.nodes[first].host().cut();
    let callee = chain::check(&cluster.person(0), &run).await;
    assert_eq!(callee["attempts"], 2, "{callee}");
    wait_until_idle(&cluster, first);
    cluster.nodes[first].host().join();
    wait_until_clean(&cluster);
    // The node is back among the others, and has added nothing.
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
async fn a_killed_gateway_is_replaced_by_another() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 10).await;
    worker_node(&cluster, &run).await;
    // The caller's node can wait at no other gateway than the first.
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

/// A gateway at which a callee is waited for falls silent, while another one is there.
async fn is_replaced_when_silent(silence: impl Fn(&Program), end: impl Fn(&Program)) {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 3).await;
    worker_node(&cluster, &run).await;
    cluster.add_gateway().await;
    let began = Instant::now();
    silence(&cluster.gateways[0]);
    let callee = chain::check(&cluster.person(1), &run).await;
    let took = began.elapsed();
    assert!(took < SILENT_GATEWAY_MAX, "{took:?}");
    assert_eq!(
        callee["attempts"], 1,
        "the worker has not noticed: {callee}"
    );
    end(&cluster.gateways[0]);
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_hangs_is_replaced_when_its_presence_is_over() {
    is_replaced_when_silent(Program::pause, Program::resume).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_is_replaced_when_its_presence_is_over() {
    is_replaced_when_silent(
        |gateway| gateway.host().cut(),
        |gateway| gateway.host().join(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_comes_back_loses_nothing() {
    let mut cluster = chain::cluster(Store::JetStream, 1, 1).await;
    let run = chain::start(&cluster.person(0), 20).await;
    worker_node(&cluster, &run).await;
    cluster.brokers[0].kill();
    // This is the test: as long as a lease.
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.brokers[0].restart();
    chain::check(&cluster.person(0), &run).await;
    wait_until_clean(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_whose_node_restarts_joins_the_worker_it_had() {
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

/// Whether the node with this number says that it takes work.
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
async fn a_node_whose_disk_is_full_takes_no_work_and_fails_nobody() {
    let cluster = ProgramCluster::start_as(&Plan {
        store: Store::JetStream,
        brokers: 1,
        gateways: 1,
        labels: &["one", "two", "two"],
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
    assert_eq!(callee["attempts"], 1, "it went to who has room: {callee}");
    disk.empty();
    wait_until_it_takes_work(&cluster, first, true).await;
    wait_until_clean(&cluster);
}

/// The state of a node as gateways tell it, in one of these fields.
async fn told_of(cluster: &ProgramCluster, node: usize, field: &str) -> Value {
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
async fn a_node_whose_disk_is_nearly_full_lets_trees_under_way_end() {
    /// More than what counts as full, 64 MiB, and less than what is kept for trees under way, 128 MiB.
    const LEFT_BYTES: u64 = 96 << 20;
    let cluster = ProgramCluster::start_as(&Plan {
        store: Store::JetStream,
        brokers: 1,
        gateways: 1,
        labels: &["one", "two"],
        disk_bytes: Some(512 << 20),
    })
    .await;
    chain::register(&cluster).await;
    let person = cluster.person(0);
    // Both capsules have run there before, so that little comes to the disk.
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
                let told = told_of(&cluster, node, "no_roots").await;
                told.as_str()?.starts_with("disk_full: ").then_some(())
            })
            .await;
        assert_eq!(told_of(&cluster, node, "not_ready").await, Value::Null);
    }
    // A new tree waits, and says why; the one that is under way ends, on the same disks.
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
