//! Reruns of recorded runs through `aod`: a real gateway, a real broker, capsules as functions that count their starts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aod_domain::admission::Capacity;
use aod_domain::capsule::{Image, Registration};
use aod_testkit::capsules::registration;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, append_registration, store_schema};
use aod_tests::programs::ask;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use serde_json::{Value, json};

/// State and settings of the capsules.
#[derive(Clone, Default)]
struct Story {
    /// Starts of `leaf`, by its number.
    starts: Arc<Mutex<BTreeMap<i64, u32>>>,
    /// Whether `leaf` fails for the number 4.
    is_sick: Arc<AtomicBool>,
}

impl Story {
    /// The starts since the last call.
    fn started(&self) -> Vec<(i64, u32)> {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *starts).into_iter().collect()
    }

    /// Squares its number; with `is_new`, its later version cubes it.
    fn leaf(&self, is_new: bool) -> Command {
        let story = self.clone();
        Arc::new(move |inside: Inside| {
            let story = story.clone();
            Box::pin(async move {
                let number = inside.input()["number"].as_i64().expect("a number");
                let mut starts = story.starts.lock().unwrap_or_else(PoisonError::into_inner);
                *starts.entry(number).or_default() += 1;
                drop(starts);
                if number == 4 && story.is_sick.load(Ordering::Relaxed) {
                    return 3;
                }
                let power = if is_new {
                    number * number * number
                } else {
                    number * number
                };
                inside.write_output(&json!({"power": power}));
                0
            })
        })
    }
}

/// Adds up the results of `leaf` for each of its numbers; a failed `leaf` counts as zero.
fn sum() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let mut total = 0;
            for number in inside.input()["numbers"].as_array().expect("numbers") {
                let body = json!({"target": "leaf", "args": {"number": number}});
                let (_, answer) = handoff(&inside, &body).await;
                total += answer["output"]["power"].as_i64().unwrap_or_default();
            }
            inside.write_output(&json!({"total": total}));
            0
        })
    })
}

/// Calls `sum` with its own arguments.
fn top() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let body = json!({"target": "sum", "args": inside.input()});
            let (status, answer) = handoff(&inside, &body).await;
            assert_eq!(status, 200, "{answer}");
            inside.write_output(&answer["output"]);
            0
        })
    })
}

async fn cluster(story: &Story) -> Cluster {
    let mut cluster = Cluster::start(2).await;
    let capacity = Capacity {
        slots: 2,
        containers_max: 8,
        memory_bytes: 4 << 30,
    };
    let capsules = [
        ("top", top()),
        ("sum", sum()),
        ("leaf", story.leaf(false)),
        ("new-leaf", story.leaf(true)),
    ];
    let capsules = capsules.map(|(name, command)| (name.to_owned(), command));
    cluster
        .add_node(&["any"], capacity, runtime(capsules))
        .await;
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    let input = json!({"type": "object", "properties": {"numbers": numbers}});
    let schema = json!({"input": input, "output": {"type": "object"}});
    for name in ["top", "sum", "leaf"] {
        cluster.register(name, &schema).await;
    }
    cluster
}

/// From now on `leaf` is another image, with other arguments.
async fn replace_leaf(cluster: &Cluster) {
    let schema = json!({"input": {"type": "object", "required": ["base"]}, "output": {}});
    let schema = store_schema(cluster.artifacts.as_ref(), &schema).await;
    let old = registration("leaf", schema);
    let changed = Registration {
        image: Image {
            config_digest: "new-leaf".into(),
            ..old.image.clone()
        },
        ..old
    };
    append_registration(&cluster.broker("registrar").await, changed).await;
}

async fn run(client: &Client, numbers: &[u32]) -> (String, Value) {
    let run = client.start("top", json!({"numbers": numbers})).await;
    let result = client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    (run, result["output"].clone())
}

