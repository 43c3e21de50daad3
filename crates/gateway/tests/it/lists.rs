//! Lists: filters, pages, `as_of`, and rebuilding.

use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::CloudEvent;
use aod_domain::id::{EventId, RunId};
use aod_domain::run::{Command, Ended, Launched, Outcome, RunError, fixtures};
use aod_domain::spending::{self, Answered, Cost, ModelCall, Settled, Tokens};
use aod_domain::subject::{Class, Pool};
use aod_domain::tenant::Tenant;
use aod_gateway::Config;
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::event_log::{Append, Guard};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::harness::{Client, Cluster, PATIENCE, send};
use crate::node::ScriptedNode;

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn list(gateway: &Client, query: &str, at_least: &str) -> Value {
    gateway
        .get(&format!("/v1/runs?at_least={at_least}&{query}"))
        .await
        .expect(200)
}

#[tokio::test]
async fn runs_are_found_by_state_capsule_label_and_text() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let node = ScriptedNode::echo_or_fail(&cluster).await;
    let good = gateway.run(&json!({"capsule": "echo", "arguments": {"text": "penguins of Palmer"}, "labels": {"team": "a"}})).await;
    let bad = gateway
        .run(&json!({"capsule": "echo", "arguments": {"fails": true}, "labels": {"team": "b"}}))
        .await;
    drop(node);
    let queued = gateway
        .post("/v1/runs", &json!({"capsule": "echo", "pool": "gpu"}))
        .await;
    let at_least = queued.header("aod-sequence");
    let id = |view: &Value| view["id"].as_str().unwrap().to_owned();
    let (good, bad, queued) = (id(&good), id(&bad), id(&queued.json()));

    let check = async |query: &str, expected: &[&String]| {
        let found = list(&gateway, query, at_least).await;
        assert_eq!(ids(&found).iter().collect::<Vec<_>>(), expected, "{query}");
    };
    check("", &[&queued, &bad, &good]).await;
    check("state=succeeded", &[&good]).await;
    check("state=failed,queued", &[&queued, &bad]).await;
    check("state=failed&state=succeeded", &[&bad, &good]).await;
    check("capsule=echo&label=team=b", &[&bad]).await;
    check("label=team=c", &[]).await;
    check("text=penguins%20palmer", &[&good]).await;
    check("text=out_of_memory", &[&bad]).await;
    check("text=%22)%20OR%20*", &[]).await;
    check("capsule=other", &[]).await;
    check("roots=true&limit=1", &[&queued]).await;
    check(&format!("id={}", &good[..good.len() - 1]), &[&good]).await;
    check("id=run_&state=failed", &[&bad]).await;
    check("id=run_~", &[]).await;
    let requested_at = |view: &Value| view["requested_at"].as_str().unwrap().to_owned();
    let bad_at = requested_at(&list(&gateway, "state=failed", at_least).await["items"][0]);
    check(&format!("since={bad_at}"), &[&queued, &bad]).await;
    check(&format!("until={bad_at}"), &[&good]).await;
    check(&format!("since={bad_at}&label=team=b&text=memory"), &[&bad]).await;
    check("until=2020-01-01T00:00:00Z", &[]).await;

    let page = list(&gateway, "limit=2", at_least).await;
    assert_eq!(ids(&page), [queued.clone(), bad.clone()]);
    assert!(page["as_of"].as_u64().unwrap() >= at_least.parse().unwrap());
    let next = list(
        &gateway,
        &format!("limit=2&cursor={}", page["next"].as_str().unwrap()),
        at_least,
    )
    .await;
    assert_eq!((ids(&next), &next["next"]), (vec![good], &json!(null)));
    let error = &list(&gateway, "state=failed", at_least).await["items"][0]["error"];
    assert_eq!(error["code"], "out_of_memory");
}

#[tokio::test]
async fn ended_run_is_listed_with_its_result_immediately() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let config = Config {
        lists_delay: Duration::from_secs(1),
        ..cluster.config("one")
    };
    let gateway = cluster.gateway_of(config).await;
    let _node = ScriptedNode::echo(&cluster).await;
    gateway.run(&json!({"capsule": "echo"})).await;
    let listed = gateway.get("/v1/runs").await.expect(200);
    assert_eq!(listed["items"][0]["state"], "succeeded");
}

#[tokio::test]
async fn invalid_queries_are_rejected_with_all_problems() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let problem = gateway
        .get("/v1/runs?state=lost&limit=x&label=a&other=1")
        .await
        .expect(400);
    let places: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["pointer"])
        .collect();
    assert_eq!(places, ["?state", "?label", "?limit", "?other"]);
    assert_eq!(
        gateway.get("/v1/runs?cursor=zz").await.expect(400)["code"],
        "request_malformed"
    );
}

