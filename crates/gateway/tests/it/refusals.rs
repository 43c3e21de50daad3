//! Every error is problem+json with all problems; the tests compare whole answers.

use std::net::SocketAddr;

use aod_domain::capsule::Handoffs;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_gateway::{Access, Config, Gateway, ROUTES, StartError, Token};
use aod_ports::presence::{Member, NodeMember, Place};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Answer, Client, Cluster, PATIENCE, TOKEN, send, table_schema};
use crate::node::ScriptedNode;

/// The whole problem, without fields that differ each time.
fn whole(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let mut problem = answer.json();
    assert_eq!(problem["status"], answer.status);
    assert_eq!(problem["success"], false);
    assert_eq!(problem["request_id"], answer.header("aod-request-id"));
    problem.as_object_mut().unwrap().remove("request_id");
    problem.as_object_mut().unwrap().remove("success");
    problem
}

async fn table_gateway() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster
        .register("table", &table_schema(), Handoffs::Listed(vec![]))
        .await;
    let gateway = cluster.gateway("one").await;
    (cluster, gateway)
}

#[tokio::test]
async fn bad_request_reports_all_problems_together() {
    let (_cluster, gateway) = table_gateway().await;
    let body = json!({
        "capsul": "table", "arguments": [], "pool": "A B", "timeout_seconds": 0,
        "files": [{"name": "../x", "file": "aod:file/0"}, {"name": "x", "file": "/etc/passwd"}],
    });
    insta::assert_json_snapshot!(whole(&gateway.post("/v1/runs", &body).await));
}

#[tokio::test]
async fn request_with_numbers_that_64_bits_cannot_hold_is_refused_with_their_places() {
    let (_cluster, gateway) = table_gateway().await;
    let body = r#"{"capsule": "table", "arguments": {"rows": 18446744073709551616, "other": [0.1, 1e400]}}"#;
    let request = gateway.request("POST", "/v1/runs");
    let request = request
        .header("content-type", "application/json")
        .body(body);
    let problem = whole(&send(request).await);
    assert_eq!(problem["code"], "request_malformed");
    let errors = problem["errors"].as_array().unwrap().iter();
    let pointers: Vec<_> = errors
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, ["/arguments/rows", "/arguments/other/1"]);
}

#[tokio::test]
async fn invalid_arguments_are_reported_with_their_places() {
    let (_cluster, gateway) = table_gateway().await;
    let body = json!({"capsule": "table", "arguments": {"rows": "many", "other": 1}});
    insta::assert_json_snapshot!(whole(&gateway.post("/v1/runs", &body).await));
}

#[tokio::test]
async fn missing_file_is_reported_before_the_launch() {
    let (_cluster, gateway) = table_gateway().await;
    let body = json!({"capsule": "table", "arguments": {"table": "none.csv"}});
    insta::assert_json_snapshot!(whole(&gateway.post("/v1/runs", &body).await));
}

#[tokio::test]
async fn unknown_capsule_is_reported_with_the_nearest_name() {
    let (_cluster, gateway) = table_gateway().await;
    let body = json!({"capsule": "tabel", "arguments": {}});
    insta::assert_json_snapshot!(whole(&gateway.post("/v1/runs", &body).await));
}

#[tokio::test]
async fn page_of_every_code_is_served_without_a_token() {
    let (_cluster, gateway) = table_gateway().await;
    for code in ErrorCode::ALL {
        let path = format!("/docs/errors/{code}");
        let answer = send(gateway.without_token("GET", &path)).await;
        assert_eq!(answer.status, 200, "{code}");
        assert_eq!(answer.body, code.page(), "{code}");
    }
    let unknown = gateway.get("/docs/errors/lost").await.expect(404);
    assert_eq!(unknown["code"], "unknown_route");
}

