//! A node on the adapters that its flags name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aod_docker::DockerRuntime;
use aod_domain::admission::Capacity;
use aod_domain::id::NodeId;
use aod_jetstream::Broker;
use aod_node::{
    CommandSecrets, Config, DISK_LOOK_DEFAULT, DirectorySecrets, GRACE_DEFAULT, HttpGateways,
    IMAGE_KEEP_DEFAULT, LOG_BYTES_MAX_DEFAULT, ModelSettings, Node, Ports, SystemNetwork,
};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::SystemClock;
use aod_ports::container_runtime::{ContainerRuntime, EngineInfo};
use aod_ports::secrets::{NoSecrets, SecretStore};

use super::stand_in::{StandInRuntime, StandIns};
use super::wiring::NODE;
use super::{certificates, data, docker, wiring};
use crate::arguments::{CapacityArguments, NodeArguments, PolicyArguments};
use crate::failure::Failure;

/// Containers a slot, unless told otherwise: one whole chain of callers, as deep as calls may be
/// nested, for each.
const CONTAINERS_PER_SLOT: usize = 16;

/// Longest path of a Unix socket, in bytes, with its end. Source: Linux `sockaddr_un`.
const SOCKET_PATH_BYTES_MAX: usize = 108;

/// The longest name that a socket gets below the node's directory.
const SOCKET_NAME_LONGEST: &str = "c/ffffffff/capsule.sock";

/// Everything that a node needs besides the broker.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) capacity: &'a CapacityArguments,
    pub(super) directory: PathBuf,
    pub(super) cluster: String,
    pub(super) host: Option<String>,
    pub(super) lease_seconds: u32,
    /// Who signs the certificates of gateways, instead of those that the system trusts.
    pub(super) certificate_authority: Option<PathBuf>,
    /// Who answers in place of capsules, if anyone does.
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
    let artifacts = wiring::artifacts(&arguments.broker, &broker, NODE, &cache).await?;
    let setup = Setup {
        capacity: &arguments.capacity,
        directory,
        cluster: arguments.cluster.clone(),
        host: arguments.host.clone(),
        lease_seconds: arguments.broker.lease_seconds,
        certificate_authority: arguments.certificate_authority.clone(),
        stand_ins: None,
    };
    Ok(begin(setup, &broker, artifacts).await?.0)
}

/// Starts a node on a broker that is connected; answers it with its containers.
pub(super) async fn begin(
    setup: Setup<'_>,
    broker: &Broker,
    artifacts: Arc<dyn ArtifactStore>,
) -> Result<(Node, Arc<DockerRuntime>), Failure> {
    check_length(&setup.directory)?;
    data::make_directory(&setup.directory)?;
    let id = aod_node::load_or_draw(&setup.directory, &SystemClock)
        .map_err(|error| Failure::environment("the node has no id").because(&error))?;
    let (runtime, engine) = engine(&setup, id).await?;
    let given = &setup.capacity.equipment;
    let (equipment, devices) = given.read(engine.cpus, engine.memory_bytes)?;
    let config = Config {
        data: setup.directory,
        labels: setup.capacity.labels.clone(),
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
    tracing::info!(node = %id, host = config.host, capacity = ?config.capacity, labels = ?config.labels, equipment = ?config.equipment, "node starts");
    let authority = setup.certificate_authority.as_deref();
    let authority = authority.map(certificates::read_authority).transpose()?;
    let gateways = HttpGateways::trusting(authority.as_deref()).map_err(|error| {
        Failure::environment("no client for gateways can be made").because(error.as_ref())
    })?;
    let containers: Arc<dyn ContainerRuntime> = match setup.stand_ins {
        None => Arc::clone(&runtime) as _,
        Some(stand_ins) => Arc::new(StandInRuntime::new(Arc::clone(&runtime) as _, stand_ins)),
    };
    let ports = Ports {
        queue: Arc::new(broker.work_queue()),
        logs: Arc::new(broker.log_stream()),
        presence: Arc::new(broker.presence()),
        artifacts,
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
        node.map_err(|error| Failure::environment("the node does not start").because(&error))?;
    Ok((node, runtime))
}

/// Connects to the container engine, and tells what is weak about it.
async fn engine(
    setup: &Setup<'_>,
    id: NodeId,
) -> Result<(Arc<DockerRuntime>, EngineInfo), Failure> {
    let url = &setup.capacity.docker;
    let mut config = aod_docker::Config::new(
        docker::socket(url)?,
        setup.cluster.clone(),
        id,
        put_gate(&setup.directory)?,
        setup.directory.join("hosts"),
    );
    config.registries.clone_from(&setup.capacity.registries);
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

/// Who answers for models.
pub(crate) fn models(file: Option<&Path>) -> Result<ModelSettings, Failure> {
    let Some(path) = file else {
        return Ok(ModelSettings::default());
    };
    let text = std::fs::read_to_string(path).map_err(|error| data::unusable(path, &error))?;
    ModelSettings::parse(&text).map_err(|error| {
        Failure::usage(format!("{} is not understood", path.display())).because(&error)
    })
}

/// Where the operator keeps secrets.
fn secrets(policy: &PolicyArguments) -> Result<Arc<dyn SecretStore>, Failure> {
    if let Some(command) = &policy.secret_command {
        let command = CommandSecrets::parse(command).map_err(|error| {
            Failure::usage("--secret-command is not understood").because(&error)
        })?;
        return Ok(Arc::new(command));
    }
    let Some(path) = &policy.secrets else {
        return Ok(Arc::new(NoSecrets));
    };
    let path = std::path::absolute(path).map_err(|error| data::unusable(path, &error))?;
    // A mistyped directory is told now, not to each run as a secret that is missing.
    std::fs::read_dir(&path).map_err(|error| data::unusable(&path, &error))?;
    Ok(Arc::new(DirectorySecrets::new(path)))
}

/// Puts the gate's program where it is bound from; answers its directory.
fn put_gate(directory: &Path) -> Result<PathBuf, Failure> {
    let programs = directory.join("bin");
    data::make_directory(&programs)?;
    data::write_program(&programs.join("aod-gate"), aod_node::GATE_BINARY)?;
    // Whoever the capsule runs as must be able to enter it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&programs, mode).map_err(|error| data::unusable(&programs, &error))?;
    Ok(programs)
}

/// Sockets lie below the directory, and their paths are bounded by the kernel.
pub(crate) fn check_length(directory: &Path) -> Result<(), Failure> {
    let length = directory.join(SOCKET_NAME_LONGEST).as_os_str().len();
    if length < SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let over = length + 1 - SOCKET_PATH_BYTES_MAX;
    Err(Failure::usage(format!(
        "{} is {over} bytes too long for the sockets below it",
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
    fn a_directory_too_long_for_sockets_is_refused() {
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
