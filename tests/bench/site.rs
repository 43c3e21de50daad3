//! A measured cluster: broker, gateway and nodes, each as a separate process, on directories that are deleted with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aod_artifacts::CacheConfig;
use aod_domain::tenant::Tenant;
use aod_jetstream::object_store::BucketConfig;
use aod_jetstream::{Broker, Config as BrokerConfig};
use aod_ports::artifact_store::ArtifactStore;
use aod_testkit::{NatsConfig, NatsServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Connection;
use crate::program::{Program, aod};
use crate::simulated_node;

/// The value for artifacts in the broker. Source: `aod gateway --store`.
pub(crate) const STORE_IN_BROKER: &str = "jetstream";

/// The gateway: its command, its log and its directory.
const GATEWAY: &str = "gateway";

/// Maximum wait for a result, in seconds.
const RESULT_SECONDS_MAX: u64 = 120;

/// Maximum wait for the nodes to announce themselves.
const NODES_SECONDS_MAX: u64 = 30;

/// Maximum size of cached artifacts on one host, in bytes: three files of 1 GiB.
const CACHE_BYTES_MAX: u64 = 3 << 30;

/// Maximum size of the broker, in bytes: its log, its queue, and 10 GiB of files.
const BROKER_BYTES_MAX: u64 = 32 << 30;

/// A file system in memory on every Linux.
const MEMORY: &str = "/dev/shm";

/// Location of the run directories of a simulated node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scratch {
    Disk,
    /// Excludes the cost of container directories.
    Memory,
}

/// A cluster. Its fields are stopped in their order.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) nodes: Vec<Program>,
    pub(crate) gateway: Program,
    address: SocketAddr,
    store: String,
    pub(crate) nats: NatsServer,
    directory: TempDir,
    memory: TempDir,
}

impl Site {
    /// Starts broker and gateway; `store` as in `aod gateway --store`, by default a local directory.
    pub(crate) async fn start(store: Option<String>) -> anyhow::Result<Self> {
        // Short, because it contains sockets.
        let directory = tempfile::Builder::new().prefix("aod-bench-").tempdir()?;
        let nats = NatsServer::start(NatsConfig {
            store_bytes_max: BROKER_BYTES_MAX,
            ..NatsConfig::default()
        });
        let artifacts = directory.path().join("artifacts");
        let store = store.unwrap_or_else(|| format!("file://{}", artifacts.display()));
        let (gateway, address) = start_gateway(directory.path(), &nats, &store).await?;
        Ok(Self {
            nodes: Vec::new(),
            gateway,
            address,
            store,
            nats,
            directory,
            memory: tempfile::Builder::new()
                .prefix("aod-bench-")
                .tempdir_in(MEMORY)?,
        })
    }

    /// Ends the gateway; nodes continue.
    pub(crate) fn stop_gateway(&mut self) {
        self.gateway.stop();
    }

    /// Restarts the gateway on its data.
    pub(crate) async fn start_gateway(&mut self) -> anyhow::Result<()> {
        (self.gateway, self.address) =
            start_gateway(self.directory.path(), &self.nats, &self.store).await?;
        Ok(())
    }

    /// The data directory of the gateway.
    pub(crate) fn gateway_data(&self) -> PathBuf {
        self.directory.path().join(GATEWAY)
    }

    /// Starts a node whose capsules are functions.
    pub(crate) fn add_simulated_node(
        &mut self,
        pool: &str,
        slots: usize,
        scratch: Scratch,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = format!("node-{pool}");
        let directory = self.directory.path();
        command.args([simulated_node::SUBCOMMAND, &self.nats.url(), &self.store]);
        let data = match scratch {
            Scratch::Disk => directory.join(&name),
            Scratch::Memory => self.memory.path().join(&name),
        };
        command.arg(data).args([pool, &slots.to_string()]);
        self.nodes
            .push(Program::start(&name, directory, &mut command)?);
        Ok(())
    }

    /// Starts a node on this machine's Docker; its containers have the label `cluster`.
    pub(crate) fn add_docker_node(&mut self, cluster: &str, slots: usize) -> anyhow::Result<()> {
        let mut command = Command::new(aod()?);
        command.args(["node", "--cluster", cluster, "--slots", &slots.to_string()]);
        let data = self.directory.path().join("node");
        let command = common(&mut command, &self.nats, &self.store, &data);
        self.nodes
            .push(Program::start("node", self.directory.path(), command)?);
        Ok(())
    }

