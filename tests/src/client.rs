//! A minimal client of `/v1`.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

/// Maximum wait of a test for a result.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A client of one gateway.
#[derive(Clone, Debug)]
pub struct Client {
    url: String,
    http: reqwest::Client,
}

impl Client {
    pub fn new(url: &str) -> Self {
        Self::with(url, HeaderMap::new(), None)
    }

    /// A client that trusts this authority, in PEM.
    pub fn trusting(url: &str, authority: Option<&[u8]>) -> Self {
        Self::with(url, HeaderMap::new(), authority)
    }

    /// A client with a token.
    pub fn with_token(url: &str, token: &str) -> Self {
        let value = format!("Bearer {token}").parse().expect("a plain token");
        Self::with(url, HeaderMap::from_iter([(AUTHORIZATION, value)]), None)
    }

    fn with(url: &str, headers: HeaderMap, authority: Option<&[u8]>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder();
        if let Some(pem) = authority {
            let authority = reqwest::Certificate::from_pem_bundle(pem);
            builder = builder.tls_certs_only(authority.expect("a certificate"));
        }
        let http = builder
            .default_headers(headers)
            .no_proxy()
            .timeout(PATIENCE)
            .pool_idle_timeout(Duration::from_secs(aod_api::CONNECTION_REUSE_SECONDS_MAX))
            .build()
            .expect("an HTTP client");
        Self {
            url: url.to_owned(),
            http,
        }
    }

    /// Starts a run without waiting for it.
    pub async fn start(&self, capsule: &str, arguments: Value) -> String {
        self.start_with(capsule, arguments, json!({})).await
    }

    /// As [`Self::start`], with more fields of the request.
    pub async fn start_with(&self, capsule: &str, arguments: Value, mut body: Value) -> String {
        body["capsule"] = capsule.into();
        body["arguments"] = arguments;
        let request = self
            .http
            .post(format!("{}/v1/runs", self.url))
            .header("prefer", "respond-async")
            .json(&body);
        let response = request.send().await.expect("the gateway answers");
        let (status, text) = (response.status(), response.text().await.expect("a body"));
        assert!(status.is_success(), "{status}: {text}");
        let view: Value = serde_json::from_str(&text).expect("JSON");
        view["run_id"]
            .as_str()
            .or(view["id"].as_str())
            .unwrap_or_else(|| panic!("no run id in {text}"))
            .to_owned()
    }

    /// Starts the run of `key`, or joins it.
    pub async fn start_once(&self, capsule: &str, arguments: Value, key: &str) -> String {
        let request = self.http.post(format!("{}/v1/runs", self.url));
        let body = json!({"capsule": capsule, "arguments": arguments});
        let request = request.header("idempotency-key", key).json(&body);
        let response = request.send().await.expect("the gateway answers");
        let view: Value = response.json().await.expect("JSON");
        let id = view["id"].as_str();
        id.unwrap_or_else(|| panic!("{view}")).to_owned()
    }

    /// As [`Self::start`], within a trace of the client.
    pub async fn start_traced(&self, capsule: &str, arguments: Value, place: &str) -> String {
        let request = self.http.post(format!("{}/v1/runs", self.url));
        let body = json!({"capsule": capsule, "arguments": arguments});
        let request = request.header("traceparent", place).json(&body);
        let response = request.send().await.expect("the gateway answers");
        let view: Value = response.json().await.expect("JSON");
        let id = view["id"].as_str();
        id.unwrap_or_else(|| panic!("{view}")).to_owned()
    }

    /// A POST without a body, which must succeed.
    pub async fn post(&self, path: &str) {
        let request = self.http.post(format!("{}{path}", self.url));
        let response = request.send().await.expect("the gateway answers");
        assert!(response.status().is_success(), "{path}: {response:?}");
    }

    /// A POST of JSON: status and body.
    pub async fn post_json(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{path}", self.url)).json(body);
        let response = request.send().await.expect("the gateway answers");
        let status = response.status().as_u16();
        (status, response.json().await.expect("JSON"))
    }

    /// The number of seals of `run`.
    pub async fn seals(&self, run: &str) -> usize {
        let (_, page) = self.get(&format!("/v1/runs/{run}/events")).await;
        let events = page["items"].as_array().into_iter().flatten();
        let sealed = events.filter(|event| event["type"] == "dev.aod.run.sealed.v1");
        sealed.count()
    }

    /// A GET: status and body.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        let response = self
            .http
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("the gateway answers");
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    }

    /// A GET whose body is no JSON.
    pub async fn bytes(&self, path: &str) -> Vec<u8> {
        let response = self.http.get(format!("{}{path}", self.url)).send().await;
        let response = response.expect("the gateway answers");
        assert!(response.status().is_success(), "{path}: {response:?}");
        response.bytes().await.expect("a whole body").into()
    }

    /// Waits for the result of a run.
    pub async fn result(&self, run: &str) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            let (status, result) = self.get(&format!("/v1/runs/{run}/result?wait=30")).await;
            if status == 200 {
                return result;
            }
            assert_eq!(status, 202, "{run}: {result}");
        }
        panic!("{run} has no result after {PATIENCE:?}");
    }
}

/// Polls `condition` until it holds.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let looking = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    assert!(looked.is_ok(), "{what} did not come within {PATIENCE:?}");
}
