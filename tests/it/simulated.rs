//! The control plane from HTTP to HTTP, over a real NATS, with capsules as functions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::capsule::Grant;
use aod_domain::handoff::DEPTH_MAX;
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild};
use aod_testkit::capsules::registration;
use aod_testkit::engine::{Engine, Recipe};
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema, append_registration, store_schema};
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// A capsule that calls itself `depth` levels down and counts them.
fn nest() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let depth = inside.input()["depth"].as_u64().expect("a depth");
            let below = match depth {
                0 => 0,
                depth => {
                    let body = json!({"target": "nest", "args": {"depth": depth - 1, "caller": inside.input()["caller"]}});
                    let (status, answer) = handoff(&inside, &body).await;
                    assert_eq!(status, 200, "{answer}");
                    answer["output"]["levels"]
                        .as_u64()
                        .unwrap_or_else(|| panic!("no levels in {answer}"))
                        + 1
                }
            };
            inside.write_output(&json!({"levels": below}));
            0
        })
    })
}

/// A capsule that ends only in its second attempt.
fn stay() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            if inside.spec.attempt == 1 {
                std::future::pending::<()>().await;
            }
            inside.write_output(&json!({"attempt": inside.spec.attempt}));
            0
        })
    })
}

/// A capsule that makes the given calls, one after the other, and returns the error code of each, or null.
fn knock() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let mut codes = Vec::new();
            for call in inside.input()["calls"].as_array().expect("a list") {
                let (_, answer) = handoff(&inside, call).await;
                codes.push(answer["code"].clone());
            }
            inside.write_output(&json!({"codes": codes}));
            0
        })
    })
}

async fn cluster(gateways: usize, slots: usize) -> Cluster {
    let mut cluster = Cluster::start(gateways).await;
    let capacity = Capacity {
        slots,
        containers_max: 64,
        memory_bytes: 4 << 30,
    };
    cluster
        .add_node(
            &["any"],
            capacity,
            runtime([("nest".to_owned(), nest()), ("knock".to_owned(), knock())]),
        )
        .await;
    cluster.register("nest", &any_schema()).await;
    cluster
}

