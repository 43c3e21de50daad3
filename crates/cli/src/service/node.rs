//! A node, wired to the adapters that its flags select.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_artifacts::Opened;
use aod_docker::{DockerRuntime, RegistryUse};
use aod_domain::admission::Capacity;
use aod_domain::id::NodeId;
use aod_jetstream::Broker;
use aod_kit::stand_in::{StandInRuntime, StandIns};
use aod_node::{
    CommandSecrets, Config, DISK_LOOK_DEFAULT, DirectorySecrets, GRACE_DEFAULT, HttpGateways,
    IMAGE_KEEP_DEFAULT, LOG_BYTES_MAX_DEFAULT, ModelSettings, Node, Ports, SystemNetwork,
};
use aod_ports::clock::SystemClock;
use aod_ports::container_runtime::{ContainerRuntime, EngineInfo};
use aod_ports::secrets::{NoSecrets, SecretStore};

use super::local::restored::unusable_id;
use super::wiring::NODE;
use super::{certificates, data, docker, wiring};
use crate::arguments::{CapacityArguments, NodeArguments, PolicyArguments};
use crate::failure::Failure;

/// Default number of containers for each slot: one chain of callers of the maximum depth.
const CONTAINERS_PER_SLOT: usize = 16;

/// Maximum length of the path of a Unix socket, in bytes, with its terminator. Source: Linux `sockaddr_un`.
const SOCKET_PATH_BYTES_MAX: usize = 108;

/// The longest path of a socket below the node's directory.
const SOCKET_NAME_LONGEST: &str = "c/ffffffff/capsule.sock";

/// Settings of a node, without the broker.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) capacity: &'a CapacityArguments,
    /// Of [`identify`] for the directory.
    pub(super) id: NodeId,
    pub(super) directory: PathBuf,
    pub(super) cluster: String,
    pub(super) host: Option<String>,
    pub(super) lease_seconds: u32,
    /// The authority of the gateways' certificates, in place of those that the system trusts.
    pub(super) certificate_authority: Option<PathBuf>,
    /// Canned answers in place of capsules, for tests.
    pub(super) stand_ins: Option<Arc<StandIns>>,
}

/// Starts a node; it takes work when this returns.
pub async fn start(arguments: &NodeArguments) -> Result<Node, Failure> {
    let directory = data::directory(arguments.data.as_deref())?;
    data::make_directory(&directory)?;
    let mut broker_arguments = arguments.broker.clone();
    if broker_arguments.nats_ca.is_none() {
        broker_arguments
            .nats_ca
            .clone_from(&arguments.certificate_authority);
    }
    let broker = wiring::connect(&broker_arguments, NODE).await?;
    let cache = directory.join("cache-node");
    let id = identify(&directory)?;
    let peers = wiring::peers(&arguments.broker, &broker, id).await?;
    let opened = wiring::artifacts(&arguments.broker, &broker, NODE, &cache, peers).await?;
    let setup = Setup {
        capacity: &arguments.capacity,
        id,
        directory,
        cluster: arguments.cluster.clone(),
        host: arguments.host.clone(),
        lease_seconds: arguments.broker.lease_seconds,
        certificate_authority: arguments.certificate_authority.clone(),
        stand_ins: None,
    };
    Ok(begin(setup, &broker, opened).await?.0)
}

/// The id of the node with this directory; a new one for a new or copied directory.
pub(super) fn identify(directory: &Path) -> Result<NodeId, Failure> {
    data::make_directory(directory)?;
    aod_node::load_or_draw(directory, &SystemClock).map_err(|error| unusable_id(&error))
}

/// Starts a node on a connected broker; returns it with its container engine.
pub(super) async fn begin(
    setup: Setup<'_>,
    broker: &Broker,
    opened: Opened,
) -> Result<(Node, Arc<DockerRuntime>), Failure> {
    check_length(&setup.directory)?;
    let id = setup.id;
    let (runtime, engine) = engine(&setup).await?;
    let given = &setup.capacity.equipment;
    let (equipment, devices) = given.read(engine.cpus, engine.memory_bytes)?;
    let config = Config {
        data: setup.directory,
        pools: setup.capacity.pools.clone(),
        equipment,
        devices,
        capacity: capacity(setup.capacity, &engine),
        lease: Duration::from_secs(setup.lease_seconds.into()),
        grace: GRACE_DEFAULT,
        log_bytes_max: LOG_BYTES_MAX_DEFAULT,
        disk_look: DISK_LOOK_DEFAULT,
        disk_reserve: setup.capacity.disk.disk_reserve,
        image_keep: IMAGE_KEEP_DEFAULT,
        models: Arc::new(models(setup.capacity.policy.models.as_deref())?),
        keep_model_contents: setup.capacity.keep_model_contents,
        egress: setup.capacity.policy.egress.clone(),
        host: setup.host.unwrap_or_else(host_name),
    };
    tracing::info!(node = %id, host = config.host, capacity = ?config.capacity, pools = ?config.pools, equipment = ?config.equipment, "starting the node");
    let authority = setup.certificate_authority.as_deref();
    let authority = authority.map(certificates::read_authority).transpose()?;
    let gateways = HttpGateways::trusting(authority.as_deref()).map_err(|error| {
        Failure::environment("cannot create the HTTP client for gateways").because(error.as_ref())
    })?;
    let containers: Arc<dyn ContainerRuntime> = match setup.stand_ins {
        None => Arc::clone(&runtime) as _,
        Some(stand_ins) => Arc::new(StandInRuntime::new(Arc::clone(&runtime) as _, stand_ins)),
    };
    let ports = Ports {
        queue: Arc::new(broker.work_queue()),
        logs: Arc::new(broker.log_stream()),
        presence: Arc::new(broker.presence()),
        artifacts: opened.artifacts,
        images: opened.images,
        runtime: containers,
        gateways: Arc::new(gateways),
        secrets: secrets(&setup.capacity.policy)?,
        network: Arc::new(SystemNetwork),
    };
    let node = Node::start(
        config,
        id,
        ports,
        Arc::new(broker.event_log()),
        Arc::new(SystemClock),
    )
    .await;
    let node =
        node.map_err(|error| Failure::environment("the node cannot start").because(&error))?;
    Ok((node, runtime))
}

