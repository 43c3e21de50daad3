//! Everything on this machine: broker, gateway and node on one data directory, started and stopped.
//!
//! ```text
//! <data>/lock              held while it runs; has its process id
//! <data>/connection.json   there while it is ready
//! <data>/cluster           the cluster's name, by which its containers are known
//! <data>/nats              the broker: configuration, credentials, log, and what it keeps
//! <data>/token, gateway, node, artifacts, cache
//! ```

mod lock;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_docker::DockerRuntime;
use aod_docker::service::Service;
use aod_gateway::{Gateway, StartError};
use aod_jetstream::{Broker, LEASE_SECONDS_DEFAULT};
use aod_node::Node;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::ContainerRuntime as _;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::lock::{Holder, Lock};
use super::connection::Connection;
use super::credentials::Credentials;
use super::nats::{self, Choice, NatsServer};
use super::stand_in::StandIns;
use super::traces::Traces;
use super::wiring::{GATEWAY, NODE};
use super::{credentials, data, docker, gateway, node, wiring};
use crate::arguments::{ArchiveArguments, BrokerArguments, UpArguments};
use crate::exit::Exit;
use crate::failure::Failure;

/// How long runs that are about to end may still take when everything stops; the others go on at
/// the next start.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// Starts of the broker after ends that nobody asked for.
const BROKER_RESTARTS_MAX: u32 = 5;

/// The pause before it is started again.
const BROKER_PAUSE: Duration = Duration::from_secs(1);

/// Most that copies of artifacts of a remote store may take here, in bytes.
const CACHE_BYTES_MAX: u64 = 20 << 30;

