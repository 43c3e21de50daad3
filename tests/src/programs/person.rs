//! A person with a token at one gateway, over HTTP.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::images::CapsuleDirectory;

/// Maximum wait: far above the needs of a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Interval between two checks of a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The port of gateways on their hosts.
pub(super) const GATEWAY_PORT: u16 = 8080;

/// A client of one gateway. A failed request ends the test, unless noted otherwise.
#[derive(Clone, Debug)]
pub struct Person {
    url: String,
    token: String,
    http: Client,
}

impl Person {
    pub(super) fn new(gateway: Ipv4Addr, token_file: &Path) -> Self {
        let token = std::fs::read_to_string(token_file)
            .expect("a token of ours")
            .trim()
            .to_owned();
        // An earlier caller has chosen the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .build()
            .expect("an HTTP client");
        Self {
            url: format!("http://{gateway}:{GATEWAY_PORT}"),
            token,
            http,
        }
    }

    /// The URL of the gateway.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request to the gateway as this person, for callers that handle failures; `method` is an HTTP method.
    pub fn request(&self, http: &Client, method: &str, path: &str) -> RequestBuilder {
        let method = method.parse().expect("a word of HTTP");
        http.request(method, format!("{}{path}", self.url))
            .bearer_auth(&self.token)
    }

    /// Whether the gateway is ready.
    pub(super) async fn is_ready(&self) -> bool {
        let request = self
            .http
            .get(format!("{}/ready", self.url))
            .timeout(Duration::from_secs(2));
        request
            .send()
            .await
            .is_ok_and(|response| response.status().is_success())
    }

    /// Builds a capsule on a node in `pool`, where its runs start too.
    pub async fn register(&self, capsule: &CapsuleDirectory, pool: &str) {
        let path = format!("/v1/capsules?directory={}&pool={pool}", capsule.name());
        let request = self
            .post(&path)
            .header("content-type", "application/x-tar")
            .body(capsule.packed());
        let (status, answer) = answer(request).await.expect("the gateway answers");
        assert!(status.is_success(), "{status}: {answer}");
    }

    /// Starts a run with a small file of this name; returns its id immediately.
    pub async fn start(&self, capsule: &str, arguments: Value, file: (&str, Vec<u8>)) -> String {
        let request = self
            .post("/v1/files")
            .header("content-type", "application/octet-stream")
            .body(file.1);
        let (status, uploaded) = answer(request).await.expect("the gateway answers");
        assert!(status.is_success(), "{status}: {uploaded}");
        let files = json!([{"name": file.0, "file": uploaded["file"]}]);
        let body = json!({"capsule": capsule, "arguments": arguments, "files": files});
        self.start_as(&body).await
    }

    /// Starts the run of `body`; returns its id immediately.
    pub async fn start_as(&self, body: &Value) -> String {
        let request = self
            .post("/v1/runs")
            .header("prefer", "respond-async")
            .json(body);
        let (status, run) = answer(request).await.expect("the gateway answers");
        assert!(status.is_success(), "{status}: {run}");
        run["id"]
            .as_str()
            .unwrap_or_else(|| panic!("no id in {run}"))
            .to_owned()
    }

    /// As [`Person::start`] for a gateway that may be unavailable: none then. The same key is the same run.
    pub async fn try_start(
        &self,
        key: &str,
        capsule: &str,
        arguments: &Value,
        file: (&str, Vec<u8>),
    ) -> Option<String> {
        let request = self
            .post("/v1/files")
            .header("content-type", "application/octet-stream")
            .body(file.1);
        let (_, uploaded) = answer(request).await.ok()?;
        let files = json!([{"name": file.0, "file": uploaded["file"].as_str()?}]);
        let request = self
            .post("/v1/runs")
            .header("prefer", "respond-async")
            .header("idempotency-key", key)
            .json(&json!({"capsule": capsule, "arguments": arguments, "files": files}));
        let (_, run) = answer(request).await.ok()?;
        run["id"].as_str().map(str::to_owned)
    }

