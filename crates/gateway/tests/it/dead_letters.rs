//! Dead letters: how runs become dead letters, and how operators requeue and purge them.

use aod_domain::capsule::Handoffs;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::handoff::given_key;
use aod_domain::id::{GatewayId, IncarnationId, NodeId, RunId};
use aod_domain::run::{
    ATTEMPTS_LOST_MAX, Command, DELIVERIES_COUNTED_MAX, DELIVERIES_MAX, DELIVERIES_UNCOUNTED,
    Delivered, Holder, RunError, WorkPosition,
};
use aod_ports::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::harness::{Client, Cluster, any_schema};
use crate::node::{ScriptedNode, Taken};

fn work(delivery: u64) -> WorkPosition {
    WorkPosition {
        queue_created_ms: 1,
        sequence: 1,
        delivery,
    }
}

/// The command of a node that leases a run at this `delivery`, and its token.
fn lease(delivery: u64) -> (Command, String) {
    let token = Digest::of(format!("token {delivery}")).to_string();
    let holder = Holder::Node {
        node: NodeId::new(SystemClock.fresh_uuid()),
        incarnation: IncarnationId::new(SystemClock.fresh_uuid()),
        work: work(delivery),
        ack_subject: format!("ack.{delivery}"),
        token_sha256: Digest::of(&token),
    };
    let is_holder_gone = false;
    let command = Command::Lease {
        holder,
        is_holder_gone,
    };
    (command, token)
}

async fn handle(cluster: &Cluster, run: RunId, command: Command) {
    cluster.runs.handle(run, &command, None).await.unwrap();
}

/// Loses every attempt that `run` may lose.
pub(crate) async fn lose(cluster: &Cluster, run: RunId) {
    for attempt in 1..=ATTEMPTS_LOST_MAX {
        handle(cluster, run, lease(attempt.into()).0).await;
        let error = RunError::new(ErrorCode::RuntimeFailed, format!("engine {attempt} failed"));
        handle(cluster, run, Command::LoseAttempt { attempt, error }).await;
    }
}

async fn result(gateway: &Client, run: RunId) -> Value {
    let path = format!("/v1/runs/{run}/result?wait=50");
    gateway.get(&path).await.expect(200)
}

async fn listed(gateway: &Client, query: &str, at_least: &str) -> Vec<(String, String)> {
    let path = format!("/v1/deadletters?at_least={at_least}{query}");
    let page = gateway.get(&path).await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| (text(&item["run"]["id"]), text(&item["dead_letter"])))
        .collect()
}

fn pair(run: RunId, state: &str) -> Vec<(String, String)> {
    vec![(run.to_string(), state.to_owned())]
}

