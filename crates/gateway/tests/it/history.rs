//! History of trees: state at an event, replay, comparison of two trees.

use std::path::PathBuf;

use aod_domain::event::CloudEvent;
use aod_domain::id::RunId;
use aod_domain::run::{CancelRequested, Event};
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, Guard};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Client, Cluster};
use crate::node::ScriptedNode;

/// A cluster with `echo`, which fails if its arguments contain `fails`.
async fn cluster() -> (Cluster, Client, ScriptedNode) {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let node = ScriptedNode::echo_or_fail(&cluster).await;
    (cluster, gateway, node)
}

async fn run(gateway: &Client, arguments: Value) -> String {
    let body = json!({"capsule": "echo", "arguments": arguments, "labels": {"team": "birds"}});
    id(&gateway.run(&body).await)
}

fn id(view: &Value) -> String {
    view["id"].as_str().unwrap().to_owned()
}

/// Types and sequences of the events of a run, from the API.
async fn events(gateway: &Client, run: &str) -> Vec<(String, u64)> {
    let page = gateway
        .get(&format!("/v1/runs/{run}/events"))
        .await
        .expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let kind = item["type"].as_str().unwrap().to_owned();
            (kind, item["sequence"].as_u64().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn run_is_shown_in_its_state_at_each_event() {
    let (_cluster, gateway, _node) = cluster().await;
    let run = run(&gateway, json!({"text": "hello"})).await;
    let events = events(&gateway, &run).await;
    let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    let expected = ["launched", "leased", "ended"].map(|word| format!("dev.aod.run.{word}.v1"));
    assert_eq!(kinds, expected);
    let at = async |event: u64| gateway.get(&format!("/v1/runs/{run}/at/{event}")).await;

    let queued = at(events[0].1).await.expect(200);
    let tree = &queued["tree"];
    assert_eq!(
        (&tree["phase"], &tree["state"], &tree["attempts"]),
        (&json!("queued"), &json!("queued"), &json!(0))
    );
    assert_eq!(tree["waits_for"], "a node in pool any");
    assert_eq!(queued["last"]["type"], "dev.aod.run.launched.v1");

    let leased = at(events[1].1).await.expect(200);
    let tree = &leased["tree"];
    assert_eq!(
        (&tree["phase"], &tree["attempts"], &tree["waits_for"]),
        (&json!("leased"), &json!(1), &json!(null))
    );
    assert_eq!(tree["holder"], tree["node"]);
    assert_eq!(leased["last"]["sequence"], events[1].1);

    let ended = at(events[2].1).await.expect(200);
    let now = gateway
        .get(&format!("/v1/runs/{run}/tree"))
        .await
        .expect(200);
    assert_eq!(ended["tree"]["phase"], "ended");
    for member in ["id", "state", "attempts", "node", "ended_at", "timings"] {
        assert_eq!(ended["tree"][member], now[member], "{member}");
    }

    let before = at(events[0].1 - 1).await.expect(404);
    assert_eq!(before["code"], "unknown_run");
    assert_eq!(at(1_000_000).await.expect(400)["code"], "request_malformed");
    assert_eq!(
        gateway
            .get(&format!("/v1/runs/{run}/at/soon"))
            .await
            .expect(400)["code"],
        "request_malformed"
    );
}

async fn replay(gateway: &Client, run: &str) -> Value {
    let path = format!("/v1/runs/{run}/replay");
    gateway.get(&path).await.expect(200)
}

#[tokio::test]
async fn replay_of_correct_lists_finds_no_difference() {
    let (cluster, gateway, node) = cluster().await;
    let good = run(&gateway, json!({"text": "penguins"})).await;
    let bad = run(&gateway, json!({"fails": true})).await;
    drop(node);
    let queued = gateway
        .post(
            "/v1/runs",
            &json!({"capsule": "echo", "pool": "gpu", "limits": {"queue_seconds": 600}}),
        )
        .await;
    let queued = id(&queued.expect(202));
    let cancelled = gateway
        .post("/v1/runs", &json!({"capsule": "echo", "pool": "gpu"}))
        .await;
    let cancelled = id(&cancelled.expect(202));
    gateway
        .post(&format!("/v1/runs/{cancelled}/cancel"), &json!({}))
        .await
        .expect(202);
    let other = cluster.gateway("other").await;
    for run in [good, bad, queued, cancelled] {
        for gateway in [&gateway, &other] {
            let view = replay(gateway, &run).await;
            assert_eq!(
                (&view["is_equal"], &view["runs"], &view["differences"]),
                (&json!(true), &json!(1), &json!([])),
                "{view:#}"
            );
        }
    }
    let nobody = RunId::root_of(uuid::Uuid::from_u128(7));
    let unknown = gateway.get(&format!("/v1/runs/{nobody}/replay")).await;
    assert_eq!(unknown.expect(404)["code"], "unknown_run");
}

/// The read model of a gateway.
fn lists(cluster: &Cluster, name: &str) -> PathBuf {
    let directory = cluster.config(name).data_directory;
    let files = std::fs::read_dir(directory).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    paths
        .find(|path| path.extension().is_some_and(|end| end == "sqlite3"))
        .unwrap()
}

#[tokio::test]
async fn replay_of_changed_lists_reports_differences() {
    let (cluster, gateway, _node) = cluster().await;
    let run = run(&gateway, json!({"fails": true})).await;
    assert_eq!(replay(&gateway, &run).await["is_equal"], true);
    let connection = Connection::open(lists(&cluster, "one")).unwrap();
    let alter = |sql: &str| assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");

    alter("UPDATE runs SET state = 'succeeded', attempts = 4, error = 'nonsense'");
    alter("UPDATE run_labels SET value = 'fish'");
    alter("UPDATE run_texts SET arguments = ''");
    let view = replay(&gateway, &run).await;
    assert_eq!(view["is_equal"], false);
    let differences = view["differences"].as_array().unwrap();
    let found: Vec<_> = differences
        .iter()
        .map(|one| {
            assert_eq!(one["run"], json!(run));
            (
                one["place"].as_str().unwrap(),
                &one["log"],
                &one["read_model"],
            )
        })
        .collect();
    let error = json!({"code": "out_of_memory", "message": "as the test wants it", "retryable": true, "source": "capsule"});
    assert_eq!(
        found,
        [
            ("/arguments_indexed", &json!("{\"fails\":true}"), &json!("")),
            ("/attempts", &json!(1), &json!(4)),
            ("/error", &error, &json!("nonsense")),
            ("/labels_indexed/team", &json!("birds"), &json!("fish")),
            ("/state", &json!("failed"), &json!("succeeded")),
        ]
    );

    // One run is missing in the lists, and one is only there.
    alter("UPDATE runs SET id = id || '-INVENTED'");
    let view = replay(&gateway, &run).await;
    let differences = view["differences"].as_array().unwrap();
    let found: Vec<_> = differences
        .iter()
        .map(|one| {
            (
                &one["run"],
                one["log"].is_null(),
                one["read_model"].is_null(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (&json!(run), false, true),
            (&json!(format!("{run}-INVENTED")), true, false)
        ]
    );
}

#[tokio::test]
async fn broken_history_is_reported() {
    let (cluster, gateway, _node) = cluster().await;
    let run = run(&gateway, json!({})).await;
    let id: RunId = run.parse().unwrap();
    let event = Event::CancelRequested(CancelRequested {
        requested_by: "forger".into(),
        reason: String::new(),
    });
    let subject = event.subject(&Tenant::default(), id);
    let event = CloudEvent::new(cluster.runs.header(), run.clone(), None, event);
    let forged = Append {
        subject,
        guard: Guard::None,
        id: event.id.to_string(),
        bytes: event.encode().unwrap().into(),
    };
    let sequence = cluster.ports.log.append(forged).await.unwrap();
    let answer = gateway.get(&format!("/v1/runs/{run}/replay")).await;
    let detail = answer.expect(500)["detail"].as_str().unwrap().to_owned();
    let expected = format!(
        "the events of {run} are damaged: event {sequence} of {run} contradicts the earlier events: the event names another event as its predecessor"
    );
    assert_eq!(detail, expected);
    // The history before that event is valid.
    let path = format!("/v1/runs/{run}/at/{}", sequence - 1);
    assert_eq!(
        gateway.get(&path).await.expect(200)["tree"]["phase"],
        "ended"
    );
}

#[tokio::test]
async fn comparison_of_runs_reports_arguments_and_outputs() {
    let (_cluster, gateway, _node) = cluster().await;
    let one = run(&gateway, json!({"text": "a", "list": [1, 2]})).await;
    let same = run(&gateway, json!({"text": "a", "list": [1, 2]})).await;
    let other = run(&gateway, json!({"text": "b", "list": [1, 2]})).await;
    let failed = run(&gateway, json!({"fails": true})).await;
    let difference = async |left: &str, right: &str| {
        let path = format!("/v1/runs/{left}/diff/{right}");
        gateway.get(&path).await.expect(200)
    };
    let places = |view: &Value| -> Vec<String> {
        let differences = view["runs"][0]["differences"].as_array().unwrap();
        let places = differences.iter().map(|one| one["place"].as_str().unwrap());
        places.map(str::to_owned).collect()
    };
    let view = difference(&one, &same).await;
    assert_eq!(
        (&view["is_same"], &view["compared"]),
        (&json!(true), &json!(1)),
        "{view:#}"
    );
    let view = difference(&one, &other).await;
    assert_eq!(view["is_same"], false);
    assert_eq!(places(&view), ["/arguments/text", "/output/text"]);
    let found = &view["runs"][0]["differences"][0];
    assert_eq!(
        (&found["left"], &found["right"]),
        (&json!("a"), &json!("b"))
    );
    let view = difference(&one, &failed).await;
    let expected = [
        "/arguments/fails",
        "/arguments/list",
        "/arguments/text",
        "/error",
        "/outcome",
        "/output",
    ];
    assert_eq!(places(&view), expected);
    let nobody = RunId::root_of(uuid::Uuid::from_u128(7));
    let unknown = gateway.get(&format!("/v1/runs/{one}/diff/{nobody}")).await;
    assert_eq!(unknown.expect(404)["code"], "unknown_run");
}
