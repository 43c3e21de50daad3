//! A cluster in this process: gateways and nodes over a real NATS, with simulated capsules.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_artifacts::{CacheConfig, Opened};
use aod_domain::admission::Capacity;
use aod_domain::audit::SealKey;
use aod_domain::capsule::{Grant, Handoffs, ModelGrant, Registration};
use aod_domain::digest::Digest;
use aod_domain::egress::Permission;
use aod_domain::id::NodeId;
use aod_domain::placement::{Devices, Equipment};
use aod_domain::retention::UNNAMED_FOR;
use aod_domain::tenant::Tenant;
use aod_gateway::{Access, Gateway, Tls};
use aod_jetstream::object_store::BucketConfig;
use aod_jetstream::rights::{Part, User, configuration};
use aod_jetstream::{Broker, Config as BrokerConfig, Credentials};
use aod_node::{
    Config as NodeConfig, DISK_LOOK_DEFAULT, DirectorySecrets, HttpGateways, IMAGE_KEEP_DEFAULT,
    ModelSettings, Node, SystemNetwork, load_or_draw,
};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::{Clock, SystemClock};
use aod_ports::container_runtime::ContainerRuntime;
use aod_ports::event_log::EventLog;
use aod_ports::network::Network;
use aod_ports::peers::Peers;
use aod_ports::secrets::{NoSecrets, SecretStore};
use aod_services::runs::Runs;
use aod_testkit::capsules::{registered_for, registration};
use aod_testkit::{NatsConfig, NatsServer};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use jiff::SignedDuration;
use tempfile::TempDir;

use crate::client::Client;

/// Lease of test clusters, in seconds.
pub const LEASE_SECONDS: u32 = 5;

/// Seed of the seal key of test gateways.
pub const SEAL_SEED: [u8; 32] = [7; 32];

/// Maximum stored output of a capsule in test clusters, in bytes: quickly reached, yet more than a page.
pub const LOG_BYTES_MAX: u64 = 1 << 20;

/// How the programs of a cluster connect to each other; by default without TLS and with all rights.
#[derive(Clone, Default)]
pub struct Ways {
    /// The broker's URL for programs, if it is not the broker's own address.
    pub broker_url: Option<String>,
    /// Whether programs have the credentials of their parts, by [`password_of`]; artifacts are then in the broker.
    pub limited: bool,
    /// The authority of the certificates of broker and gateways.
    pub authority: Option<PathBuf>,
    /// The certificate of gateways.
    pub tls: Option<Arc<Tls>>,
    /// The gateway's URL for nodes, if it is not the gateway's own address.
    pub gateway_url: Option<String>,
}

/// The parts of the users of limited brokers, each by the name of its user.
pub const PARTS: [(&str, Part); 3] = [
    ("admin", Part::Admin),
    ("gateway", Part::Gateway),
    ("node", Part::Node),
];

/// The password of a user of [`PARTS`].
pub fn password_of(user: &str) -> String {
    format!("secret-of-{user}")
}

/// The configuration of nats-server for [`Ways::limited`].
pub fn limits() -> String {
    let user = |(name, part): &(&str, Part)| User {
        name: (*name).to_owned(),
        password: password_of(name),
        part: part.clone(),
    };
    configuration(&PARTS.iter().map(user).collect::<Vec<_>>())
}