#[tokio::test]
async fn five_lost_attempts_make_a_dead_letter_that_is_requeued_once() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (gateway, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let run = gateway.start_run("echo", json!({"text": "again"})).await;
    lose(&cluster, run).await;
    let result = result(&gateway, run).await;
    assert_eq!(
        (&result["state"], &result["error"]["code"]),
        (&json!("failed"), &json!("dead_letter"))
    );
    let message = "5 attempts ended without a result; the last: engine 5 failed (runtime_failed)";
    assert_eq!(result["error"]["message"], message);
    let sequence = result["sequence"].to_string();
    assert_eq!(listed(&gateway, "", &sequence).await, pair(run, "open"));

    let path = format!("/v1/deadletters/{run}");
    let view = gateway.get(&path).await.expect(200);
    assert_eq!(
        (&view["reason"], &view["deliveries"]),
        (&json!("attempts_lost"), &json!(5))
    );
    let attempts = view["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 6, "{view}");
    assert_eq!(attempts[2]["error"]["message"], "engine 3 failed");
    assert!(
        attempts[2]["node"].is_string() && attempts[5]["node"].is_null(),
        "{view}"
    );

    let answer = gateway.post(&format!("{path}/requeue"), &json!({})).await;
    let requeued = answer.expect(202);
    assert_eq!(requeued["requeued_from"], json!(run));
    assert_ne!(requeued["id"], json!(run));
    // A repeated request at any gateway returns the same run.
    let again = other
        .post(&format!("{path}/requeue"), &json!({}))
        .await
        .expect(202);
    assert_eq!(again["id"], requeued["id"]);
    let purged = other
        .post(&format!("{path}/purge"), &json!({}))
        .await
        .expect(200);
    assert_eq!(
        (&purged["dead_letter"], &purged["requeued_as"]),
        (&json!("requeued"), &requeued["id"])
    );
    let at_least = answer.header("aod-sequence");
    assert_eq!(listed(&gateway, "", at_least).await, []);
    assert_eq!(
        listed(&gateway, "&all=true", at_least).await,
        pair(run, "requeued")
    );
    let replayed = gateway.get(&format!("/v1/runs/{run}/replay")).await;
    assert_eq!(replayed.expect(200)["is_equal"], true, "{replayed:?}");

    let _node = ScriptedNode::echo(&cluster).await;
    let path = format!(
        "/v1/runs/{}/result?wait=50",
        requeued["id"].as_str().unwrap()
    );
    assert_eq!(
        gateway.get(&path).await.expect(200)["output"],
        json!({"text": "again"})
    );
}

#[tokio::test]
async fn launch_without_lease_is_dead_lettered_and_purged() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let run = gateway.start_run("echo", json!({})).await;
    for number in 1..=u64::from(DELIVERIES_COUNTED_MAX) + 1 {
        let view = gateway.get(&format!("/v1/runs/{run}")).await.expect(200);
        assert_eq!(view["state"], "queued", "{view}");
        let delivered = Delivered {
            node: NodeId::new(SystemClock.fresh_uuid()),
            work: work(DELIVERIES_UNCOUNTED + number),
        };
        handle(&cluster, run, Command::CountDelivery(delivered)).await;
    }
    let result = result(&gateway, run).await;
    assert_eq!(result["error"]["code"], "dead_letter");
    assert_eq!(result["error"]["detail"]["reason"], "not_leased");
    let path = format!("/v1/deadletters/{run}");
    let view = gateway.get(&path).await.expect(200);
    assert_eq!(view["deliveries"], json!(DELIVERIES_MAX + 1));
    for _ in 0..2 {
        let answer = gateway.post(&format!("{path}/purge"), &json!({})).await;
        assert_eq!(answer.expect(200)["dead_letter"], "purged");
        let at_least = answer.header("aod-sequence");
        assert_eq!(listed(&gateway, "", at_least).await, []);
        assert_eq!(
            listed(&gateway, "&all=true", at_least).await,
            pair(run, "purged")
        );
    }
    // The log still contains the run.
    let result = gateway.get(&format!("/v1/runs/{run}/result")).await;
    assert_eq!(result.expect(200)["error"]["code"], "dead_letter");
}

/// The caller of a dead-lettered callee gets its error; the callee is requeued as a root.
#[tokio::test]
async fn dead_lettered_callee_is_requeued_as_root() {
    let cluster = Cluster::start().await;
    cluster
        .register("family", &any_schema(), Handoffs::Open)
        .await;
    let gateway = cluster.gateway("one").await;
    let parent = gateway.start_run("family", json!({})).await;
    let (taking, token) = lease(1);
    handle(&cluster, parent, taking).await;
    let key = given_key("k");
    let body = json!({"attempt": 1, "target": "family", "arguments": {"n": 1}, "call_key": key});
    let path = format!("/internal/v1/runs/{parent}/calls");
    let call = gateway
        .without_token("POST", &path)
        .bearer_auth(token)
        .json(&body);
    let call = tokio::spawn(async move { crate::harness::send(call).await });
    let child = parent.child(&key);
    let path = format!("/v1/runs/{child}");
    gateway.until(&path, |view| view["state"] == "queued").await;
    lose(&cluster, child).await;
    let lines = call.await.unwrap().body;
    let last = String::from_utf8_lossy(&lines)
        .lines()
        .last()
        .unwrap()
        .to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["ended"]["error"]["code"], "dead_letter", "{last}");
    let path = format!("/v1/deadletters/{child}/requeue");
    let requeued = gateway.post(&path, &json!({})).await.expect(202);
    assert_eq!(
        (&requeued["parent"], &requeued["root"]),
        (&json!(null), &requeued["id"])
    );
    assert_eq!(requeued["arguments"], json!({"n": 1}));
}

