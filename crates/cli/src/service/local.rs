//! A cluster on this machine: starts and stops broker, gateway and node on one data directory.
//!
//! ```text
//! <data>/lock              locked by the running process; contains its id
//! <data>/connection.json   exists while the cluster is ready
//! <data>/cluster           the name of the cluster, a label of its containers
//! <data>/nats              the broker: configuration, port, credentials, log, streams
//! <data>/token, gateway, node, artifacts, cache
//! ```

pub(crate) mod backup;
pub(crate) mod joining;
mod lock;
pub(crate) mod openness;
pub(crate) mod restored;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_docker::DockerRuntime;
use aod_docker::service::Service;
use aod_domain::id::NodeId;
use aod_gateway::{Access, Gateway, StartError};
use aod_jetstream::{Broker, LEASE_SECONDS_DEFAULT};
use aod_kit::stand_in::StandIns;
use aod_node::Node;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::ContainerRuntime as _;
use aod_services::disk;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::lock::{Holder, Lock};
use super::connection::Connection;
use super::credentials::Credentials;
use super::nats::{self, Choice, NatsServer};
use super::traces::Traces;
use super::wiring::{GATEWAY, NODE};
use super::{credentials, data, docker, gateway, node, wiring};
use crate::arguments::{BrokerArguments, UpArguments};
use crate::exit::Exit;
use crate::failure::Failure;

/// Time for runs to end when the cluster stops. Unfinished runs continue at the next start.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// Maximum restarts of a broker that ended unexpectedly.
const BROKER_RESTARTS_MAX: u32 = 5;

/// The pause before a restart.
const BROKER_PAUSE: Duration = Duration::from_secs(1);

/// Maximum size of the cache of a remote artifact store, in bytes.
const CACHE_BYTES_MAX: u64 = 20 << 30;

