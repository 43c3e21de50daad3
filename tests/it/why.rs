//! In a full cluster, every waiting run reports its reason, compared word for word.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::id::{IncarnationId, NodeId};
use aod_domain::placement::{Devices, Equipment};
use aod_ports::presence::{Member, NodeMember, Place, Presence as _};
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, runtime};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::flow::{Story, spread};

/// The names under which `hold` is registered: each rule applies to one of them.
const HOLDING: [&str; 8] = [
    "hold", "hold-1", "single", "paired", "stopped", "rated", "keyed", "ordered",
];

/// A full cluster, and its requested runs.
struct Full {
    cluster: Cluster,
    client: Client,
    /// Each run with its expected reason.
    expected: Vec<(String, String)>,
}

impl Full {
    async fn start(story: &Story) -> Self {
        let mut cluster = Cluster::start(1).await;
        let card = ("card".parse().expect("a name"), vec![None]);
        cluster.devices = Devices::new([card].into());
        cluster.equipment = Equipment {
            attributes: [Equipment::read_attribute("zone=us").expect("an attribute")].into(),
            devices: cluster.devices.counts(),
            ..Equipment::default()
        };
        let capsules = HOLDING.map(|name| (name, story.hold()));
        let others = [("spread", spread()), ("failing", failing())];
        let capsules: Vec<(&str, Command)> = capsules.into_iter().chain(others).collect();
        for (pool, slots) in [("any", 2), ("spare", 1), ("wide", 32)] {
            let capacity = Capacity {
                slots,
                containers_max: 64,
                memory_bytes: 64 << 30,
            };
            let capsules = capsules.iter().cloned();
            let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
            cluster.add_node(&[pool], capacity, runtime(capsules)).await;
        }
        for (name, _) in &capsules {
            cluster.register(name, &any_schema()).await;
        }
        let client = cluster.client(0);
        Self {
            cluster,
            client,
            expected: Vec::new(),
        }
    }

    async fn operate(&self, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        ask(self.cluster.gateways[0].url(), 0, &words).await;
    }

    /// Requests a run of `capsule` on a node in `pool`.
    async fn ask(&self, capsule: &str, pool: &str, arguments: &Value) -> String {
        let body = json!({"pool": pool});
        self.client
            .start_with(capsule, arguments.clone(), body)
            .await
    }

    /// As [`Self::ask`], for a run that waits with a reason.
    async fn waits(
        &mut self,
        capsule: &str,
        pool: &str,
        arguments: &Value,
        why: impl Into<String>,
    ) {
        let run = self.ask(capsule, pool, arguments).await;
        self.expected.push((run, why.into()));
    }

    /// The reason of `run`, without varying times.
    async fn told(&self, run: &str) -> String {
        let (status, view) = self.client.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(status, 200, "{view}");
        let text = view["waits_for"].as_str().unwrap_or("nothing");
        let text = text.split(", in about ").next().unwrap_or_default();
        if text.starts_with("its callee run_") {
            // The node fills in the callee as soon as it knows it.
            return "a callee".into();
        }
        match (text.find("starts at "), text.find("Z, ")) {
            (Some(from), Some(to)) => format!("{}TIME{}", &text[..from + 10], &text[to + 1..]),
            _ => text.to_owned(),
        }
    }