async fn levels(client: &Client, caller: usize, depth: u64) -> Value {
    let run = client
        .start("nest", json!({"depth": depth, "caller": caller}))
        .await;
    client.result(&run).await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_nested_eight_deep_finish_on_one_slot() {
    let cluster = cluster(1, 1).await;
    let result = levels(&cluster.client(0), 0, 8).await;
    assert_eq!(result["output"]["levels"], 8, "{result}");
    assert_eq!(cluster.nodes[0].containers_peak(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_callers_finish() {
    let cluster = cluster(2, 8).await;
    let clients = [cluster.client(0), cluster.client(1)];
    let results = join_all((0..1_000).map(|caller| levels(&clients[caller % 2], caller, 1))).await;
    for result in &results {
        assert_eq!(result["output"]["levels"], 1, "{result}");
    }
    let peak = cluster.nodes[0].containers_peak();
    println!("1,000 callers on 8 slots: at most {peak} containers alive at one time");
    assert!(peak <= 64 + 8, "{peak}");
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_at_one_gateway_is_immediately_known_to_the_other() {
    let cluster = cluster(2, 8).await;
    let clients = [cluster.client(0), cluster.client(1)];
    for count in 0..250 {
        let run = clients[count % 2]
            .start("nest", json!({"depth": 0, "caller": count}))
            .await;
        let (status, view) = clients[(count + 1) % 2]
            .get(&format!("/v1/runs/{run}"))
            .await;
        assert_eq!(status, 200, "{view}");
    }
}

/// A node that computes one run at a time.
const ONE_SLOT: Capacity = Capacity {
    slots: 1,
    containers_max: 4,
    memory_bytes: 1 << 30,
};

/// Adds a node on which the first attempt of a run never ends.
async fn add_node(cluster: &mut Cluster) -> Arc<Engine> {
    let runtime = runtime([("stay".to_owned(), stay())]);
    cluster.add_node(&["any"], ONE_SLOT, runtime.clone()).await;
    runtime
}

/// A cluster of one node, which has started the returned run.
async fn busy_cluster() -> (Cluster, Client, String) {
    let mut cluster = Cluster::start(1).await;
    let runtime = add_node(&mut cluster).await;
    cluster.register("stay", &any_schema()).await;
    let client = cluster.client(0);
    let run = client.start("stay", json!({})).await;
    eventually("the first attempt", async || runtime.started() > 0).await;
    (cluster, client, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_node_returns_unfinished_runs_after_its_time_limit() {
    let (mut cluster, client, run) = busy_cluster().await;
    let (_, nodes) = client.get("/v1/nodes").await;
    let node = nodes["items"][0]["id"]
        .as_str()
        .expect("one node")
        .to_owned();
    add_node(&mut cluster).await;

    // Without a time limit it continues.
    let drain = format!("/v1/nodes/{node}/drain");
    client.post(&drain).await;
    eventually("a node that drains", async || {
        let (_, nodes) = client.get("/v1/nodes").await;
        let mut nodes = nodes["items"].as_array().into_iter().flatten();
        nodes.any(|item| item["id"] == *node && item["draining"] == true)
    })
    .await;
    let (_, view) = client.get(&format!("/v1/runs/{run}")).await;
    assert_eq!(view["attempts"], 1, "{view}");

    client.post(&format!("{drain}?within=0")).await;
    let result = client.result(&run).await;
    assert_eq!(result["output"]["attempt"], 2, "{result}");
    let (_, view) = client.get(&format!("/v1/runs/{run}")).await;
    assert_ne!(view["node"], *node, "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_node_hands_its_runs_over_immediately() {
    let (mut cluster, client, run) = busy_cluster().await;
    cluster.nodes.remove(0).stop().await;
    add_node(&mut cluster).await;
    let result = client.result(&run).await;
    assert_eq!(result["output"]["attempt"], 2, "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_call_is_rejected_and_recorded() {
    let cluster = cluster(1, 8).await;
    let grant = Grant {
        calls_max: Some(2),
        ..Grant::from("Nest")
    };
    cluster.register_with_grants("knock", vec![grant]).await;
    let nest = |caller: u32| json!({"target": "nest", "args": {"depth": 0, "caller": caller}});
    let calls = [
        nest(1),
        json!({"target": "knock", "args": {"calls": []}}),
        json!({"target": "nobody", "args": {}}),
        // Rejected as malformed, independent of permissions; not counted.
        json!({"target": "nest", "args": {"depth": 0}, "timeout_seconds": 0}),
        nest(2),
        nest(3),
    ];
    let client = cluster.client(0);
    let run = client.start("knock", json!({"calls": calls})).await;
    let result = client.result(&run).await;
    let expected = json!([
        null,
        "target_not_allowed",
        "unknown_capsule",
        "request_malformed",
        null,
        "calls_exhausted"
    ]);
    assert_eq!(result["output"]["codes"], expected, "{result}");

    let told = refusals(&client, &run).await;
    assert_eq!(
        told,
        [
            (json!("knock"), json!("target_not_allowed")),
            (json!("nobody"), json!("unknown_capsule")),
            (json!("nest"), json!("calls_exhausted")),
        ]
    );
}

/// The recorded refusals of `run`: codes and targets.
async fn refusals(client: &Client, run: &str) -> Vec<(Value, Value)> {
    let (_, page) = client
        .get(&format!("/v1/runs/{run}/events?limit=1000"))
        .await;
    let events = page["items"].as_array().expect("a list of events").iter();
    events
        .filter(|event| event["type"] == "dev.aod.run.call_refused.v1")
        .map(|event| {
            let data = &event["data"];
            (data["target"].clone(), data["code"].clone())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_beyond_maximum_depth_is_rejected_and_recorded() {
    let cluster = cluster(1, 8).await;
    cluster
        .register_with_grants("knock", vec![Grant::from("knock")])
        .await;
    let mut arguments = json!({"calls": []});
    for _ in 0..=DEPTH_MAX {
        arguments = json!({"calls": [{"target": "knock", "args": arguments}]});
    }
    let client = cluster.client(0);
    let root = client.start("knock", arguments).await;
    client.result(&root).await;

    let (_, tree) = client.get(&format!("/v1/runs/{root}/tree")).await;
    let (mut run, mut levels) = (&tree, 0);
    while let Some(callee) = run["children"].get(0) {
        let id = run["id"].as_str().expect("an id");
        assert_eq!(refusals(&client, id).await, []);
        (run, levels) = (callee, levels + 1);
    }
    assert_eq!(levels, DEPTH_MAX);
    let deepest = run["id"].as_str().expect("an id");
    let expected = [(json!("knock"), json!("call_too_deep"))];
    assert_eq!(refusals(&client, deepest).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_refusals_are_recorded_a_hundred_times_and_counted() {
    let cluster = cluster(1, 8).await;
    cluster.register_with_grants("knock", Vec::new()).await;
    let calls = vec![json!({"target": "nest", "args": {}}); 130];
    let client = cluster.client(0);
    let run = client.start("knock", json!({"calls": calls})).await;
    client.result(&run).await;
    let (_, page) = client
        .get(&format!("/v1/runs/{run}/events?limit=1000"))
        .await;
    let refusals: Vec<_> = page["items"]
        .as_array()
        .expect("a list of events")
        .iter()
        .filter(|event| event["type"] == "dev.aod.run.call_refused.v1")
        .collect();
    assert_eq!(refusals.len(), 101, "{page}");
    let last = refusals[100]["data"]["text"].as_str().unwrap_or_default();
    assert!(last.starts_with("the last of 30 more refusals"), "{last}");
}

/// A capsule that requests a connection from its channel the given number of times, and returns the answers.
fn dial() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let mut lines = BTreeSet::new();
            for _ in 0..inside.input()["times"].as_u64().expect("a number") {
                let socket = inside.spec.io.channel.join("capsule.sock");
                let mut stream = UnixStream::connect(socket).await.expect("an open channel");
                let request = b"CONNECT evil.example:443 HTTP/1.0\r\n\r\n";
                stream
                    .write_all(request)
                    .await
                    .expect("a channel that reads");
                let mut answer = String::new();
                let read = stream.read_to_string(&mut answer).await;
                read.expect("a channel that answers");
                lines.extend(answer.lines().next().map(str::to_owned));
            }
            inside.write_output(&json!({"lines": lines}));
            0
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_refusals_are_recorded_a_hundred_times_and_counted() {
    let mut cluster = Cluster::start(1).await;
    let capacity = Capacity {
        slots: 1,
        containers_max: 1,
        memory_bytes: 4 << 30,
    };
    let engine = runtime([("dial".to_owned(), dial())]);
    cluster.add_node(&["any"], capacity, engine).await;
    cluster.register("dial", &any_schema()).await;
    let client = cluster.client(0);
    let run = client.start("dial", json!({"times": 130})).await;
    let result = client.result(&run).await;
    let line = "HTTP/1.0 403 egress_refused: evil.example:443 is not in the list \"egress\" of the \
                capsule's agent.yaml, which lists nothing";
    assert_eq!(result["output"]["lines"], json!([line]), "{result}");
    assert_eq!(result["usage"]["egress"]["refused"], 130);
    let (_, page) = client
        .get(&format!("/v1/runs/{run}/events?limit=1000"))
        .await;
    let events = page["items"].as_array().expect("a list of events").iter();
    let refusals: Vec<_> = events
        .filter(|event| event["type"] == "dev.aod.run.egress_refused.v1")
        .collect();
    assert_eq!(refusals.len(), 101, "{page}");
    assert_eq!(refusals[0]["data"]["host"], "evil.example");
    let last = refusals[100]["data"]["text"].as_str().unwrap_or_default();
    assert!(last.starts_with("the last of 30 more refusals"), "{last}");
}

/// Builds an image on the engine itself, as another node's build appears to this node.
async fn built(engine: &Engine, capsule: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let context = directory.path().join("context.tar");
    std::fs::write(&context, capsule).expect("a file");
    engine
        .images()
        .teach(capsule.as_bytes(), Recipe::Makes(Some(knock())));
    let (progress, _lines) = tokio::sync::mpsc::channel(1);
    let built = engine
        .build_image(ImageBuild::new(context, capsule, capsule, progress))
        .await;
    built.expect("an image")
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_unused_image_is_deleted() {
    let mut cluster = Cluster::start(1).await;
    let engine = runtime([]);
    let (old, new) = (
        built(&engine, "renewed").await,
        built(&engine, "kept").await,
    );
    let schema = store_schema(cluster.artifacts.as_ref(), &any_schema()).await;
    let mut registration = registration("kept", schema);
    registration.image.config_digest.clone_from(&new);
    append_registration(&cluster.broker("registrar").await, registration).await;
    cluster.image_keep = Duration::from_secs(2);
    cluster.add_node(&["any"], ONE_SLOT, engine.clone()).await;
    eventually("the old image is gone", async || {
        !engine.has_image(&old).await.expect("an answer")
    })
    .await;
    assert!(engine.has_image(&new).await.expect("an answer"));
}
