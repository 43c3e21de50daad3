//! The past of runs through `aod`: a real gateway, a real broker, capsules as functions.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_tests::client::Client;
use aod_tests::cluster::{Cluster, any_schema};
use aod_tests::programs::{self, aod};
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Maximum wait of a test for a line of a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `leaf` for each of its numbers, one after the other, and adds up the results.
fn sum() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let mut total = 0;
            for number in inside.input()["numbers"].as_array().expect("numbers") {
                let body = json!({"target": "leaf", "args": {"number": number}});
                let (status, answer) = handoff(&inside, &body).await;
                assert_eq!(status, 200, "{answer}");
                total += answer["output"]["square"].as_i64().expect("a number");
            }
            inside.write_output(&json!({"total": total}));
            0
        })
    })
}

fn leaf() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let number = inside.input()["number"].as_i64().expect("a number");
            inside.write_output(&json!({"square": number * number}));
            0
        })
    })
}

async fn cluster() -> Cluster {
    let mut cluster = Cluster::start(1).await;
    let capacity = Capacity {
        slots: 2,
        containers_max: 8,
        memory_bytes: 4 << 30,
    };
    let capsules = [("sum".to_owned(), sum()), ("leaf".to_owned(), leaf())];
    cluster
        .add_node(&["any"], capacity, runtime(capsules))
        .await;
    for name in ["sum", "leaf"] {
        cluster.register(name, &any_schema()).await;
    }
    cluster
}

async fn run(client: &Client, numbers: &[u32]) -> String {
    let run = client.start("sum", json!({"numbers": numbers})).await;
    let result = client.result(&run).await;
    assert_eq!(result["state"], "succeeded", "{result}");
    run
}

async fn ask(cluster: &Cluster, code: i32, arguments: &[&str]) -> Output {
    programs::ask(cluster.gateways[0].url(), code, arguments).await
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json_lines(output: &Output) -> Vec<Value> {
    let lines = text(output);
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON on each line"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_is_shown_in_its_state_at_each_event() {
    let cluster = cluster().await;
    let root = run(&cluster.client(0), &[3, 4]).await;
    let query = ["events", "query", "--tree", &root, "--format", "json"];
    let events = json_lines(&ask(&cluster, 0, &query).await);
    let states = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        ["launched", "leased", "ended"]
            .map(|word| format!("dev.aod.run.{word}.v1"))
            .iter()
            .any(|known| known == kind)
    };
    assert_eq!(
        events.iter().filter(|event| states(event)).count(),
        9,
        "{events:#?}"
    );
    let mut shapes = BTreeSet::new();
    for event in &events {
        let sequence = event["sequence"].to_string();
        let at = [
            "runs", "at", &root, "--event", &sequence, "--format", "json",
        ];
        let view: Value =
            serde_json::from_slice(&ask(&cluster, 0, &at).await.stdout).expect("JSON");
        assert_eq!(view["last"]["sequence"], event["sequence"]);
        let tree = &view["tree"];
        let callees = tree["children"].as_array().expect("callees");
        let open = tree["open_callees"].as_array().map_or(0, Vec::len);
        let phase = tree["phase"].as_str().expect("a phase").to_owned();
        shapes.insert((callees.len(), open, phase));
    }
    let expected = [
        (0, 0, "queued"),
        (0, 0, "leased"),
        (1, 1, "leased"),
        (1, 0, "leased"),
        (2, 1, "leased"),
        (2, 0, "leased"),
        (2, 0, "ended"),
    ];
    let expected = expected.map(|(callees, open, phase)| (callees, open, phase.to_owned()));
    assert_eq!(shapes, BTreeSet::from(expected));

    let last = events[events.len() - 1]["sequence"].to_string();
    let drawn = text(&ask(&cluster, 0, &["runs", "at", &root, "--event", &last]).await);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(
        lines[0].starts_with(&format!("as of event {last}: ended, {root}")),
        "{drawn}"
    );
    assert!(
        lines[2].starts_with("sum ") && lines[2].contains("succeeded"),
        "{drawn}"
    );
    assert!(
        lines[3].starts_with("├─ leaf") && lines[4].starts_with("└─ leaf"),
        "{drawn}"
    );
    let unknown = ask(&cluster, 2, &["runs", "at", &root, "--event", "1"]).await;
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did not exist at event 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_is_replayed_and_two_trees_are_compared() {
    let cluster = cluster().await;
    let client = cluster.client(0);
    let (one, same) = (run(&client, &[3, 4]).await, run(&client, &[3, 4]).await);
    let other = run(&client, &[3, 5, 6]).await;

    let replayed = text(&ask(&cluster, 0, &["runs", "replay", &one]).await);
    assert!(
        replayed.contains("3 runs") && replayed.contains("\nequal: "),
        "{replayed}"
    );

    let alike = text(&ask(&cluster, 0, &["runs", "diff", &one, &same]).await);
    assert!(
        alike.contains("3 runs compared: equal except for times and costs"),
        "{alike}"
    );
    let differ = ["runs", "diff", &one, &other, "--format", "json"];
    let output = ask(&cluster, 7, &differ).await;
    let view: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found: Vec<(&str, Vec<&str>)> = view["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| {
            let places = run["differences"].as_array().expect("differences").iter();
            let places = places.filter_map(|place| place["place"].as_str()).collect();
            (run["path"].as_str().expect("a path"), places)
        })
        .filter(|(_, places): &(_, Vec<_>)| !places.is_empty())
        .collect();
    // The call with 3 has the same key in both trees; the call with 4 is compared with the call with 5.
    let expected = [
        (
            "sum",
            vec![
                "/arguments/numbers/1",
                "/arguments/numbers/2",
                "/output/total",
            ],
        ),
        ("sum/leaf[2]", vec!["/arguments/number", "/output/square"]),
    ];
    assert_eq!(found, expected, "{view:#}");
    assert_eq!(view["only_right"][0]["path"], "sum/leaf[3]", "{view:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_log_is_queried_and_followed() {
    let cluster = cluster().await;
    let client = cluster.client(0);
    let first = run(&client, &[3]).await;
    let query = [
        "events",
        "query",
        "--type",
        "launched",
        "--capsule",
        "leaf",
        "--format",
        "json",
    ];
    let found = json_lines(&ask(&cluster, 0, &query).await);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["data"]["payload"]["inline"], json!({"number": 3}));
    let table = text(
        &ask(
            &cluster,
            0,
            &["events", "query", "--run", &first, "--since", "1h"],
        )
        .await,
    );
    assert!(
        table.starts_with("   EVENT  TIME") && table.contains(&first),
        "{table}"
    );
    let some = ask(&cluster, 0, &["events", "query", "--limit", "2"]).await;
    assert!(String::from_utf8_lossy(&some.stderr).contains("more: --after 2"));
    ask(&cluster, 2, &["events", "query", "--type", "nonsense"]).await;

    let mut tail = tokio::process::Command::new(aod());
    tail.args([
        "events", "tail", "--type", "ended", "--after", "0", "--format", "json",
    ]);
    tail.env("AOD_URL", cluster.gateways[0].url());
    let mut tail = tail
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("aod starts");
    let mut lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.expect("an event in time").expect("a pipe");
        let event: Value = serde_json::from_str(&line.expect("it goes on")).expect("JSON");
        event["run"].as_str().expect("a run").to_owned()
    };
    let leaf = next().await;
    assert!(leaf.starts_with(&first) && leaf != first, "{leaf}");
    assert_eq!(next().await, first);
    let second = run(&client, &[4]).await;
    assert!(next().await.starts_with(&second));
    assert_eq!(next().await, second);
}
