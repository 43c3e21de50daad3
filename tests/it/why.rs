//! In a cluster that is full, every run that waits says why, word for word.

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

/// The names under which `hold` is registered: a rule is about one of them.
const HOLDING: [&str; 8] = [
    "hold", "hold-1", "single", "paired", "stopped", "rated", "keyed", "ordered",
];

/// A full cluster, and what was asked of it.
struct Full {
    cluster: Cluster,
    client: Client,
    /// Each run with what it must say.
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
        for (label, slots) in [("any", 2), ("spare", 1), ("wide", 32)] {
            let capacity = Capacity {
                slots,
                containers_max: 64,
                memory_bytes: 64 << 30,
            };
            let capsules = capsules.iter().cloned();
            let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
            cluster
                .add_node(&[label], capacity, runtime(capsules))
                .await;
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

    /// Asks for a run of `capsule` on a node with `label`.
    async fn ask(&self, capsule: &str, label: &str, arguments: &Value) -> String {
        let body = json!({"label": label});
        self.client
            .start_with(capsule, arguments.clone(), body)
            .await
    }

    /// The same for one that waits, and says so.
    async fn waits(
        &mut self,
        capsule: &str,
        label: &str,
        arguments: &Value,
        why: impl Into<String>,
    ) {
        let run = self.ask(capsule, label, arguments).await;
        self.expected.push((run, why.into()));
    }

    /// What `run` says; times, which differ, are left out.
    async fn told(&self, run: &str) -> String {
        let (status, view) = self.client.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(status, 200, "{view}");
        let text = view["waits_for"].as_str().unwrap_or("nothing");
        let text = text.split(", in about ").next().unwrap_or_default();
        if text.starts_with("it waits for run_") {
            // Which one a node says once it has heard of it.
            return "it waits for a callee".into();
        }
        match (text.find("until "), text.find("Z, ")) {
            (Some(from), Some(to)) => format!("{}TIME{}", &text[..from + 6], &text[to + 1..]),
            _ => text.to_owned(),
        }
    }

    async fn node_of_label(&self, label: &str) -> String {
        let (_, nodes) = self.client.get("/v1/nodes").await;
        let mut nodes = nodes["items"].as_array().expect("items").iter();
        let node = nodes.find(|node| node["labels"] == json!([label]));
        node.expect("a node")["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// A node with the label `sick` that says of itself that it cannot take anything.
    async fn add_sick_node(&self) {
        let member = NodeMember {
            node: NodeId::new(Uuid::from_u128(1)),
            incarnation: IncarnationId::new(Uuid::from_u128(2)),
            host: "node-9".into(),
            version: "0".into(),
            labels: vec!["sick".parse().expect("a label")],
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

/// Fails each time.
fn failing() -> Command {
    Arc::new(|_: Inside| Box::pin(async { 3 }))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_that_waits_in_a_full_cluster_says_why() {
    let story = Story::new();
    let mut full = Full::start(&story).await;
    full.add_sick_node().await;
    let spare = full.node_of_label("spare").await;
    full.client.post(&format!("/v1/nodes/{spare}/drain")).await;
    without_rules(&mut full).await;
    for_slots(&mut full).await;
    for_rooms(&mut full).await;
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
        *last.lock().expect("nobody panics") = told;
        is_told
    });
    // What differs is told below.
    drop(tokio::time::timeout(Duration::from_secs(60), all).await);
    assert_eq!(last.into_inner().expect("nobody panics"), full.expected);
}

/// What waits without a rule being about it.
async fn without_rules(full: &mut Full) {
    let failing = json!({"label": "wide", "retries": {"capsule": 20}});
    let failing = full.client.start_with("failing", json!({}), failing).await;
    let rests = "it rests until TIME, after a failure: the capsule ended with exit code 3";
    full.expected.push((failing, rests.into()));
    let here = json!({});
    full.waits("hold", "gpu", &here, "no node with label gpu")
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

/// What waits for a node that has what it requires.
async fn for_requirements(full: &mut Full) {
    for (label, body, why) in [
        (
            "wide",
            json!({"require": ["zone=eu", "ssd"]}),
            "no node with label wide fits: node-2 has no ssd, zone=us not zone=eu",
        ),
        (
            "wide",
            json!({"devices": {"card": 3}}),
            "no node with label wide fits: node-2 has 1 of 3 card",
        ),
        (
            "spare",
            json!({"require": ["zone=us"]}),
            "node-1 is draining",
        ),
        ("any", json!({"require": ["zone=us"]}), "all 2 slots busy"),
    ] {
        let mut body = body;
        body["label"] = label.into();
        let run = full.client.start_with("hold-1", json!({}), body).await;
        full.expected.push((run, why.into()));
    }
    let card = json!({"label": "wide", "devices": {"card": 1}});
    full.client
        .start_with("hold-1", json!({}), card.clone())
        .await;
    let second = full.client.start_with("hold-1", json!({}), card).await;
    let why = "other runs have the devices: node-2 has 0 of 1 card free";
    full.expected.push((second, why.into()));
}

/// What waits for a slot, in the queue or before it.
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
    let full_queue = "all 2 slots of label any have work, and their queue is full";
    for place in ["it is next", "it is number 2 in line"] {
        full.waits("ordered", "any", &here, format!("{full_queue}; {place}"))
            .await;
    }
    full.waits(
        "ordered",
        "gpu",
        &here,
        "no node with label gpu; it is next",
    )
    .await;
    let none = "no node with label sick takes work now; it is next";
    full.waits("ordered", "sick", &here, none).await;
}

/// What waits for a room.
async fn for_rooms(full: &mut Full) {
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
    let held = format!("rule single lets 1 go at once: {holder}");
    full.waits("single", "wide", &here, format!("{held}; it is next"))
        .await;
    let second = format!("{held}; it is number 2 in line");
    full.waits("single", "wide", &here, second).await;

    let one = full.ask("paired", "wide", &here).await;
    let other = full.ask("paired", "wide", &here).await;
    let held = format!("rule paired for x lets 2 go at once: {one}, {other}; it is next");
    full.waits("paired", "wide", &here, held).await;

    full.ask("rated", "wide", &here).await;
    for (capsule, held) in [
        ("stopped", "rule stopped lets nobody go"),
        ("rated", "rule rated lets 1 begin within 3600 s"),
    ] {
        for place in ["it is next", "it is number 2 in line"] {
            full.waits(capsule, "wide", &here, format!("{held}; {place}"))
                .await;
        }
    }

    let holder = full.ask("keyed", "wide", &here).await;
    let held = format!("rule keyed for x,keyed lets 1 go at once: {holder}; it is next");
    full.waits("keyed", "wide", &here, held).await;
}

/// A callee that waits for a room, and its caller.
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
        callee.lock().expect("nobody panics").clone_from(&found);
        found.is_some()
    })
    .await;
    let callee = callee
        .into_inner()
        .expect("nobody panics")
        .expect("a callee");
    full.expected.push((caller, "it waits for a callee".into()));
    let held = format!("rule hold lets 1 go at once: {holder}; it is next");
    full.expected.push((callee, held));
}