#[tokio::test]
async fn run_that_was_not_dead_lettered_is_unknown_as_dead_letter() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::start(&cluster, async |taken: Taken| {
        taken.fail(ErrorCode::CapsuleExit)
    })
    .await;
    let failed = gateway.run(&json!({"capsule": "echo"})).await;
    let failed = failed["id"].as_str().unwrap();
    for id in [
        failed,
        &RunId::root_of(SystemClock.fresh_uuid()).to_string(),
    ] {
        let path = format!("/v1/deadletters/{id}");
        assert_eq!(
            gateway.get(&path).await.expect(404)["code"],
            "unknown_dead_letter"
        );
        for action in ["requeue", "purge"] {
            let answer = gateway.post(&format!("{path}/{action}"), &json!({})).await;
            assert_eq!(
                answer.expect(404)["code"],
                "unknown_dead_letter",
                "{action}"
            );
        }
    }
    let problem = gateway.get("/v1/deadletters?state=open").await.expect(400);
    assert_eq!(problem["errors"][0]["pointer"], "?state");
}

#[tokio::test]
async fn run_past_its_queue_time_ends_and_shows_its_limits() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let bad = json!({"capsule": "echo", "limits": {"queue_seconds": 0, "run_seconds": 1}});
    let problem = gateway.post("/v1/runs", &bad).await.expect(400);
    let errors = problem["errors"].as_array().unwrap().iter();
    let pointers: Vec<_> = errors.map(|error| error["pointer"].as_str()).collect();
    assert_eq!(
        pointers,
        ["/limits/queue_seconds", "/limits/run_seconds"].map(Some)
    );

    let body = json!({"capsule": "echo", "limits": {"queue_seconds": 1, "collection_seconds": 7}});
    let view = gateway.post("/v1/runs", &body).await.expect(202);
    let limits = json!({
        "queue_seconds": 1, "preparation_seconds": 900, "heartbeat_seconds": null, "collection_seconds": 7,
    });
    assert_eq!(view["limits"], limits);
    assert!(
        view["queued_until"].is_string() && view["deadline"].is_string(),
        "{view}"
    );
    let result = result(&gateway, view["id"].as_str().unwrap().parse().unwrap()).await;
    assert_eq!(
        (&result["state"], &result["error"]["code"]),
        (&json!("timed_out"), &json!("queue_timed_out"))
    );
    assert_eq!(
        result["error"]["message"],
        "no node took the run within 1 s: no node in pool any"
    );
    let view = gateway
        .post("/v1/runs", &json!({"capsule": "echo"}))
        .await
        .expect(202);
    assert_eq!(
        (&view["limits"]["queue_seconds"], &view["queued_until"]),
        (&json!(null), &json!(null))
    );
}

/// A gateway leased a run in order to end it, and died. Without nodes, only another gateway can end the run.
#[tokio::test]
async fn run_leased_by_dead_gateway_is_ended_by_another() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let body = json!({"capsule": "echo", "limits": {"queue_seconds": 1}});
    let view = gateway.post("/v1/runs", &body).await.expect(202);
    let run: RunId = view["id"].as_str().unwrap().parse().unwrap();
    let holder = Holder::Gateway {
        gateway: GatewayId::new(SystemClock.fresh_uuid()),
    };
    let lease_seconds = crate::harness::LEASE_SECONDS;
    let taking = Command::TakeOverToEnd {
        holder,
        lease_seconds,
    };
    handle(&cluster, run, taking).await;
    let result = result(&gateway, run).await;
    assert_eq!(
        (&result["attempt"], &result["error"]["code"]),
        (&json!(2), &json!("queue_timed_out"))
    );
}