    async fn node_of_pool(&self, pool: &str) -> String {
        let (_, nodes) = self.client.get("/v1/nodes").await;
        let mut nodes = nodes["items"].as_array().expect("items").iter();
        let node = nodes.find(|node| node["pools"] == json!([pool]));
        node.expect("a node")["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// A node in the pool `sick` that reports itself as not ready.
    async fn add_sick_node(&self) {
        let member = NodeMember {
            node: NodeId::new(Uuid::from_u128(1)),
            incarnation: IncarnationId::new(Uuid::from_u128(2)),
            host: "node-9".into(),
            version: "0".into(),
            pools: vec!["sick".parse().expect("a pool")],
            slots: 4,
            running: 0,
            waiting: 0,
            containers: 0,
            draining: false,
            place: Place::default(),
            not_ready: Some("the disk is full".into()),
            no_roots: None,
        };
        let presence = self.cluster.broker("sick").await.presence();
        let member = Member::Node(member);
        presence.announce(&member).await.expect("presence is kept");
        tokio::spawn(async move {
            while presence.announce(&member).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
}

/// Fails in each attempt.
fn failing() -> Command {
    Arc::new(|_: Inside| Box::pin(async { 3 }))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_waiting_run_in_a_full_cluster_reports_its_reason() {
    let story = Story::new();
    let mut full = Full::start(&story).await;
    full.add_sick_node().await;
    let spare = full.node_of_pool("spare").await;
    full.client.post(&format!("/v1/nodes/{spare}/drain")).await;
    without_rules(&mut full).await;
    for_slots(&mut full).await;
    for_buckets(&mut full).await;
    for_callees(&mut full, &story).await;
    for_requirements(&mut full).await;
    assert_eq!(full.expected.len(), 25);
    let last = Mutex::new(Vec::new());
    let all = eventually("all", async || {
        let mut told = Vec::new();
        for (run, _) in &full.expected {
            told.push((run.clone(), full.told(run).await));
        }
        let is_told = told == full.expected;
        *last.lock().expect("no panic with the lock") = told;
        is_told
    });
    // The comparison below prints differences.
    drop(tokio::time::timeout(Duration::from_secs(60), all).await);
    assert_eq!(
        last.into_inner().expect("no panic with the lock"),
        full.expected
    );
}

/// Runs that wait independent of rules.
async fn without_rules(full: &mut Full) {
    let failing = json!({"pool": "wide", "retries": {"capsule": 20}});
    let failing = full.client.start_with("failing", json!({}), failing).await;
    let rests =
        "the next attempt starts at TIME, after a failure: the capsule ended with exit code 3";
    full.expected.push((failing, rests.into()));
    let here = json!({});
    full.waits("hold", "gpu", &here, "no node in pool gpu")
        .await;
    full.waits("hold", "spare", &here, "node-1 is draining")
        .await;
    full.waits(
        "hold",
        "sick",
        &here,
        "node-9 is not ready: the disk is full",
    )
    .await;
}

/// Runs that wait for a node that meets their requirements.
async fn for_requirements(full: &mut Full) {
    for (pool, body, why) in [
        (
            "wide",
            json!({"require": ["zone=eu", "ssd"]}),
            "no node in pool wide meets the requirements: node-2 has no ssd, zone=us not zone=eu",
        ),
        (
            "wide",
            json!({"devices": {"card": 3}}),
            "no node in pool wide meets the requirements: node-2 has 1 of 3 card",
        ),
        (
            "spare",
            json!({"require": ["zone=us"]}),
            "node-1 is draining",
        ),
        ("any", json!({"require": ["zone=us"]}), "all 2 slots busy"),
    ] {
        let mut body = body;
        body["pool"] = pool.into();
        let run = full.client.start_with("hold-1", json!({}), body).await;
        full.expected.push((run, why.into()));
    }
    let card = json!({"pool": "wide", "devices": {"card": 1}});
    full.client
        .start_with("hold-1", json!({}), card.clone())
        .await;
    let second = full.client.start_with("hold-1", json!({}), card).await;
    let why = "other runs use the devices: node-2 has 0 of 1 card free";
    full.expected.push((second, why.into()));
}

/// Runs that wait for a slot, in the queue or before it.
async fn for_slots(full: &mut Full) {
    full.operate("rules set ordered --capsule ordered").await;
    let here = json!({});
    for _ in 0..2 {
        full.ask("ordered", "any", &here).await;
    }
    for _ in 0..2 {
        full.waits("ordered", "any", &here, "all 2 slots busy, 2 in line")
            .await;
    }
    let full_queue = "all 2 slots of pool any are busy, and the queue of the pool is full";
    for place in ["next in line", "number 2 in line"] {
        full.waits("ordered", "any", &here, format!("{full_queue}; {place}"))
            .await;
    }
    full.waits("ordered", "gpu", &here, "no node in pool gpu; next in line")
        .await;
    let none = "no node in pool sick takes work now; next in line";
    full.waits("ordered", "sick", &here, none).await;
}

/// Runs that wait for a bucket.
async fn for_buckets(full: &mut Full) {
    for rule in [
        "single --capsule single --concurrency 1",
        "paired --capsule paired --key argument:/site --concurrency 2",
        "stopped --capsule stopped --concurrency 0",
        "rated --capsule rated --rate 1/3600",
        "keyed --capsule keyed --key argument:/site --key capsule --concurrency 1",
    ] {
        full.operate(&format!("rules set {rule}")).await;
    }
    let here = json!({"site": "x"});
    let holder = full.ask("single", "wide", &here).await;
    let held = format!("rule single allows 1 concurrent run: {holder}");
    full.waits("single", "wide", &here, format!("{held}; next in line"))
        .await;
    let second = format!("{held}; number 2 in line");
    full.waits("single", "wide", &here, second).await;

    let one = full.ask("paired", "wide", &here).await;
    let other = full.ask("paired", "wide", &here).await;
    let held = format!("rule paired for x allows 2 concurrent runs: {one}, {other}; next in line");
    full.waits("paired", "wide", &here, held).await;

    full.ask("rated", "wide", &here).await;
    for (capsule, held) in [
        ("stopped", "rule stopped allows no runs"),
        ("rated", "rule rated allows 1 start within 3600 s"),
    ] {
        for place in ["next in line", "number 2 in line"] {
            full.waits(capsule, "wide", &here, format!("{held}; {place}"))
                .await;
        }
    }

    let holder = full.ask("keyed", "wide", &here).await;
    let held = format!("rule keyed for x,keyed allows 1 concurrent run: {holder}; next in line");
    full.waits("keyed", "wide", &here, held).await;
}

/// A callee that waits for a bucket, and its caller.
async fn for_callees(full: &mut Full, story: &Story) {
    full.operate("rules set hold --capsule hold --concurrency 1")
        .await;
    let holder = full.ask("hold", "wide", &json!({"number": 7})).await;
    eventually("it goes", async || story.started().contains(&7)).await;
    let caller = full.ask("spread", "wide", &json!({"numbers": [1]})).await;
    let callee = Mutex::new(None);
    eventually("it has called", async || {
        let (_, tree) = full.client.get(&format!("/v1/runs/{caller}/tree")).await;
        let child = &tree["children"][0];
        let found = child["run"]["id"].as_str().or(child["id"].as_str());
        let found = found.map(str::to_owned);
        callee
            .lock()
            .expect("no panic with the lock")
            .clone_from(&found);
        found.is_some()
    })
    .await;
    let callee = callee
        .into_inner()
        .expect("no panic with the lock")
        .expect("a callee");
    full.expected.push((caller, "a callee".into()));
    let held = format!("rule hold allows 1 concurrent run: {holder}; next in line");
    full.expected.push((callee, held));
}