/// Connects to the container engine, and logs its weaknesses.
async fn engine(setup: &Setup<'_>) -> Result<(Arc<DockerRuntime>, EngineInfo), Failure> {
    let url = &setup.capacity.docker;
    let mut config = aod_docker::Config::new(
        docker::socket(url)?,
        setup.cluster.clone(),
        setup.id,
        put_gate(&setup.directory)?,
        setup.directory.join("hosts"),
    );
    config.registries.clone_from(&setup.capacity.registries);
    config.registry = RegistryUse::Loopback(Some(setup.directory.join("registry-port")));
    let runtime = DockerRuntime::connect(config)
        .await
        .map_err(|error| docker::unusable(url, &error))?;
    let runtime = Arc::new(runtime);
    let engine = runtime
        .describe()
        .await
        .map_err(|error| docker::unusable(url, &error))?;
    for warning in &engine.warnings {
        tracing::warn!(docker = url, "{warning}");
    }
    Ok((runtime, engine))
}

fn capacity(arguments: &CapacityArguments, engine: &EngineInfo) -> Capacity {
    let slots = arguments
        .slots
        .map_or(engine.cpus.max(1), |slots| slots as usize);
    Capacity {
        slots,
        containers_max: arguments
            .containers_max
            .map_or(slots * CONTAINERS_PER_SLOT, |count| count as usize),
        memory_bytes: arguments.memory.unwrap_or(engine.memory_bytes / 4 * 3),
    }
}

/// The providers of models.
pub(crate) fn models(file: Option<&Path>) -> Result<ModelSettings, Failure> {
    let Some(path) = file else {
        return Ok(ModelSettings::default());
    };
    let text = std::fs::read_to_string(path).map_err(|error| data::unusable(path, &error))?;
    ModelSettings::parse(&text).map_err(|error| {
        Failure::usage(format!("invalid model settings in {}", path.display())).because(&error)
    })
}

/// The operator's store of secrets.
fn secrets(policy: &PolicyArguments) -> Result<Arc<dyn SecretStore>, Failure> {
    if let Some(command) = &policy.secret_command {
        let command = CommandSecrets::parse(command)
            .map_err(|error| Failure::usage("invalid --secret-command").because(&error))?;
        return Ok(Arc::new(command));
    }
    let Some(path) = &policy.secrets else {
        return Ok(Arc::new(NoSecrets));
    };
    let path = std::path::absolute(path).map_err(|error| data::unusable(path, &error))?;
    // Fails now for a mistyped directory, instead of in each run with a missing secret.
    std::fs::read_dir(&path).map_err(|error| data::unusable(&path, &error))?;
    Ok(Arc::new(DirectorySecrets::new(path)))
}

/// Writes the gate's program, which containers mount; returns its directory.
fn put_gate(directory: &Path) -> Result<PathBuf, Failure> {
    let programs = directory.join("bin");
    data::make_directory(&programs)?;
    data::write_program(&programs.join("aod-gate"), aod_node::GATE_BINARY)?;
    // The user of any capsule must be able to enter it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&programs, mode).map_err(|error| data::unusable(&programs, &error))?;
    Ok(programs)
}

/// Checks that the paths of sockets below the directory fit the limit of the kernel.
pub(crate) fn check_length(directory: &Path) -> Result<(), Failure> {
    let length = directory.join(SOCKET_NAME_LONGEST).as_os_str().len();
    if length < SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let over = length + 1 - SOCKET_PATH_BYTES_MAX;
    Err(Failure::usage(format!(
        "the path {} is {over} bytes too long for the sockets below it",
        directory.display()
    ))
    .with_hint("choose a shorter path with --data"))
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_path_too_long_for_sockets_is_rejected() {
        assert!(check_length(Path::new("/var/lib/aod")).is_ok());
        let long = format!("/{}", "x".repeat(90));
        assert!(
            check_length(Path::new(&long))
                .unwrap_err()
                .render()
                .contains("bytes too long")
        );
    }
}
