//! Runs that gateways must end because no node does.

use aod_domain::capsule::Handoffs;
use aod_domain::handoff::given_key;
use aod_domain::id::RunId;
use aod_domain::run::Command;
use aod_domain::subject::Class;
use serde_json::json;

use crate::harness::{Client, Cluster, PATIENCE, any_schema, send};
use crate::node::{Taken, lease, pull};

/// A root that the test holds, with a queued callee.
async fn family(cluster: &Cluster, gateway: &Client, deadline_seconds: u32) -> (Taken, RunId) {
    cluster
        .register("family", &any_schema(), Handoffs::Open)
        .await;
    let body = json!({"capsule": "family", "deadline_seconds": deadline_seconds});
    gateway.post("/v1/runs", &body).await.expect(202);
    let delivery = pull(cluster, Class::Root).await;
    let taken = lease(&cluster.runs, &delivery).await.unwrap();
    let child = taken.id().child(&given_key("k"));
    let body = json!({"attempt": 1, "target": "family", "arguments": {"n": 1}, "call_key": given_key("k")});
    let path = format!("/internal/v1/runs/{}/calls", taken.id());
    let request = gateway
        .without_token("POST", &path)
        .bearer_auth(&taken.token)
        .json(&body);
    tokio::spawn(async move { drop(request.send().await) });
    gateway
        .until(&format!("/v1/runs/{child}"), |view| {
            view["state"] == "queued"
        })
        .await;
    (taken, child)
}

#[tokio::test]
async fn cancelled_queued_run_ends_immediately() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let id = gateway.start_run("echo", json!({})).await;
    let delivery = pull(&cluster, Class::Root).await;
    let path = format!("/v1/runs/{id}/cancel");
    let view = gateway
        .post(&path, &json!({"reason": "a mistake"}))
        .await
        .expect(202);
    assert_eq!(view["state"], "cancelled");
    assert_eq!(
        view["cancel"],
        json!({"requested_by": "tester", "reason": "a mistake"})
    );
    assert_eq!(view["result"]["error"]["code"], "cancelled");
    assert_eq!(
        gateway.post(&path, &json!({})).await.expect(409)["code"],
        "run_ended"
    );
    // A node that receives the launch sees that the run has ended.
    assert!(lease(&cluster.runs, &delivery).await.is_none());
}

#[tokio::test]
async fn cancel_reaches_all_runs_below() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let (taken, child) = family(&cluster, &gateway, 3_600).await;
    let view = gateway
        .post(&format!("/v1/runs/{}/cancel", taken.id()), &json!({}))
        .await
        .expect(202);
    assert_eq!(view["cancel"]["requested_by"], "tester");
    assert_eq!(view["state"], "starting", "only its holder ends it");
    let child = gateway.get(&format!("/v1/runs/{child}")).await.expect(200);
    assert_eq!(child["state"], "cancelled");
    let body = json!({"attempt": 1, "target": "family", "arguments": {"n": 2}, "call_key": given_key("k2")});
    let path = format!("/internal/v1/runs/{}/calls", taken.id());
    let call = send(
        gateway
            .without_token("POST", &path)
            .bearer_auth(&taken.token)
            .json(&body),
    )
    .await;
    assert_eq!(call.expect(409)["code"], "cancelled");
}

#[tokio::test]
async fn the_callees_of_an_ended_run_are_cancelled() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let (taken, child) = family(&cluster, &gateway, 3_600).await;
    let ended = Command::End(Box::new(taken.echo()));
    cluster.runs.handle(taken.id(), &ended, None).await.unwrap();
    let view = gateway
        .until(&format!("/v1/runs/{child}"), |view| {
            view["state"] == "cancelled"
        })
        .await;
    assert_eq!(view["cancel"]["reason"], "its caller has ended");
}

#[tokio::test]
async fn queued_run_ends_at_its_deadline() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let body = json!({"capsule": "echo", "deadline_seconds": 1});
    let view = gateway.post("/v1/runs", &body).await.expect(202);
    let path = format!("/v1/runs/{}/result?wait=50", view["id"].as_str().unwrap());
    let result = gateway.get(&path).await.expect(200);
    assert_eq!(result["state"], "timed_out");
    assert_eq!(result["error"]["code"], "deadline_exceeded");
}

#[tokio::test]
async fn abandoned_run_is_ended_with_its_callees() {
    let cluster = Cluster::start().await;
    let (one, _other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let (taken, child) = family(&cluster, &one, 1).await;
    let result = one
        .get(&format!("/v1/runs/{}/result?wait=50", taken.id()))
        .await
        .expect(200);
    assert_eq!(result["state"], "timed_out");
    assert_eq!(result["attempt"], 2, "the gateway took the lease first");
    let run = cluster.runs.load(taken.id()).await.unwrap().unwrap();
    let child = cluster.runs.load(child).await.unwrap().unwrap();
    assert_eq!(
        run.ended().unwrap().event.children[0].hash,
        child.ended().unwrap().hash
    );
    // The holder returns too late.
    let ended = Command::End(Box::new(taken.echo()));
    assert!(cluster.runs.handle(taken.id(), &ended, None).await.is_err());
}

#[tokio::test]
async fn burst_of_roots_leaves_log_space_for_running_trees() {
    let limits = aod_jetstream::StreamLimits {
        events_bytes_max: 1 << 20,
        ..Default::default()
    };
    let cluster = Cluster::start_with(limits).await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let body = json!({"capsule": "echo", "arguments": {"text": "x".repeat(12_000)}});
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let refusal = loop {
        let answer = gateway.post("/v1/runs", &body).await;
        if answer.status != 202 {
            break answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the log never fills"
        );
    };
    let problem = refusal.expect(503);
    assert_eq!(problem["code"], "log_full");
    assert_eq!(refusal.header("retry-after"), "2");
    // Existing runs can still run to their end.
    let delivery = pull(&cluster, Class::Root).await;
    let taken = lease(&cluster.runs, &delivery).await.unwrap();
    let ended = Command::End(Box::new(taken.echo()));
    cluster.runs.handle(taken.id(), &ended, None).await.unwrap();
}