/// A cluster; everything ends with the value.
pub struct Cluster {
    pub nats: NatsServer,
    pub ways: Ways,
    pub gateways: Vec<Gateway>,
    pub nodes: Vec<Node>,
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Of programs added from now on.
    pub clock: Arc<dyn Clock>,
    /// Of gateways added from now on.
    pub log_age: Option<SignedDuration>,
    /// Of gateways added from now on: who may use them.
    pub access: Access,
    /// Of nodes added from now on.
    pub image_keep: Duration,
    /// Of gateways and nodes added from now on: the reserved disk space. None by default, whatever the disk of this
    /// machine has left.
    pub disk_reserve: Option<u64>,
    /// Of gateways added from now on: minimum age of unnamed artifacts before deletion.
    pub unnamed_for: SignedDuration,
    /// Of nodes added from now on: the model providers.
    pub models: Arc<ModelSettings>,
    /// Of nodes added from now on: whether they store model contents.
    pub keep_model_contents: bool,
    /// Of nodes added from now on: the operator's secrets and egress permissions, and the network.
    pub secrets: Arc<dyn SecretStore>,
    pub egress: Vec<Permission>,
    pub network: Arc<dyn Network>,
    gateways_added: usize,
    nodes_added: usize,
    /// Of nodes added from now on: the equipment for requirements.
    pub equipment: Equipment,
    pub devices: Devices,
    directory: TempDir,
}

impl Cluster {
    /// Starts `gateways` gateways and no node.
    pub async fn start(gateways: usize) -> Self {
        let nats = NatsServer::start(NatsConfig::default());
        Self::start_on(nats, Ways::default(), gateways).await
    }

    /// As [`Self::start`], on an existing broker.
    pub async fn start_on(nats: NatsServer, ways: Ways, gateways: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory for a test");
        let url = format!("file://{}", directory.path().join("artifacts").display());
        let cache = CacheConfig {
            directory: directory.path().join("cache"),
            bytes_max: 1 << 30,
        };
        let artifacts = aod_artifacts::open(&url, &cache).expect("a local store");
        let mut cluster = Self {
            nats,
            ways,
            gateways: Vec::new(),
            nodes: Vec::new(),
            artifacts,
            clock: Arc::new(SystemClock),
            log_age: None,
            access: Access::Development,
            image_keep: IMAGE_KEEP_DEFAULT,
            disk_reserve: Some(0),
            unnamed_for: UNNAMED_FOR,
            models: Arc::default(),
            keep_model_contents: false,
            secrets: Arc::new(NoSecrets),
            egress: Vec::new(),
            network: Arc::new(SystemNetwork),
            gateways_added: 0,
            nodes_added: 0,
            equipment: Equipment::default(),
            devices: Devices::default(),
            directory,
        };
        for _ in 0..gateways {
            cluster.add_gateway().await;
        }
        if cluster.ways.limited {
            let broker = cluster.broker("artifacts").await;
            let opened = cluster.artifacts_of("artifacts", &broker, None).await;
            cluster.artifacts = opened.artifacts;
        }
        cluster
    }