#[tokio::test]
async fn missing_or_foreign_lists_are_rebuilt() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let id = gateway.start_run("echo", json!({})).await.to_string();
    let known = gateway
        .until("/v1/runs", |page| !ids(page).is_empty())
        .await;
    assert_eq!(ids(&known), std::slice::from_ref(&id));
    gateway.gateway.shutdown().await;

    // The gateway continues at its position.
    let again = cluster.gateway("one").await;
    again
        .until("/v1/runs", |page| ids(page) == [id.clone()])
        .await;
    again.gateway.shutdown().await;

    // Another log begins with other events.
    let other = Cluster::start().await;
    other.register_echo().await;
    let config = cluster.config("one");
    let gateway = other.gateway_of(config).await;
    let new = gateway.start_run("echo", json!({})).await.to_string();
    gateway
        .until("/v1/runs", |page| ids(page) == [new.clone()])
        .await;
    gateway.gateway.shutdown().await;

    // The gateway also replaces a file that is not a database.
    let config = other.config("broken");
    std::fs::create_dir_all(&config.data_directory).unwrap();
    for entry in std::fs::read_dir(cluster.config("one").data_directory).unwrap() {
        let path = config.data_directory.join(entry.unwrap().file_name());
        std::fs::write(path, "no database, whatever it is").unwrap();
    }
    let gateway = other.gateway_of(config).await;
    gateway
        .until("/v1/runs", |page| ids(page) == [new.clone()])
        .await;
}