    /// Cancels a run.
    pub async fn cancel(&self, run: &str) {
        let request = self
            .post(&format!("/v1/runs/{run}/cancel"))
            .json(&json!({}));
        let (status, answer) = answer(request).await.expect("the gateway answers");
        assert!(status.is_success(), "{status}: {answer}");
    }

    /// A GET that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.try_get(path).await.expect("the gateway answers");
        assert!(status.is_success(), "{path}: {status}: {answer}");
        answer
    }

    /// A PUT that must succeed.
    pub async fn put(&self, path: &str, body: &Value) {
        let request = self.request(&self.http, "PUT", path).json(body);
        let (status, answer) = answer(request).await.expect("the gateway answers");
        assert!(status.is_success(), "{path}: {status}: {answer}");
    }

    /// The bytes at `path`.
    pub async fn bytes(&self, path: &str) -> Vec<u8> {
        let response = self
            .http
            .get(format!("{}{path}", self.url))
            .bearer_auth(&self.token)
            .send()
            .await;
        let response = response
            .and_then(reqwest::Response::error_for_status)
            .expect("the gateway answers");
        response
            .bytes()
            .await
            .expect("the bytes come whole")
            .to_vec()
    }

    /// Waits for the result of a run; retries while the gateway does not answer.
    pub async fn result(&self, run: &str) -> Value {
        self.eventually(&format!("the result of {run}"), async || {
            let (status, result) = self
                .try_get(&format!("/v1/runs/{run}/result?wait=10"))
                .await?;
            (status == StatusCode::OK).then_some(result)
        })
        .await
    }

    /// The number of events of this type of a run, for example `ended`.
    pub async fn count_events(&self, run: &str, kind: &str) -> usize {
        let events = self.get(&format!("/v1/runs/{run}/events")).await;
        let kind = format!("dev.aod.run.{kind}.v1");
        let items = events["items"]
            .as_array()
            .unwrap_or_else(|| panic!("no events in {events}"));
        items
            .iter()
            .filter(|event| event["type"] == kind.as_str())
            .count()
    }

    /// Waits until the first callee of `run` is in this state; returns it as shown in trees.
    pub async fn callee(&self, run: &str, state: &str) -> Value {
        self.eventually(&format!("a callee of {run} that is {state}"), async || {
            let (_, tree) = self.try_get(&format!("/v1/runs/{run}/tree")).await?;
            let callee = tree["children"].get(0)?.clone();
            (callee["state"] == state).then_some(callee)
        })
        .await
    }

    /// The host name of the node with this id.
    pub async fn host_of(&self, node: &Value) -> String {
        self.eventually(&format!("the node {node}"), async || {
            let (_, nodes) = self.try_get("/v1/nodes").await?;
            let found = nodes["items"]
                .as_array()?
                .iter()
                .find(|item| item["id"] == *node)?;
            found["host"].as_str().map(str::to_owned)
        })
        .await
    }

    /// The number of nodes.
    pub(super) async fn count_nodes(&self) -> usize {
        let nodes = self.try_get("/v1/nodes").await;
        nodes
            .and_then(|(_, nodes)| nodes["items"].as_array().map(Vec::len))
            .unwrap_or(0)
    }

    /// Polls `condition` until it returns a value; panics after the time limit.
    pub async fn eventually<T>(&self, what: &str, condition: impl AsyncFn() -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            if let Some(answer) = condition().await {
                return answer;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        panic!("{what}: not within {PATIENCE:?}");
    }

    async fn try_get(&self, path: &str) -> Option<(StatusCode, Value)> {
        answer(
            self.http
                .get(format!("{}{path}", self.url))
                .bearer_auth(&self.token),
        )
        .await
        .ok()
    }

    fn post(&self, path: &str) -> RequestBuilder {
        self.http
            .post(format!("{}{path}", self.url))
            .bearer_auth(&self.token)
    }
}

async fn answer(request: RequestBuilder) -> reqwest::Result<(StatusCode, Value)> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    Ok((
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    ))
}
