//! Runs: requests, waiting, views on any gateway, files.

use std::time::Duration;

use aod_domain::capsule::Handoffs;
use aod_gateway::Config;
use serde_json::json;

use crate::harness::{Client, Cluster, send, table_schema};
use crate::node::ScriptedNode;

#[tokio::test]
async fn run_returns_its_result() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;

    let view = gateway
        .run(&json!({"capsule": "The echo", "arguments": {"word": "hello"}}))
        .await;

    assert_eq!(view["state"], "succeeded");
    assert_eq!(view["capsule"], "echo");
    assert_eq!(view["requested_by"], "tester");
    assert_eq!(view["result"]["output"], json!({"word": "hello"}));
    assert_eq!(view["result"]["success"], true);
    let path = format!("/v1/runs/{}/result", view["id"].as_str().unwrap());
    assert_eq!(gateway.get(&path).await.expect(200), view["result"]);
}

#[tokio::test]
async fn every_gateway_shows_a_new_run_immediately() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    for number in 0..100 {
        let id = one.start_run("echo", json!({"number": number})).await;
        let view = other.get(&format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!(view["arguments"]["number"], number);
        assert_eq!(view["state"], "queued");
    }
}

#[tokio::test]
async fn a_result_is_awaited_on_another_gateway() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let id = one.start_run("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/result");
    assert_eq!(other.get(&path).await.expect(202)["state"], "queued");
    let waiting = tokio::spawn(async move { other.get(&format!("{path}?wait=50")).await });
    let _node = ScriptedNode::echo(&cluster).await;
    assert_eq!(waiting.await.unwrap().expect(200)["state"], "succeeded");
}

#[tokio::test]
async fn request_with_same_key_joins_the_run() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let ask = async |gateway: &crate::harness::Client, word: &str| {
        let body = json!({"capsule": "echo", "arguments": {"word": word}});
        send(
            gateway
                .request("POST", "/v1/runs")
                .header("idempotency-key", "k1")
                .json(&body),
        )
        .await
    };
    let first = ask(&one, "a").await.expect(202)["id"].clone();
    assert_eq!(ask(&other, "a").await.expect(202)["id"], first);
    assert_eq!(ask(&other, "b").await.expect(409)["code"], "key_reused");
}

#[tokio::test]
async fn files_travel_in_both_directions() {
    let cluster = Cluster::start().await;
    cluster
        .register("table", &table_schema(), Handoffs::Listed(vec![]))
        .await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();

    let request = json!({"capsule": "table", "arguments": {"table": "in/a b.csv"}}).to_string();
    let form = reqwest::multipart::Form::new()
        .part(
            "in/a b.csv",
            reqwest::multipart::Part::bytes(bytes.clone()).file_name("whatever"),
        )
        .part("request", reqwest::multipart::Part::text(request));
    let view = send(
        gateway
            .request("POST", "/v1/runs")
            .header("prefer", "wait=50")
            .multipart(form),
    )
    .await
    .expect(200);

    assert_eq!(
        view["arguments"],
        json!({"table": "in/a b.csv", "rows": 10}),
        "defaults are applied"
    );
    let file = &view["result"]["files"][0];
    assert_eq!(file["size_bytes"], 3_000_000);
    let url = file["url"].as_str().unwrap();
    let whole = gateway.get(url).await;
    assert_eq!((whole.status, whole.body.as_ref()), (200, bytes.as_slice()));
    let etag = whole.header("etag").to_owned();
    assert_eq!(etag, format!("{:?}", file["digest"].as_str().unwrap()));
    let part = send(gateway.request("GET", url).header("range", "bytes=10-19")).await;
    assert_eq!((part.status, part.body.as_ref()), (206, &bytes[10..20]));
    assert_eq!(part.header("content-range"), "bytes 10-19/3000000");
    let last = send(gateway.request("GET", url).header("range", "bytes=-5")).await;
    assert_eq!(
        (last.status, last.body.as_ref()),
        (206, &bytes[bytes.len() - 5..])
    );
    let unchanged = send(gateway.request("GET", url).header("if-none-match", etag)).await;
    assert_eq!(unchanged.status, 304);
    let beyond = send(
        gateway
            .request("GET", url)
            .header("range", "bytes=3000000-"),
    )
    .await;
    assert_eq!(beyond.expect(416)["code"], "request_malformed");
    let inputs = gateway.get(&url.replace("/files/", "/inputs/")).await;
    assert_eq!(inputs.body, bytes);
}

#[tokio::test]
async fn request_can_refer_to_uploaded_file() {
    let cluster = Cluster::start().await;
    cluster
        .register("table", &table_schema(), Handoffs::Listed(vec![]))
        .await;
    let gateway = cluster.gateway("one").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let uploaded = send(gateway.request("POST", "/v1/files").body("a,b\n1,2\n"))
        .await
        .expect(201);
    assert_eq!(uploaded["size_bytes"], 8);
    let files = json!([{"name": "t.csv", "file": uploaded["file"]}]);
    let view = gateway
        .run(
            &json!({"capsule": "table", "arguments": {"table": "/io/input/t.csv"}, "files": files}),
        )
        .await;
    assert_eq!(
        view["arguments"]["table"], "t.csv",
        "a declared reference becomes a bare name"
    );
    assert_eq!(view["result"]["files"][0]["digest"], uploaded["digest"]);
    let path = format!("/v1/files/{}", uploaded["digest"].as_str().unwrap());
    assert_eq!(gateway.get(&path).await.body, "a,b\n1,2\n");
}

