//! A broker, an artifact store, and gateways in this process; dropping the value removes all of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_artifacts::CacheConfig;
use aod_domain::audit::SealKey;
use aod_domain::capsule::{Handoffs, Image, ImageContent, Registration, Resources};
use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::retention::UNNAMED_FOR;
use aod_domain::tenant::Tenant;
use aod_gateway::{Access, Config, Gateway, LISTS_DELAY, Ports, Token};
use aod_jetstream::{Broker, StreamLimits};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::SystemClock;
use aod_services::runs::Runs;
use aod_testkit::capsules::{registered_for, registration};
use aod_testkit::{NatsConfig, NatsServer, Scratch};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};

/// The token of the tests.
pub(crate) const TOKEN: &str = "a token of the tests";

/// Maximum time that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const LEASE_SECONDS: u32 = 5;

pub(crate) struct Cluster {
    pub(crate) ports: Ports,
    pub(crate) runs: Runs,
    pub(crate) server: NatsServer,
    scratch: Scratch,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(StreamLimits::default()).await
    }

    pub(crate) async fn start_with(limits: StreamLimits) -> Self {
        let server = NatsServer::start(NatsConfig::default());
        let config = aod_jetstream::Config {
            lease_seconds: LEASE_SECONDS,
            limits: Some(limits),
            ..aod_jetstream::Config::new(server.url(), "gateway-tests")
        };
        let broker = Broker::connect(config).await.unwrap();
        let scratch = Scratch::new("gateway");
        let ports = ports(&broker, artifacts(&scratch)).await;
        let runs = Runs::new(Arc::clone(&ports.log), Arc::clone(&ports.clock), "/test");
        Self {
            ports,
            runs,
            server,
            scratch,
        }
    }

    pub(crate) fn config(&self, name: &str) -> Config {
        let sha256 = Digest::of(TOKEN);
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            public_url: None,
            access: Access::Tokens(vec![Token {
                principal: "tester".into(),
                sha256,
            }]),
            data_directory: self.scratch.path().join(name),
            lease_seconds: LEASE_SECONDS,
            lists_delay: LISTS_DELAY,
            wait_seconds_max: 60,
            upload_bytes_max: 64 << 20,
            disk_reserve: Some(0),
            unnamed_for: UNNAMED_FOR,
            seal_key: Arc::new(SealKey::from_seed(&[7; 32])),
            log_age: None,
            tls: None,
        }
    }

    pub(crate) async fn gateway(&self, name: &str) -> Client {
        self.gateway_of(self.config(name)).await
    }

    pub(crate) async fn gateway_of(&self, config: Config) -> Client {
        let gateway = Gateway::start(config, self.ports.clone()).await.unwrap();
        Client {
            http: http_client(),
            url: gateway.url().to_owned(),
            gateway,
        }
    }

    /// Registers a capsule as if a node had built its image.
    pub(crate) async fn register(&self, name: &str, schema: &Value, handoffs: Handoffs) -> u64 {
        self.register_for(&Tenant::default(), name, schema, handoffs)
            .await
    }

    /// As [`Self::register`], for `tenant`.
    pub(crate) async fn register_for(
        &self,
        tenant: &Tenant,
        name: &str,
        schema: &Value,
        handoffs: Handoffs,
    ) -> u64 {
        let schema = self.store(serde_json::to_vec(schema).unwrap()).await;
        let registration = Registration {
            title: Some(format!("The {name}")),
            image: image(name),
            resources: Resources::default(),
            handoffs,
            ..registration(name, schema)
        };
        let append = registered_for(tenant, self.runs.header(), registration);
        self.ports.log.append(append).await.unwrap()
    }

    /// Registers `echo`, which returns its arguments.
    pub(crate) async fn register_echo(&self) {
        self.register("echo", &any_schema(), Handoffs::Listed(vec![]))
            .await;
    }

    /// Whether `text` occurs in any file of broker, store and gateways.
    pub(crate) fn is_at_rest(&self, text: &str) -> bool {
        let (broker, rest) = (self.server.store(), self.scratch.path());
        occurs_below(&broker, text) || occurs_below(rest, text)
    }

    pub(crate) async fn store(&self, bytes: Vec<u8>) -> Digest {
        let piece = futures::stream::iter([Ok(Bytes::from(bytes))]).boxed();
        self.ports.artifacts.put_stream(piece).await.unwrap().digest
    }
}

fn occurs_below(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return occurs_below(&path, text);
        }
        // A file that disappears in the meantime is not at rest.
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}

pub(crate) fn image(name: &str) -> Image {
    Image {
        config_digest: format!("sha256:{}", Digest::of(name)),
        content: ImageContent::Archive {
            archive: Digest::of("archive"),
            archive_size_bytes: 7,
        },
    }
}

pub(crate) fn any_schema() -> Value {
    json!({"input": {"type": "object"}, "output": {"type": "object"}})
}

/// A schema with one declared file and a number.
pub(crate) fn table_schema() -> Value {
    json!({
        "input": {
            "type": "object",
            "properties": {
                "table": {"type": "string", "format": "file_path"},
                "rows": {"type": "integer", "default": 10},
            },
            "required": ["table"],
            "additionalProperties": false,
        },
        "output": {"type": "object"},
    })
}

fn artifacts(scratch: &Scratch) -> Arc<dyn ArtifactStore> {
    let directory = scratch.path().join("artifacts");
    let cache = CacheConfig {
        directory: PathBuf::from("unused"),
        bytes_max: 0,
    };
    aod_artifacts::open(&format!("file://{}", directory.display()), &cache).unwrap()
}

pub(crate) async fn ports(broker: &Broker, artifacts: Arc<dyn ArtifactStore>) -> Ports {
    Ports {
        log: Arc::new(broker.event_log()),
        queue: Arc::new(broker.work_queue()),
        logs: Arc::new(broker.log_stream()),
        presence: Arc::new(broker.presence()),
        artifacts,
        clock: Arc::new(SystemClock),
        ends: Arc::new(broker.feed(aod_audit::FEED).await.unwrap()),
    }
}

pub(crate) fn http_client() -> reqwest::Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// A gateway and a caller with a token.
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) gateway: Gateway,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The JSON of an answer that must have `status`.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        self.json()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap())
            .unwrap_or_default()
    }
}

impl Client {
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap();
        self.http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(TOKEN)
            .timeout(PATIENCE)
    }

    pub(crate) fn without_token(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method.parse().unwrap(), format!("{}{path}", self.url))
            .timeout(PATIENCE)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request("GET", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.request("POST", path).json(body)).await
    }

    /// Creates a run and does not wait for it.
    pub(crate) async fn start_run(&self, capsule: &str, arguments: Value) -> RunId {
        let answer = self
            .post(
                "/v1/runs",
                &json!({"capsule": capsule, "arguments": arguments}),
            )
            .await;
        answer.expect(202)["id"].as_str().unwrap().parse().unwrap()
    }

    /// Creates a run and waits for its end.
    pub(crate) async fn run(&self, body: &Value) -> Value {
        send(
            self.request("POST", "/v1/runs")
                .header("prefer", "wait=50")
                .json(body),
        )
        .await
        .expect(200)
    }

    /// Repeats GET `path` until `is_so` holds for the answer.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            let value = answer.json();
            if is_so(&value) {
                return value;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "still {} {value:#}",
                answer.status
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

pub(crate) async fn send(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer {
        status,
        headers,
        body: response.bytes().await.unwrap(),
    }
}