    /// Waits until all nodes are present.
    pub(crate) async fn wait_for_nodes(&self) -> anyhow::Result<()> {
        let mut gateway = self.client().await?;
        let deadline = Instant::now() + Duration::from_secs(NODES_SECONDS_MAX);
        loop {
            let nodes = gateway.send("GET", "/v1/nodes", &[], None).await?;
            let count = nodes["items"]
                .as_array()
                .or(nodes["nodes"].as_array())
                .map_or(0, Vec::len);
            if count == self.nodes.len() {
                return Ok(());
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{count} of {} nodes are present",
                self.nodes.len()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A separate connection to the gateway.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client {
            address: self.address,
            connection: Connection::tcp(self.address).await?,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A connection of this process to the broker.
    pub(crate) async fn broker(&self, name: &str) -> anyhow::Result<Broker> {
        Ok(Broker::connect(BrokerConfig::new(self.nats.url(), name)).await?)
    }

    /// The artifact store as one more host sees it, with its own cache.
    pub(crate) async fn artifacts(&self, host: &str) -> anyhow::Result<Arc<dyn ArtifactStore>> {
        open_store(
            &self.store,
            &self.broker(host).await?,
            self.directory.path().join(host),
        )
        .await
    }

    /// Registers a capsule of the simulated nodes.
    pub(crate) async fn register(&self, name: &str, schema: &Value) -> anyhow::Result<()> {
        self.register_for(&Tenant::default(), name, schema).await
    }

    /// As [`Self::register`], for a tenant.
    pub(crate) async fn register_for(
        &self,
        tenant: &Tenant,
        name: &str,
        schema: &Value,
    ) -> anyhow::Result<()> {
        let (broker, artifacts) = (
            self.broker("registrar").await?,
            self.artifacts("registrar").await?,
        );
        aod_tests::cluster::register_for(tenant, &broker, artifacts.as_ref(), name, schema).await;
        Ok(())
    }
}

async fn start_gateway(
    directory: &Path,
    nats: &NatsServer,
    store: &str,
) -> anyhow::Result<(Program, SocketAddr)> {
    let mut command = Command::new(aod()?);
    command.args([GATEWAY, "--log-format", "json", "--listen", "127.0.0.1:0"]);
    let data = directory.join(GATEWAY);
    let mut gateway = Program::start(GATEWAY, directory, common(&mut command, nats, store, &data))?;
    let url = gateway.logged("url").await?;
    let address = url
        .trim_start_matches("http://")
        .parse()
        .with_context(|| url.clone())?;
    Ok((gateway, address))
}

fn common<'a>(
    command: &'a mut Command,
    nats: &NatsServer,
    store: &str,
    data: &Path,
) -> &'a mut Command {
    let cache = CACHE_BYTES_MAX.to_string();
    command
        .args([
            "--nats",
            &nats.url(),
            "--store",
            store,
            "--cache-bytes",
            &cache,
            "--data",
        ])
        .arg(data);
    // Excludes settings in the environment of the caller.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AOD_")) {
        command.env_remove(name);
    }
    command
}

/// Opens a store as the programs do.
pub(crate) async fn open_store(
    store: &str,
    broker: &Broker,
    cache: PathBuf,
) -> anyhow::Result<Arc<dyn ArtifactStore>> {
    let cache = CacheConfig {
        directory: cache,
        bytes_max: CACHE_BYTES_MAX,
    };
    if store != STORE_IN_BROKER {
        return Ok(aod_artifacts::open(store, &cache)?);
    }
    // The names that `aod` uses.
    let bucket = BucketConfig {
        stream: "FILES".into(),
        bucket: "artifacts".into(),
        bytes_max: 10 << 30,
        replicas: 1,
    };
    Ok(aod_artifacts::over(
        Arc::new(broker.open_object_store(&bucket).await?),
        None,
        &cache,
    )?)
}

/// A client that requests runs from a gateway, one at a time.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    connection: Connection,
}

impl Client {
    /// Runs a capsule and returns its output after success.
    pub(crate) async fn run(&mut self, capsule: &str, arguments: &Value) -> anyhow::Result<Value> {
        let body = json!({"capsule": capsule, "arguments": arguments});
        let wait = format!("wait={RESULT_SECONDS_MAX}");
        let view = self
            .send("POST", "/v1/runs", &[("prefer", &wait)], Some(&body))
            .await?;
        anyhow::ensure!(
            view["state"] == "succeeded",
            "{capsule} did not succeed: {view}"
        );
        Ok(view["result"]["output"].clone())
    }

    /// Starts a run and returns its id.
    pub(crate) async fn start(
        &mut self,
        capsule: &str,
        arguments: &Value,
    ) -> anyhow::Result<String> {
        let tenant = aod_domain::tenant::DEFAULT;
        self.start_for(tenant, capsule, arguments).await
    }

    /// As [`Self::start`], for a tenant.
    pub(crate) async fn start_for(
        &mut self,
        tenant: &str,
        capsule: &str,
        arguments: &Value,
    ) -> anyhow::Result<String> {
        let body = json!({"capsule": capsule, "arguments": arguments});
        self.ask(tenant, &body).await
    }

    async fn ask(&mut self, tenant: &str, body: &Value) -> anyhow::Result<String> {
        let headers = [
            ("prefer", "respond-async"),
            (aod_api::TENANT_HEADER, tenant),
        ];
        let view = self.send("POST", "/v1/runs", &headers, Some(body)).await?;
        Ok(view["id"]
            .as_str()
            .with_context(|| format!("no id in {view}"))?
            .to_owned())
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.send("GET", path, &[], None).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send("PUT", path, &[], Some(body)).await
    }

    pub(crate) async fn cancel(&mut self, run: &str) -> anyhow::Result<()> {
        self.send("POST", &format!("/v1/runs/{run}/cancel"), &[], None)
            .await
            .map(drop)
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        if self.connection.is_closed() {
            self.connection = Connection::tcp(self.address).await?;
        }
        self.connection
            .send(method, path, headers, body)
            .await?
            .success()
    }
}