/// The gateway applies events slowly.
#[tokio::test]
async fn queue_lost_with_the_lists_restarts_at_first_unended_run() {
    let cluster = Cluster::start().await;
    let (ended, alive) = (new_root(), new_root());
    launch(&cluster, ended).await;
    for command in [lease(), end()] {
        cluster.runs.handle(ended, &command, None).await.unwrap();
    }
    launch(&cluster, alive).await;
    remove_queue(&cluster).await;
    let config = Config {
        lists_delay: Duration::from_secs(2),
        ..cluster.config("one")
    };
    let _gateway = cluster.gateway_of(config).await;

    let (queue, pool) = (&cluster.ports.queue, Pool::any());
    let pulled = tokio::time::timeout(PATIENCE, async {
        loop {
            // The queue is missing at first.
            match queue.pull(&pool, Class::Root, 1, PATIENCE).await {
                Ok(pulled) if !pulled.is_empty() => return pulled,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(pulled.await.unwrap()[0].run, alive);
}

/// Removes the queue's stream, as an operator may.
async fn remove_queue(cluster: &Cluster) {
    let connection = TcpStream::connect(cluster.server.address()).await.unwrap();
    let mut connection = BufReader::new(connection);
    let request = "CONNECT {\"verbose\":false}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.DELETE.WORK answer 0\r\n\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    while !line.contains("\"success\"") {
        line.clear();
        let read = connection.read_line(&mut line).await.unwrap();
        assert!(read > 0 && !line.contains("\"error\""), "{line}");
    }
}

#[tokio::test]
async fn cost_of_a_call_is_listed_once_for_its_run_and_the_runs_above() {
    let cluster = Cluster::start().await;
    let root = new_root();
    let child = root.child(&Digest::of("call"));
    launch(&cluster, root).await;
    let mut launched = fixtures::launched_child();
    launched.parent.as_mut().unwrap().run = root;
    let command = Command::Launch(launched.into());
    cluster.runs.handle(child, &command, None).await.unwrap();
    let call = EventId::new(SystemClock.fresh_uuid());
    for _ in 0..2 {
        settle(&cluster, call, child).await;
    }
    settle(&cluster, EventId::new(SystemClock.fresh_uuid()), root).await;
    let gateway = cluster.gateway("one").await;
    let page = gateway.get("/v1/runs").await.expect(200);
    let costs = page["items"].as_array().unwrap().iter();
    let costs: Vec<_> = costs.map(|run| &run["cost_usd"]).collect();
    assert_eq!(
        costs,
        [&json!(0.25), &json!(0.5)],
        "the callee, then the root"
    );
}

/// Stores the end of a model call that cost 25 cents.
async fn settle(cluster: &Cluster, call: EventId, run: RunId) {
    let settled = Settled {
        call: ModelCall {
            id: call,
            run,
            attempt: 1,
            provider: "openai".into(),
            model: "tiny".into(),
        },
        answered: Answered::Whole,
        status: Some(200),
        tokens: Some(Tokens::default()),
        cost: Cost::from_dollars(0.25),
        tools: Vec::new(),
        tool_calls: 0,
        is_streamed: false,
        first_byte_ms: None,
        duration_ms: 1,
        contents: None,
    };
    let event = spending::Event::Settled(Box::new(settled));
    let subject = event.subject(&Tenant::default());
    let event = CloudEvent::new(cluster.runs.header(), run.to_string(), None, event);
    let append = Append::of(subject, Guard::None, &event).unwrap();
    cluster.ports.log.append(append).await.unwrap();
}

fn new_root() -> RunId {
    RunId::root_of(SystemClock.fresh_uuid())
}

fn lease() -> Command {
    Command::Lease {
        holder: fixtures::node_holder(1, 1),
        is_holder_gone: false,
    }
}

fn end() -> Command {
    let error = RunError::new(ErrorCode::OutOfMemory, "as the test wants it");
    Command::End(Box::new(Ended::without_start(1, Outcome::Failed, error)))
}

async fn launch(cluster: &Cluster, run: RunId) {
    let launched = Launched {
        deadline: SystemClock.now() + SignedDuration::from_hours(1),
        ..fixtures::launched()
    };
    let launch = Command::Launch(launched.into());
    cluster.runs.handle(run, &launch, None).await.unwrap();
}

#[tokio::test]
async fn compatibility_view_shows_the_latest_runs() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let body = json!({"session_id": "whatever", "target": "The echo", "args": {"x": 1}});
    let answer = gateway.post("/handoff", &body).await.expect(200);
    assert_eq!(
        (&answer["success"], &answer["output"], &answer["error"]),
        (&json!(true), &json!({"x": 1}), &json!(null))
    );
    let body = json!({"capsule": "echo", "input": {"y": 2}, "unknown": "is ignored"});
    assert_eq!(
        gateway.post("/execute", &body).await.expect(200)["output"],
        json!({"y": 2})
    );
    let body = json!({"capsule": "nobody", "input": {}});
    let refused = gateway.post("/execute", &body).await.expect(200);
    assert_eq!(
        (&refused["success"], &refused["error_detail"]["code"]),
        (&json!(false), &json!("unknown_capsule"))
    );
    assert!(refused["error"].is_string());
    let body = json!({"capsule": "echo", "input": {}, "files": {"passwd": "/etc/passwd"}});
    assert_eq!(
        gateway.post("/execute", &body).await.expect(200)["error_detail"]["code"],
        "file_refused"
    );
    assert_eq!(
        send(
            gateway
                .request("POST", "/execute")
                .json(&json!({"input": []}))
        )
        .await
        .status,
        422
    );
    let state = gateway
        .until("/visualizer/state", |state| {
            state["nodes"].as_array().unwrap().len() == 2
        })
        .await;
    assert_eq!(state["nodes"][1]["id"], answer["session_id"]);
    assert_eq!(state["nodes"][1]["session_id"], answer["session_id"]);
    assert!(state["timestamp"].is_f64() && state["nodes"][0]["start_time"].is_f64());
    gateway
        .until("/visualizer/state", |state| {
            state["nodes"][0]["status"] == "completed"
        })
        .await;
}

#[tokio::test]
async fn path_of_a_host_in_file_or_files_is_refused_on_compatibility_routes() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let inputs = [
        (json!({"file": "/etc/os-release"}), "/file"),
        (
            json!({"files": ["a.txt", "../../etc/os-release"]}),
            "/files/1",
        ),
        (json!({"files": {"a": "/io/input/../x"}}), "/files/a"),
    ];
    for (input, place) in inputs {
        let execute = json!({"capsule": "echo", "input": input});
        let handoff = json!({"target": "echo", "args": input});
        for (route, root, body) in [
            ("/execute", "/input", execute),
            ("/handoff", "/args", handoff),
        ] {
            let refused = gateway.post(route, &body).await.expect(200);
            assert_eq!(refused["error_detail"]["code"], "file_refused", "{body}");
            let problem = &refused["error_detail"]["detail"]["errors"][0];
            assert_eq!(problem["pointer"], format!("{root}{place}"));
            let message = problem["message"].as_str().unwrap();
            assert!(message.contains("POST /v1/files"), "{message}");
        }
    }
    let body = json!({"capsule": "echo", "input": {"file": "a text", "other": "/etc"}});
    assert_eq!(
        gateway.post("/execute", &body).await.expect(200)["success"],
        true
    );
}

#[tokio::test]
async fn text_of_megabytes_is_taken_on_every_route_for_runs() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    // Escaped in JSON, so that the body is larger than the text.
    let input = json!({"text": "ein Satz\n".repeat(1 << 18)});
    let body = json!({"capsule": "echo", "input": input});
    let answer = gateway.post("/execute", &body).await.expect(200);
    assert_eq!(
        (&answer["success"], &answer["error"]),
        (&json!(true), &json!(null))
    );
    let body = json!({"target": "echo", "args": input});
    assert_eq!(
        gateway.post("/handoff", &body).await.expect(200)["success"],
        true
    );
    let body = json!({"capsule": "echo", "arguments": input});
    let run = gateway.post("/v1/runs", &body).await.expect(202);
    let run = run["id"].as_str().unwrap().to_owned();
    gateway
        .until(&format!("/v1/runs/{run}"), |run| {
            run["state"] == "succeeded"
        })
        .await;
}