/// Reruns `run` with the real `aod` and `arguments`: returns the new run and its output.
async fn rerun(cluster: &Cluster, run: &str, arguments: &[&str]) -> (String, Value) {
    let words = [&["runs", "rerun", run, "--format", "json"], arguments].concat();
    let output = ask(cluster.gateways[1].url(), 0, &words).await;
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let new = result["id"].as_str().expect("a run").to_owned();
    (new, result["output"].clone())
}

/// The capsules of a tree in their order, with a mark for reused results.
async fn shape(client: &Client, run: &str) -> Vec<String> {
    fn walk(node: &Value, found: &mut Vec<String>) {
        let name = node["capsule"].as_str().expect("a name");
        let is_reused = node["reused_from"].is_string();
        found.push(format!("{name}{}", if is_reused { " reused" } else { "" }));
        for child in node["children"].as_array().expect("callees") {
            walk(child, found);
        }
    }
    let (status, tree) = client.get(&format!("/v1/runs/{run}/tree")).await;
    assert_eq!(status, 200, "{tree}");
    let mut found = Vec::new();
    walk(&tree, &mut found);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_reuses_unchanged_successful_calls() {
    let story = Story::default();
    let cluster = cluster(&story).await;
    let client = cluster.client(0);
    let (recorded, output) = run(&client, &[3, 4]).await;
    assert_eq!(
        (output, story.started()),
        (json!({"total": 25}), vec![(3, 1), (4, 1)])
    );

    let (again, output) = rerun(&cluster, &recorded, &[]).await;
    assert_eq!((output, story.started()), (json!({"total": 25}), vec![]));
    assert_eq!(shape(&client, &again).await, ["top", "sum reused"]);
    let (_, view) = client.get(&format!("/v1/runs/{again}")).await;
    assert_eq!(view["rerun_of"], json!(recorded));

    let (changed, output) = rerun(&cluster, &recorded, &["--set", "numbers=[3,5]"]).await;
    assert_eq!(
        (output, story.started()),
        (json!({"total": 34}), vec![(5, 1)])
    );
    let expected = ["top", "sum", "leaf reused", "leaf"];
    assert_eq!(shape(&client, &changed).await, expected);

    let (fresh, output) = rerun(&cluster, &recorded, &["--fresh"]).await;
    assert_eq!(
        (output, story.started()),
        (json!({"total": 25}), vec![(3, 1), (4, 1)])
    );
    assert_eq!(shape(&client, &fresh).await, ["top", "sum", "leaf", "leaf"]);

    // A rerun of a rerun reuses results from their origin.
    let (twice, _) = rerun(&cluster, &again, &[]).await;
    assert_eq!(shape(&client, &twice).await, ["top", "sum reused"]);
    let (_, one) = client.get(&format!("/v1/runs/{again}/tree")).await;
    let (_, other) = client.get(&format!("/v1/runs/{twice}/tree")).await;
    let origin = |tree: &Value| tree["children"][0]["reused_from"].clone();
    assert_eq!(origin(&one), origin(&other));

    let url = cluster.gateways[1].url();
    for run in [&again, &changed] {
        ask(url, 0, &["runs", "replay", run]).await;
        let directory = tempfile::tempdir().expect("a directory");
        let bundle = directory.path().join("bundle.tar");
        let bundle = bundle.to_str().expect("a plain path");
        eventually("a seal", async || client.seals(run).await == 1).await;
        let export = ["audit", "export", run, "-o", bundle];
        ask(url, 0, &export).await;
        ask(url, 0, &["audit", "verify", bundle]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_from_a_run_reuses_only_results_outside_its_subtree() {
    let story = Story::default();
    let cluster = cluster(&story).await;
    let client = cluster.client(0);
    let (recorded, _) = run(&client, &[3, 4]).await;
    story.started();
    let (_, tree) = client.get(&format!("/v1/runs/{recorded}/tree")).await;
    let sum = &tree["children"][0];
    let four = sum["children"][1]["id"].as_str().expect("the second leaf");

    let (from, _) = rerun(&cluster, &recorded, &["--from", four]).await;
    assert_eq!(story.started(), [(4, 1)]);
    let expected = ["top", "sum", "leaf reused", "leaf"];
    assert_eq!(shape(&client, &from).await, expected);
    let sum = sum["id"].as_str().expect("the sum");
    let (below, _) = rerun(&cluster, &recorded, &["--from", sum]).await;
    assert_eq!(story.started(), [(3, 1), (4, 1)]);
    assert_eq!(shape(&client, &below).await, ["top", "sum", "leaf", "leaf"]);

    // A callee is rerun as a root.
    let (alone, output) = rerun(&cluster, sum, &[]).await;
    assert_eq!((output, story.started()), (json!({"total": 25}), vec![]));
    assert_eq!(
        shape(&client, &alone).await,
        ["sum", "leaf reused", "leaf reused"]
    );
    let url = cluster.gateways[0].url();
    let strange = ["runs", "rerun", sum, "--from", &recorded];
    let refused = ask(url, 2, &strange).await;
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        error.contains("is not in the recorded tree below"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_restarts_failed_calls() {
    let story = Story::default();
    story.is_sick.store(true, Ordering::Relaxed);
    let cluster = cluster(&story).await;
    let client = cluster.client(0);
    let run_of_sum = client.start("sum", json!({"numbers": [3, 4]})).await;
    let result = client.result(&run_of_sum).await;
    assert_eq!(result["output"], json!({"total": 9}), "{result}");
    assert_eq!(story.started(), [(3, 1), (4, 1)]);
    story.is_sick.store(false, Ordering::Relaxed);
    let (again, output) = rerun(&cluster, &run_of_sum, &[]).await;
    assert_eq!(
        (output, story.started()),
        (json!({"total": 25}), vec![(4, 1)])
    );
    assert_eq!(shape(&client, &again).await, ["sum", "leaf reused", "leaf"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_uses_the_recorded_images_and_schemas() {
    let story = Story::default();
    let cluster = cluster(&story).await;
    let client = cluster.client(0);
    let (recorded, _) = run(&client, &[3, 4]).await;
    replace_leaf(&cluster).await;
    let (_, output) = rerun(&cluster, &recorded, &["--fresh"]).await;
    assert_eq!(output, json!({"total": 25}));
    // Also for a call that the recorded run did not make.
    let (changed, output) = rerun(&cluster, &recorded, &["--set", "numbers=[5]"]).await;
    assert_eq!(output, json!({"total": 25}));
    let (_, output) = rerun(&cluster, &changed, &["--set", "numbers=[6]"]).await;
    assert_eq!(output, json!({"total": 36}));
}

#[tokio::test(flavor = "multi_thread")]
async fn unrepeatable_run_is_rejected() {
    let story = Story::default();
    let cluster = cluster(&story).await;
    let client = cluster.client(0);
    let waiting = client
        .start_with("top", json!({"numbers": []}), json!({"pool": "nowhere"}))
        .await;
    let url = cluster.gateways[0].url();
    let refused = ask(url, 2, &["runs", "rerun", &waiting]).await;
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("run_not_ended"), "{error}");
    ask(url, 0, &["runs", "cancel", &waiting]).await;
    let unfit = ["runs", "rerun", &waiting, "--from", &waiting, "--fresh"];
    ask(url, 2, &unfit).await;
    let body = json!({"fresh": 1, "from": "nonsense", "colour": "red"});
    let (status, problem) = client
        .post_json(&format!("/v1/runs/{waiting}/rerun"), &body)
        .await;
    assert_eq!(status, 400, "{problem}");
    let pointers: Vec<&str> = problem["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .filter_map(|error| error["pointer"].as_str())
        .collect();
    assert_eq!(pointers, ["/from", "/fresh", "/colour"], "{problem}");
}