#[tokio::test]
async fn a_large_payload_becomes_an_artifact() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let text = "word ".repeat(10_000);
    let id = gateway.start_run("echo", json!({"text": text})).await;
    let run = cluster.runs.load(id).await.unwrap().unwrap();
    assert!(matches!(
        run.launched.event.payload,
        aod_domain::run::Payload::Artifact { .. }
    ));
    let view = gateway.get(&format!("/v1/runs/{id}")).await.expect(200);
    assert_eq!(view["arguments"]["text"], text);
}

#[tokio::test]
async fn waiting_run_reports_its_reason() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let body = json!({"capsule": "echo", "pool": "gpu"});
    let id = gateway.post("/v1/runs", &body).await.expect(202)["id"].clone();
    let view = gateway
        .get(&format!("/v1/runs/{}", id.as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(view["waits_for"], "no node in pool gpu");
}

/// Waits until the metrics of `gateway` contain `line`.
async fn until_metrics_contain(gateway: &Client, line: &str) {
    let deadline = tokio::time::Instant::now() + crate::harness::PATIENCE;
    loop {
        let metrics = String::from_utf8(gateway.get("/metrics").await.body.to_vec()).unwrap();
        if metrics.contains(line) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{metrics}");
    }
}

#[tokio::test]
async fn lag_of_the_lists_is_a_metric() {
    let cluster = Cluster::start().await;
    let idle = cluster
        .gateway_of(Config {
            lists_delay: Duration::from_secs(3_600),
            ..cluster.config("idle")
        })
        .await;
    let usual = cluster.gateway("usual").await;
    cluster.register_echo().await;
    usual.start_run("echo", json!({})).await;
    until_metrics_contain(&usual, "aod_gateway_read_model_sequence 2\n").await;
    until_metrics_contain(&usual, "aod_gateway_read_model_lag 0\n").await;
    until_metrics_contain(&idle, "aod_gateway_read_model_lag 2\n").await;
}

#[tokio::test]
async fn stopping_gateway_answers_waiting_callers() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let (one, other) = (cluster.gateway("one").await, cluster.gateway("other").await);
    let id = one.start_run("echo", json!({})).await;
    let waiting = other.request("GET", &format!("/v1/runs/{id}/result?wait=60"));
    let waiting = tokio::spawn(async move { send(waiting).await });
    // The request has arrived as soon as the metric counts it.
    until_metrics_contain(&other, "aod_gateway_waiters 1\n").await;
    other.gateway.shutdown().await;
    assert_eq!(waiting.await.unwrap().expect(202)["state"], "queued");
}

#[tokio::test]
async fn waiting_survives_a_restart_of_the_broker() {
    let mut cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let id = gateway.start_run("echo", json!({})).await;
    let waiting = gateway.request("GET", &format!("/v1/runs/{id}/result?wait=50"));
    let waiting = tokio::spawn(async move { send(waiting).await });
    cluster.server.restart();
    let _node = ScriptedNode::echo(&cluster).await;
    assert_eq!(waiting.await.unwrap().expect(200)["state"], "succeeded");
}

#[tokio::test]
async fn disconnect_of_caller_detaches_or_cancels_its_run() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let abandon = async |policy: &str| {
        let mut body = json!({"capsule": "echo", "labels": {"policy": policy}});
        if policy != "default" {
            body["on_disconnect"] = policy.into();
        }
        let request = gateway.request("POST", "/v1/runs").json(&body);
        let asking = tokio::spawn(send(request.header("prefer", "wait=50")));
        let is_listed = |page: &serde_json::Value| page["items"][0]["labels"]["policy"] == policy;
        let page = gateway.until("/v1/runs", is_listed).await;
        asking.abort();
        format!("/v1/runs/{}", page["items"][0]["id"].as_str().unwrap())
    };
    let cancelled = abandon("cancel").await;
    let view = gateway
        .until(&cancelled, |run| run["state"] == "cancelled")
        .await;
    assert_eq!(view["cancel"]["reason"], "the waiting caller disconnected");

    let detached = abandon("default").await;
    let _node = ScriptedNode::echo(&cluster).await;
    let view = gateway.get(&format!("{detached}/result?wait=50")).await;
    assert_eq!(view.expect(200)["state"], "succeeded");
}

#[tokio::test]
async fn invalid_retries_and_policies_are_reported_together() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let gateway = cluster.gateway("one").await;
    let body = json!({
        "capsule": "echo", "retries": {"capsule": 21, "platform": 1}, "on_disconnect": "wait",
    });
    let problem = gateway.post("/v1/runs", &body).await.expect(400);
    let errors = problem["errors"].as_array().unwrap().iter();
    let pointers: Vec<_> = errors.map(|error| error["pointer"].as_str()).collect();
    let expected = ["/retries/capsule", "/retries/platform", "/on_disconnect"];
    assert_eq!(pointers, expected.map(Some), "{problem}");
    let good = json!({"capsule": "echo", "retries": {"time": 3}, "on_disconnect": "detach"});
    let view = gateway.post("/v1/runs", &good).await.expect(202);
    assert_eq!(view["retries"], json!({"capsule": 0, "time": 3}));
    assert_eq!(view["failed"], json!({"capsule": 0, "time": 0}));
}