    /// Gives nodes added from now on `key` for all model providers, in a directory as operators store it.
    pub fn keep_key_of_models(&mut self, key: &str) {
        let directory = self.data("secrets");
        for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
            let path = directory.join(name);
            fs::write(&path, key).expect("a test directory");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a test file");
        }
        self.secrets = Arc::new(DirectorySecrets::new(directory));
    }

    /// A separate connection to the broker, with all rights.
    pub async fn broker(&self, name: &str) -> Broker {
        self.broker_as(name, "admin").await
    }

    /// A connection with the rights of a program of this part.
    pub async fn broker_as(&self, name: &str, part: &str) -> Broker {
        let url = self.ways.broker_url.clone();
        let mut config = BrokerConfig::new(url.unwrap_or_else(|| self.nats.url()), name);
        config.lease_seconds = LEASE_SECONDS;
        config
            .certificate_authority
            .clone_from(&self.ways.authority);
        if self.ways.limited {
            config.makes_streams = part != "node";
            config.credentials = Credentials::UserPassword {
                user: part.to_owned(),
                password: password_of(part),
            };
        }
        Broker::connect(config).await.expect("the broker takes us")
    }

    /// The artifacts through the connection of the program `name`, which may be the node `node`.
    async fn artifacts_of(&self, name: &str, broker: &Broker, node: Option<NodeId>) -> Opened {
        if !self.ways.limited {
            return Opened::alone(Arc::clone(&self.artifacts));
        }
        let bucket = BucketConfig {
            stream: "FILES".to_owned(),
            bucket: "artifacts".to_owned(),
            bytes_max: 1 << 30,
            replicas: 1,
        };
        let store = broker.open_object_store(&bucket).await;
        let cache = CacheConfig {
            directory: self.data(name).join("artifacts"),
            bytes_max: 1 << 30,
        };
        let mut peers: Option<Arc<dyn Peers>> = None;
        if let Some(node) = node {
            peers = Some(Arc::new(
                broker.open_peers(node).await.expect("the way to peers"),
            ));
        }
        let store = Arc::new(store.expect("a store"));
        aod_artifacts::over_among(store, None, &cache, peers).expect("a store")
    }

    pub async fn add_gateway(&mut self) {
        let name = format!("gateway-{}", self.gateways_added);
        self.gateways_added += 1;
        let broker = self.broker_as(&name, "gateway").await;
        let artifacts = self.artifacts_of(&name, &broker, None).await.artifacts;
        let config = aod_gateway::Config {
            listen: "127.0.0.1:0".parse().expect("an address"),
            public_url: self.ways.gateway_url.clone(),
            access: self.access.clone(),
            data_directory: self.data(&name),
            lease_seconds: LEASE_SECONDS,
            lists_delay: aod_gateway::LISTS_DELAY,
            wait_seconds_max: 3_600,
            upload_bytes_max: 4 << 30,
            disk_reserve: self.disk_reserve,
            unnamed_for: self.unnamed_for,
            seal_key: Arc::new(SealKey::from_seed(&SEAL_SEED)),
            log_age: self.log_age,
            tls: self.ways.tls.clone(),
        };
        let ports = aod_gateway::Ports {
            log: Arc::new(broker.event_log()),
            queue: Arc::new(broker.work_queue()),
            logs: Arc::new(broker.log_stream()),
            presence: Arc::new(broker.presence()),
            artifacts,
            clock: Arc::clone(&self.clock),
            ends: Arc::new(broker.feed(aod_audit::FEED).await.expect("a feed")),
        };
        self.gateways.push(
            Gateway::start(config, ports)
                .await
                .expect("a gateway starts"),
        );
    }

    pub async fn add_node(
        &mut self,
        pools: &[&str],
        capacity: Capacity,
        runtime: Arc<dyn ContainerRuntime>,
    ) {
        let name = format!("node-{}", self.nodes_added);
        self.nodes_added += 1;
        let broker = self.broker_as(&name, "node").await;
        let data = self.data(&name);
        let id = load_or_draw(&data, &SystemClock).expect("a data directory");
        let opened = self.artifacts_of(&name, &broker, Some(id)).await;
        let authority = self.ways.authority.as_ref();
        let authority = authority.map(|path| fs::read(path).expect("an authority"));
        let config = NodeConfig {
            data: data.clone(),
            pools: pools
                .iter()
                .map(|pool| pool.parse().expect("a pool"))
                .collect(),
            capacity,
            equipment: self.equipment.clone(),
            devices: self.devices.clone(),
            lease: Duration::from_secs(LEASE_SECONDS.into()),
            grace: Duration::from_secs(1),
            log_bytes_max: LOG_BYTES_MAX,
            disk_look: DISK_LOOK_DEFAULT,
            disk_reserve: self.disk_reserve,
            image_keep: self.image_keep,
            models: Arc::clone(&self.models),
            keep_model_contents: self.keep_model_contents,
            egress: self.egress.clone(),
            host: name,
        };
        let ports = aod_node::Ports {
            queue: Arc::new(broker.work_queue()),
            logs: Arc::new(broker.log_stream()),
            presence: Arc::new(broker.presence()),
            artifacts: opened.artifacts,
            images: opened.images,
            runtime,
            gateways: Arc::new(
                HttpGateways::trusting(authority.as_deref()).expect("a client for gateways"),
            ),
            secrets: Arc::clone(&self.secrets),
            network: Arc::clone(&self.network),
        };
        let node = Node::start(
            config,
            id,
            ports,
            Arc::new(broker.event_log()),
            Arc::clone(&self.clock),
        )
        .await;
        self.nodes.push(node.expect("a node starts"));
    }

    pub fn client(&self, gateway: usize) -> Client {
        let authority = self.ways.authority.as_ref();
        let authority = authority.map(|path| fs::read(path).expect("an authority"));
        Client::trusting(self.gateways[gateway].url(), authority.as_deref())
    }

    /// Registers a capsule whose image is a program of the simulated runtime.
    pub async fn register(&self, name: &str, schema: &serde_json::Value) {
        register(
            &self.broker("registrar").await,
            self.artifacts.as_ref(),
            name,
            schema,
        )
        .await;
    }

    /// As [`Self::register`], for nodes in `pool`.
    pub async fn register_on(&self, name: &str, pool: &str, schema: &serde_json::Value) {
        let schema = store_schema(self.artifacts.as_ref(), schema).await;
        let registration = Registration {
            pool: pool.parse().expect("a pool"),
            ..registration(name, schema)
        };
        append_registration(&self.broker("registrar").await, registration).await;
    }

    /// Registers a simulated capsule that may call all capsules, and these models.
    pub async fn register_with_models(&self, name: &str, models: ModelGrant) {
        let schema = store_schema(self.artifacts.as_ref(), &any_schema()).await;
        let registration = Registration {
            models: Some(models),
            ..registration(name, schema)
        };
        append_registration(&self.broker("registrar").await, registration).await;
    }

    /// Registers a simulated capsule that may only call these.
    pub async fn register_with_grants(&self, name: &str, grants: Vec<Grant>) {
        let schema = store_schema(self.artifacts.as_ref(), &any_schema()).await;
        let registration = Registration {
            handoffs: Handoffs::Listed(grants),
            ..registration(name, schema)
        };
        append_registration(&self.broker("registrar").await, registration).await;
    }

    /// The data directory of the program `name`: `gateway-0`, `node-0` and so on.
    pub fn data(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(&path).expect("a directory for a test");
        path
    }
}