/// Everything on this machine.
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
    /// Kept to the very end.
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
    /// Starts everything; it is ready when this returns. What was started is stopped if it fails.
    pub async fn start(arguments: &UpArguments) -> Result<Self, Failure> {
        Self::start_with(arguments, None).await
    }

    /// As [`Local::start`]; what `stand_ins` answer is not run.
    pub(crate) async fn start_with(
        arguments: &UpArguments,
        stand_ins: Option<Arc<StandIns>>,
    ) -> Result<Self, Failure> {
        let data = data::directory(arguments.data.as_deref())?;
        node::check_length(&data.join("node"))?;
        data::make_directory(&data)?;
        let lock = Lock::take(&data).await?;
        docker::describe(&arguments.capacity.docker).await?;
        let mut notices = Vec::new();
        let (mut server, broker) = broker_arguments(arguments, &data, &mut notices).await?;
        let started = Box::pin(begin(arguments, &data, broker, stand_ins, &mut notices)).await;
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

    /// Where the gateway is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file with its token.
    pub fn token_file(&self) -> &Path {
        &self.token
    }

    /// The broker that everything meets in.
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The engine that images are built by.
    pub(crate) fn runtime(&self) -> &Arc<DockerRuntime> {
        &self.runtime
    }

    pub(crate) fn artifacts(&self) -> &Arc<dyn ArtifactStore> {
        &self.artifacts
    }

    /// What people should know about how it was started, a line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The version of the broker.
    pub fn server_version(&self) -> &str {
        self.broker.server_version()
    }

    /// Looks after the broker, and returns only if that cannot be kept alive.
    pub async fn watch(&mut self) -> Failure {
        let Some(server) = &mut self.server else {
            return std::future::pending().await;
        };
        for _ in 0..BROKER_RESTARTS_MAX {
            server.ended().await;
            tracing::error!("the broker has ended by itself and is started again");
            sleep(BROKER_PAUSE).await;
            if let Err(failure) = server.restart().await {
                return failure;
            }
        }
        server.ended().await;
        Failure::environment(format!(
            "the broker has ended by itself {} times",
            BROKER_RESTARTS_MAX + 1
        ))
    }

    /// Ends everything: no process and no container is left, all data is.
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
            tracing::info!("what still runs is stopped and goes on at the next start");
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

/// What runs in this process.
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
    data: &Path,
    broker: BrokerArguments,
    stand_ins: Option<Arc<StandIns>>,
    notices: &mut Vec<String>,
) -> Result<Started, Failure> {
    let (credentials, _) = Credentials::ensure(&data.join("nats"))?;
    let connected = wiring::connect(&broker, GATEWAY).await?;
    let artifacts = wiring::artifacts(&broker, &connected, GATEWAY, &data.join("cache")).await?;
    let traces = Traces::begin(&arguments.traces, &connected, &artifacts).await?;
    let gateway = start_gateway(
        (arguments.listen, arguments.capacity.disk.disk_reserve),
        &credentials,
        data,
        gateway::ports(&connected, Arc::clone(&artifacts)).await?,
        arguments.archive,
        notices,
    )
    .await?;
    let setup = node::Setup {
        capacity: &arguments.capacity,
        directory: data.join("node"),
        cluster: cluster_name(data)?,
        host: None,
        lease_seconds: broker.lease_seconds,
        certificate_authority: None,
        stand_ins,
    };
    // With the rights of a node, as on any other host.
    let mut broker = broker;
    if arguments.nats.is_empty() {
        broker.nats_credentials = Some(credentials.users.node());
    }
    let connected_as_node = wiring::connect(&broker, NODE).await?;
    let (node, runtime) = node::begin(setup, &connected_as_node, Arc::clone(&artifacts)).await?;
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

/// The broker that was named, or one of our own, started.
async fn broker_arguments(
    arguments: &UpArguments,
    data: &Path,
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
        broker.store = format!("file://{}", data.join("artifacts").display());
    }
    let directory = data.join("nats");
    let (credentials, _) = Credentials::ensure(&directory)?;
    let finding = nats::find().await;
    notices.extend(finding.skipped);
    let docker_url = &arguments.capacity.docker;
    let name = format!("{}-nats", cluster_name(data)?);
    // Two servers on one directory would destroy it.
    let left = Service::find(&docker::socket(docker_url)?, &name)
        .map_err(|error| docker::unusable(docker_url, &error))?;
    left.stop()
        .await
        .map_err(|error| docker::unusable(docker_url, &error))?;
    let choice = match finding.program {
        Some((program, version)) => {
            notices.push(format!("the broker is {} {version}", program.display()));
            Choice::Program(program)
        }
        None => {
            notices.push(format!(
                "the broker is the container {name}: no nats-server of this host will do"
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

/// Listens where it was asked to, or on a free port of the same address.
async fn start_gateway(
    (listen, disk_reserve): (SocketAddr, Option<u64>),
    credentials: &Credentials,
    data: &Path,
    ports: aod_gateway::Ports,
    archive: ArchiveArguments,
    notices: &mut Vec<String>,
) -> Result<Gateway, Failure> {
    let directory = data.join("gateway");
    data::make_directory(&directory)?;
    let start = async |listen: SocketAddr| {
        let access = gateway::access(Some(&credentials.token))?;
        let key = credentials::seal_key(Some(&credentials.seal_key), &directory)?;
        let lease_seconds = LEASE_SECONDS_DEFAULT;
        let mut config = gateway::config(listen, None, access, &directory, lease_seconds, key);
        config.log_age = archive.age();
        config.disk_reserve = disk_reserve;
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
                "port {} is busy, the gateway listens on {}",
                listen.port(),
                started.local_addr()
            ));
            Ok(started)
        }
        started => started.map_err(|error| gateway::failed(&error)),
    }
}

/// How this machine reaches the gateway.
fn url_of(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(host, address.port()))
}

/// The name under which the containers of this data directory are known; drawn once.
fn cluster_name(data: &Path) -> Result<String, Failure> {
    let path = data.join("cluster");
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => Err(
            Failure::new(Exit::Environment, format!("{} is empty", path.display()))
                .with_hint("remove it; containers of earlier runs may then be left on the engine"),
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

/// Removes what stopped runs left: their attempts are lost, and the log says so at the next start.
async fn remove_containers(runtime: &DockerRuntime) {
    let containers = match runtime.list().await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "containers cannot be listed; the next start removes them"
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
                "a container is left; the next start removes it"
            );
        }
    }
}

/// Waits until nobody holds the lock of `data`, at most for `patience`.
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