/// A running cluster on this machine.
pub struct Local {
    data: PathBuf,
    url: String,
    token: PathBuf,
    notices: Vec<String>,
    server: Option<NatsServer>,
    broker: Broker,
    gateway: Gateway,
    traces: Option<Traces>,
    node: Node,
    runtime: Arc<DockerRuntime>,
    artifacts: Arc<dyn ArtifactStore>,
    /// Released last.
    lock: Lock,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Local")
            .field("data", &self.data)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Local {
    /// Starts the cluster; it is ready when this returns. On failure, stops what it started.
    pub async fn start(arguments: &UpArguments) -> Result<Self, Failure> {
        Self::start_with(arguments, None).await
    }

    /// Like [`Local::start`], with `stand_ins` that answer calls in place of capsules.
    pub(crate) async fn start_with(
        arguments: &UpArguments,
        stand_ins: Option<Arc<StandIns>>,
    ) -> Result<Self, Failure> {
        openness::check(arguments)?;
        let data = data::directory(arguments.data.as_deref())?;
        node::check_length(&data.join(restored::NODE))?;
        data::make_directory(&data)?;
        let lock = Lock::take(&data).await?;
        let mut notices = Vec::from_iter(restored::check(arguments, &data)?);
        docker::describe(&arguments.capacity.docker).await?;
        let node = node::identify(&data.join(restored::NODE))?;
        let (mut server, broker) = broker_arguments(arguments, &data, node, &mut notices).await?;
        let started = Box::pin(begin(
            arguments,
            (&data, node),
            broker,
            stand_ins,
            &mut notices,
        ))
        .await;
        match started {
            Ok(Started {
                broker,
                gateway,
                traces,
                node,
                runtime,
                artifacts,
                token,
            }) => {
                let url = url_of(gateway.local_addr());
                Connection {
                    url: url.clone(),
                    token_file: token.clone(),
                    pid: std::process::id(),
                }
                .write(&data)?;
                notices.extend(joining::notice(arguments, &data)?);
                notices.extend(openness::warning(arguments, &url));
                Ok(Self {
                    data,
                    url,
                    token,
                    notices,
                    server,
                    broker,
                    gateway,
                    traces,
                    node,
                    runtime,
                    artifacts,
                    lock,
                })
            }
            Err(failure) => {
                if let Some(server) = &mut server {
                    server.stop().await;
                }
                Err(failure)
            }
        }
    }

    /// The URL of the gateway.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file with the token of the gateway.
    pub fn token_file(&self) -> &Path {
        &self.token
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The engine that builds images.
    pub(crate) fn runtime(&self) -> &Arc<DockerRuntime> {
        &self.runtime
    }

    pub(crate) fn artifacts(&self) -> &Arc<dyn ArtifactStore> {
        &self.artifacts
    }

    /// Notices about the start, one per line.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The version of the broker.
    pub fn server_version(&self) -> &str {
        self.broker.server_version()
    }

    /// Restarts a broker that ends; returns only if it cannot keep the broker running.
    pub async fn watch(&mut self) -> Failure {
        let Some(server) = &mut self.server else {
            return std::future::pending().await;
        };
        for _ in 0..BROKER_RESTARTS_MAX {
            server.ended().await;
            tracing::error!("the broker ended unexpectedly; restarting it");
            sleep(BROKER_PAUSE).await;
            if let Err(failure) = server.restart().await {
                return failure;
            }
        }
        server.ended().await;
        Failure::environment(format!(
            "the broker ended unexpectedly {} times",
            BROKER_RESTARTS_MAX + 1
        ))
    }

    /// Stops the cluster and removes its processes and containers; keeps all data.
    pub async fn stop(self) -> Result<(), Failure> {
        let Self {
            data,
            mut server,
            broker,
            gateway,
            traces,
            node,
            runtime,
            lock,
            ..
        } = self;
        Connection::remove(&data)?;
        if timeout(DRAIN_PATIENCE, node.drain()).await.is_err() {
            tracing::info!("stopping unfinished runs; they continue at the next start");
        }
        node.stop().await;
        remove_containers(&runtime).await;
        gateway.shutdown().await;
        drop((traces, broker));
        if let Some(server) = &mut server {
            server.stop().await;
        }
        lock.release();
        Ok(())
    }
}

/// The parts that run in this process.
struct Started {
    broker: Broker,
    gateway: Gateway,
    traces: Option<Traces>,
    node: Node,
    runtime: Arc<DockerRuntime>,
    artifacts: Arc<dyn ArtifactStore>,
    token: PathBuf,
}

async fn begin(
    arguments: &UpArguments,
    (data, node): (&Path, NodeId),
    broker: BrokerArguments,
    stand_ins: Option<Arc<StandIns>>,
    notices: &mut Vec<String>,
) -> Result<Started, Failure> {
    let (credentials, _) = Credentials::ensure(&data.join("nats"))?;
    let connected = wiring::connect(&broker, GATEWAY).await?;
    let opened = wiring::artifacts(&broker, &connected, GATEWAY, &data.join("cache"), None).await?;
    let artifacts = Arc::clone(&opened.artifacts);
    let traces = Traces::begin(&arguments.traces, &connected, &artifacts).await?;
    let gateway = start_gateway(
        arguments,
        &credentials,
        data,
        gateway::ports(&connected, Arc::clone(&artifacts)).await?,
        notices,
    )
    .await?;
    let setup = node::Setup {
        capacity: &arguments.capacity,
        id: node,
        directory: data.join(restored::NODE),
        cluster: cluster_name(data)?,
        host: None,
        lease_seconds: broker.lease_seconds,
        certificate_authority: None,
        stand_ins,
    };
    // With the rights of a node, as on other hosts.
    let mut broker = broker;
    if arguments.nats.is_empty() {
        broker.nats_credentials = Some(credentials.users.node());
    }
    let connected_as_node = wiring::connect(&broker, NODE).await?;
    let (node, runtime) = node::begin(setup, &connected_as_node, opened).await?;
    Ok(Started {
        broker: connected,
        gateway,
        traces,
        node,
        runtime,
        artifacts,
        token: credentials.token,
    })
}

/// The broker of `--nats`, or a new one of this cluster.
async fn broker_arguments(
    arguments: &UpArguments,
    data: &Path,
    node: NodeId,
    notices: &mut Vec<String>,
) -> Result<(Option<NatsServer>, BrokerArguments), Failure> {
    let mut broker = BrokerArguments {
        nats: arguments.nats.clone(),
        nats_credentials: arguments.nats_credentials.clone(),
        nats_ca: None,
        nats_monitoring: None,
        nats_replicas: 1,
        store: arguments
            .store
            .clone()
            .unwrap_or_else(|| "jetstream".to_owned()),
        cache_bytes: CACHE_BYTES_MAX,
        lease_seconds: LEASE_SECONDS_DEFAULT,
    };
    if !broker.nats.is_empty() {
        return Ok((None, broker));
    }
    if arguments.store.is_none() {
        let artifacts = data.join("artifacts");
        disk::make_private(&artifacts).map_err(|error| data::unusable(&artifacts, &error))?;
        broker.store = format!("file://{}", artifacts.display());
    }
    let directory = data.join("nats");
    let (credentials, _) = Credentials::ensure(&directory)?;
    let finding = nats::find().await;
    notices.extend(finding.skipped);
    let docker_url = &arguments.capacity.docker;
    // A restored copy of the cluster has another node, so it does not stop the broker of the original.
    let name = format!("{}-nats-{node}", cluster_name(data)?);
    // Two servers on one directory would corrupt it.
    let left = Service::find(&docker::socket(docker_url)?, &name)
        .map_err(|error| docker::unusable(docker_url, &error))?;
    left.stop()
        .await
        .map_err(|error| docker::unusable(docker_url, &error))?;
    let choice = match finding.program {
        Some((program, version)) => {
            notices.push(format!("broker: {} {version}", program.display()));
            Choice::Program(program)
        }
        None => {
            notices.push(format!(
                "broker: container {name}, because this host has no supported nats-server"
            ));
            Choice::Container {
                docker: docker_url.clone(),
                name,
            }
        }
    };
    let server = NatsServer::start(choice, &directory, &credentials.users, notices).await?;
    broker.nats = vec![server.url()];
    broker.nats_monitoring = Some(server.monitoring_url());
    broker.nats_credentials = Some(credentials.users.gateway());
    Ok((Some(server), broker))
}

/// Starts the gateway on `listen`, or on a free port of the same address.
async fn start_gateway(
    arguments: &UpArguments,
    credentials: &Credentials,
    data: &Path,
    ports: aod_gateway::Ports,
    notices: &mut Vec<String>,
) -> Result<Gateway, Failure> {
    let directory = data.join("gateway");
    data::make_directory(&directory)?;
    let listen = arguments.listen;
    let start = async |listen: SocketAddr| {
        let tokens = vec![gateway::token(&credentials.token)?];
        let access = if arguments.open_to_agent_on_demand {
            Access::TokensOrAgentOnDemand(tokens)
        } else {
            Access::Tokens(tokens)
        };
        let key = credentials::seal_key(Some(&credentials.seal_key), &directory)?;
        let lease_seconds = LEASE_SECONDS_DEFAULT;
        let mut config = gateway::config(listen, None, access, &directory, lease_seconds, key);
        config.log_age = arguments.archive.age();
        config.disk_reserve = arguments.capacity.disk.disk_reserve;
        let started = Gateway::start(config, ports.clone()).await;
        Ok::<_, Failure>(started)
    };
    match start(listen).await? {
        Err(StartError::Listen { source, .. })
            if source.kind() == std::io::ErrorKind::AddrInUse =>
        {
            let started = start(SocketAddr::new(listen.ip(), 0))
                .await?
                .map_err(|error| gateway::failed(&error))?;
            notices.push(format!(
                "port {} is in use; the gateway listens on {}",
                listen.port(),
                started.local_addr()
            ));
            Ok(started)
        }
        started => started.map_err(|error| gateway::failed(&error)),
    }
}

/// The URL of the gateway for programs on this machine.
fn url_of(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(host, address.port()))
}

/// The cluster name of this data directory, a label of its containers; generated once.
fn cluster_name(data: &Path) -> Result<String, Failure> {
    let path = data.join("cluster");
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => Err(
            Failure::new(Exit::Environment, format!("{} is empty", path.display())).with_hint(
                "remove the file, and remove the containers of earlier runs from Docker",
            ),
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let secret = data::draw_secret()?;
            let name = format!("aod-{}", &secret[..12]);
            data::write_private(&path, &format!("{name}\n"))?;
            Ok(name)
        }
        Err(error) => Err(data::unusable(&path, &error)),
    }
}

/// Removes the containers of stopped runs; the next start records their attempts as lost.
async fn remove_containers(runtime: &DockerRuntime) {
    let containers = match runtime.list().await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot list the containers; the next start removes them"
            );
            return;
        }
    };
    let removals = containers
        .iter()
        .map(|container| runtime.remove(&container.name));
    for removed in futures::future::join_all(removals).await {
        if let Err(error) = removed {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot remove a container; the next start removes it"
            );
        }
    }
}

/// Waits until the lock of `data` is free, at most for `patience`.
pub(crate) async fn wait_until_free(data: &Path, patience: Duration) -> Result<bool, Failure> {
    let deadline = Instant::now() + patience;
    loop {
        if matches!(Lock::holder(data)?, Holder::Nobody) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(Duration::from_millis(50)).await;
    }
}