/// Registers the simulated capsule `name`, which may call all capsules, for the default tenant.
pub async fn register(
    broker: &Broker,
    artifacts: &dyn ArtifactStore,
    name: &str,
    schema: &serde_json::Value,
) {
    register_for(&Tenant::default(), broker, artifacts, name, schema).await;
}

/// As [`register`], for `tenant`.
pub async fn register_for(
    tenant: &Tenant,
    broker: &Broker,
    artifacts: &dyn ArtifactStore,
    name: &str,
    schema: &serde_json::Value,
) {
    let schema = store_schema(artifacts, schema).await;
    append_registration_for(tenant, broker, registration(name, schema)).await;
}

/// Stores a `schema.json`.
pub async fn store_schema(artifacts: &dyn ArtifactStore, schema: &serde_json::Value) -> Digest {
    let bytes = Bytes::from(schema.to_string());
    let stored = artifacts
        .put_stream(stream::iter([Ok(bytes)]).boxed())
        .await;
    stored.expect("the schema is stored").digest
}

/// Stores `registration` as a gateway does at the end of a build, for the default tenant.
pub async fn append_registration(broker: &Broker, registration: Registration) {
    append_registration_for(&Tenant::default(), broker, registration).await;
}

async fn append_registration_for(tenant: &Tenant, broker: &Broker, registration: Registration) {
    let log = Arc::new(broker.event_log());
    let runs = Runs::new(
        Arc::clone(&log) as Arc<dyn EventLog>,
        Arc::new(SystemClock) as Arc<dyn Clock>,
        "/tests",
    );
    log.append(registered_for(tenant, runs.header(), registration))
        .await
        .expect("the registration is stored");
}

/// A schema that accepts any object as input and output.
pub fn any_schema() -> serde_json::Value {
    serde_json::json!({"input": {"type": "object"}, "output": {"type": "object"}})
}