#[tokio::test]
async fn malformed_names_are_unknown() {
    let (_cluster, gateway) = table_gateway().await;
    for name in ["*", ">", ".", "a.b", "a\nb", "../x", ""] {
        let answer = gateway.post("/v1/runs", &json!({"capsule": name})).await;
        assert!(
            matches!(answer.status, 400 | 404),
            "{name:?}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn sizes_are_bounded() {
    let (_cluster, gateway) = table_gateway().await;
    let check = async |body: Vec<u8>, expected: u16| {
        let request = gateway
            .request("POST", "/v1/runs")
            .header("content-type", "application/json");
        let answer = send(request.body(body)).await;
        assert_eq!(answer.expect(expected)["code"], "payload_too_large");
    };
    let large = json!({"capsule": "table", "arguments": {"text": "a b ".repeat(5 << 20)}});
    check(serde_json::to_vec(&large).unwrap(), 413).await;
    check(vec![b' '; 49 << 20], 413).await;
    check(vec![b' '; (1 << 20) + 1], 413).await;
}

#[tokio::test]
async fn file_names_outside_the_directory_are_rejected() {
    let (_cluster, gateway) = table_gateway().await;
    for name in ["../x", "/etc/passwd", "a/../b", "a\nb", "x//y"] {
        let form = reqwest::multipart::Form::new()
            .text(
                "request",
                json!({"capsule": "table", "arguments": {"table": "x"}}).to_string(),
            )
            .part(
                name.to_owned(),
                reqwest::multipart::Part::bytes(b"x".as_slice()),
            );
        let answer = send(gateway.request("POST", "/v1/runs").multipart(form)).await;
        // A name that the form cannot represent must not become another name.
        let problem = whole(&answer);
        assert_eq!(
            (answer.status, &problem["code"]),
            (422, &json!("file_refused")),
            "{name:?}: {problem}"
        );
    }
}

/// Sends `request` and compares status and code of the problem; its page must exist.
async fn check_refused(gateway: &Client, request: RequestBuilder, status: u16, code: &str) {
    let answer = send(request).await;
    let problem = whole(&answer);
    let found = (answer.status, problem["code"].as_str().unwrap());
    assert_eq!(found, (status, code), "{problem}");
    let page = gateway.without_token("GET", problem["type"].as_str().unwrap());
    assert_eq!(send(page).await.status, 200, "the page of {code}");
}

#[tokio::test]
async fn every_kind_of_problem_has_its_status_and_code() {
    let (_cluster, gateway) = table_gateway().await;
    for (method, path, status, code) in [
        ("GET", "/v2", 404, "unknown_route"),
        ("GET", "/v1/runs/run_1", 404, "unknown_run"),
        (
            "GET",
            "/v1/runs/run_0000000000000000000000000G",
            404,
            "unknown_run",
        ),
        ("GET", "/v1/nodes/x/drain", 405, "request_malformed"),
        ("POST", "/v1/nodes/x/drain", 404, "unknown_node"),
        ("POST", "/v1/runs/x/cancel", 404, "unknown_run"),
        ("GET", "/v1/files/x", 404, "unknown_file"),
    ] {
        check_refused(&gateway, gateway.request(method, path), status, code).await;
    }
    for (media, body, status) in [
        ("text/plain", "{}", 415),
        ("application/json", "{", 400),
        ("application/json", "[]", 400),
        ("application/json", "", 400),
        ("multipart/form-data", "x", 400),
    ] {
        let request = gateway
            .request("POST", "/v1/runs")
            .header("content-type", media);
        check_refused(&gateway, request.body(body), status, "request_malformed").await;
    }
    let without = || gateway.without_token("GET", "/v1/runs");
    check_refused(&gateway, without(), 401, "unauthorized").await;
    check_refused(
        &gateway,
        without().bearer_auth("wrong"),
        401,
        "unauthorized",
    )
    .await;
}

#[tokio::test]
async fn open_pages_need_no_token() {
    let (_cluster, gateway) = table_gateway().await;
    for path in ["/health", "/ready", "/openapi.json", "/docs"] {
        let answer = send(gateway.without_token("GET", path)).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    let page = send(gateway.without_token("GET", "/docs")).await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(page.contains("/v1/runs/{run}/events"));
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing from elsewhere"
    );
    let metrics = String::from_utf8(gateway.get("/metrics").await.body.to_vec()).unwrap();
    assert!(
        metrics
            .contains(r#"aod_gateway_requests_total{method="GET",route="/docs",status="200"} 2"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn slow_headers_and_large_headers_are_cut_off() {
    let (_cluster, gateway) = table_gateway().await;
    let mut stream = tokio::net::TcpStream::connect(gateway.gateway.local_addr())
        .await
        .unwrap();
    let line = format!(
        "GET /health HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset counts as an answer.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    let mut slow = tokio::net::TcpStream::connect(gateway.gateway.local_addr())
        .await
        .unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, slow.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection was left open");
}

#[tokio::test]
async fn gateway_without_tokens_listens_only_on_loopback() {
    let cluster = Cluster::start().await;
    let config = Config {
        listen: SocketAddr::from(([0, 0, 0, 0], 0)),
        access: Access::Development,
        ..cluster.config("open")
    };
    let refused = Gateway::start(config, cluster.ports.clone()).await;
    assert!(matches!(refused, Err(StartError::Unprotected { .. })));
    let config = Config {
        access: Access::Development,
        ..cluster.config("open")
    };
    let gateway = cluster.gateway_of(config).await;
    assert_eq!(
        send(gateway.without_token("GET", "/v1/runs")).await.status,
        200
    );
    let foreign = gateway
        .without_token("GET", "/v1/runs")
        .header("origin", "http://evil.example");
    assert_eq!(send(foreign).await.status, 403);
}

#[tokio::test]
async fn gateway_open_to_agent_on_demand_listens_only_on_loopback() {
    let cluster = Cluster::start().await;
    let config = Config {
        listen: SocketAddr::from(([0, 0, 0, 0], 0)),
        access: Access::TokensOrAgentOnDemand(Vec::new()),
        ..cluster.config("open")
    };
    let refused = Gateway::start(config, cluster.ports.clone()).await;
    assert!(matches!(refused, Err(StartError::OpenToNetwork { .. })));
}

#[tokio::test]
async fn gateway_open_to_agent_on_demand_needs_no_token_on_compatibility_routes_only() {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    let _node = ScriptedNode::echo(&cluster).await;
    let config = Config {
        access: Access::TokensOrAgentOnDemand(vec![Token {
            principal: "tester".into(),
            sha256: Digest::of(TOKEN),
        }]),
        ..cluster.config("open")
    };
    let gateway = cluster.gateway_of(config).await;
    let compatibility = [
        ("POST", "/execute"),
        ("POST", "/handoff"),
        ("GET", "/capsules"),
        ("GET", "/capsules/{name}/schema"),
        ("GET", "/visualizer/state"),
    ];
    for route in ROUTES {
        let is_open = compatibility.contains(&(route.method, route.path));
        let path = route.plain_path().replace(['{', '}'], "");
        let request = || gateway.without_token(route.method, &path);
        let status = send(request()).await.status;
        assert_eq!(status != 401, is_open, "{path}: {status}");
        let foreign = request().header("origin", "http://evil.example");
        let expected = if is_open { 403 } else { 401 };
        assert_eq!(send(foreign).await.status, expected, "{path}");
        let rebound = request().header("host", "rebound.example");
        assert_eq!(send(rebound).await.status, expected, "{path}");
        let wrong = request().bearer_auth("another token");
        assert_eq!(send(wrong).await.status, 401, "{path}");
    }

    let body = json!({"capsule": "echo", "input": {"x": 1}});
    let request = gateway.without_token("POST", "/execute").json(&body);
    let answer = send(request).await.expect(200);
    assert_eq!(answer["output"], json!({"x": 1}));
    let run = answer["session_id"].as_str().unwrap();
    let path = format!("/v1/runs/{run}");
    let view = gateway.get(&path).await.expect(200);
    assert_eq!(view["requested_by"], "agent-on-demand");
    assert_eq!(send(gateway.without_token("GET", &path)).await.status, 401);
    let other = gateway
        .without_token("POST", "/execute")
        .header("aod-tenant", "acme");
    assert_eq!(send(other.json(&body)).await.status, 403);
}

#[tokio::test]
async fn visualizer_page_permits_only_its_own_script() {
    let (_cluster, gateway) = table_gateway().await;
    let page = || async { send(gateway.without_token("GET", "/visualizer")).await };
    let (first, second) = (page().await, page().await);
    assert_eq!(first.status, 200);
    assert_eq!(first.header("content-type"), "text/html; charset=utf-8");
    let policy = first.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap();
    let nonce = nonce.split('\'').next().unwrap();
    let text = String::from_utf8_lossy(&first.body);
    assert!(text.contains(&format!("<script nonce=\"{nonce}\">")));
    assert_ne!(policy, second.header("content-security-policy"));
}

#[tokio::test]
async fn nodes_are_listed_and_drained() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let node = NodeMember {
        node: aod_domain::id::NodeId::new(uuid::Uuid::from_u128(1)),
        incarnation: aod_domain::id::IncarnationId::new(uuid::Uuid::from_u128(2)),
        host: "host-1".into(),
        version: "0".into(),
        pools: vec![aod_domain::subject::Pool::any()],
        slots: 2,
        running: 0,
        waiting: 0,
        containers: 0,
        draining: false,
        place: Place::default(),
        not_ready: None,
        no_roots: None,
    };
    cluster
        .ports
        .presence
        .announce(&Member::Node(node.clone()))
        .await
        .unwrap();
    let list = gateway.get("/v1/nodes").await.expect(200);
    assert_eq!(list["items"][0]["host"], "host-1");
    let answer = gateway.post("/v1/nodes/host-1/drain", &json!({})).await;
    assert_eq!(answer.expect(202)["id"], node.node.to_string());
    let stored = cluster
        .ports
        .log
        .read(aod_domain::subject::NODES, 0, 10)
        .await
        .unwrap();
    assert_eq!(
        stored[0].sequence.to_string(),
        answer.header("aod-sequence")
    );
    let event: Value = serde_json::from_slice(&stored[0].bytes).unwrap();
    assert_eq!(event["type"], "dev.aod.node.drained.v1");
    assert_eq!(event["data"]["requested_by"], "tester");
    gateway
        .post(&format!("/v1/nodes/{}/resume", node.node), &json!({}))
        .await
        .expect(202);
}

#[tokio::test]
async fn encoded_body_is_refused_on_every_route() {
    let (_cluster, gateway) = table_gateway().await;
    let routes = [
        "/v1/runs",
        "/v1/files",
        "/v1/capsules",
        "/execute",
        "/handoff",
    ];
    for (method, path) in routes
        .map(|path| ("POST", path))
        .into_iter()
        .chain([("PUT", "/v1/rules/a")])
    {
        let request = gateway
            .request(method, path)
            .header("content-type", "application/json")
            .header("content-encoding", "gzip");
        let problem = send(request.body("compressed")).await.expect(415);
        assert_eq!(problem["code"], "request_malformed", "{path}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("Content-Encoding"),
            "{problem}"
        );
    }
}
