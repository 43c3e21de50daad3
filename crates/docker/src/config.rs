//! What the adapter is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use aod_domain::id::NodeId;

/// Where the engine is and how it is to be used.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine's Unix socket, for instance `/var/run/docker.sock`.
    pub endpoint: PathBuf,
    /// The cluster's name: the value of the label `dev.aod.cluster`. Containers of another cluster
    /// on the same engine are never seen nor touched.
    pub cluster: String,
    /// Who starts the containers: the value of `dev.aod.node`.
    pub node: NodeId,
    /// A directory of the host with the static program `aod-gate`, bound into every container.
    pub gate_directory: PathBuf,
    /// A file of the host that becomes `/etc/hosts` of every container; written if it is not there
    /// or says something else.
    pub hosts_file: PathBuf,
    /// As whom capsules run.
    pub capsule_user: CapsuleUser,
    /// Containers being created and started at one time. Source of the default: beyond twice the
    /// processors only the queue grew (measured: 9.3 launches a second by 4 workers on 2
    /// processors, 9.6 by 8).
    pub launch_concurrency: usize,
    /// What a build may take.
    pub build: BuildLimits,
    /// A file with the credentials of private registries, as `docker login` writes it; builds pull
    /// the images that they begin with by it.
    pub registries: Option<PathBuf>,
    /// How long the engine may take for an answer.
    pub timeouts: Timeouts,
    /// An OCI runtime other than the engine's default, for instance `crun` or `runsc`.
    pub runtime: Option<String>,
}

impl Config {
    /// The usual settings for an engine at `endpoint`; the directories are the node's choice.
    pub fn new(
        endpoint: PathBuf,
        cluster: String,
        node: NodeId,
        gate_directory: PathBuf,
        hosts_file: PathBuf,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            endpoint,
            cluster,
            node,
            gate_directory,
            hosts_file,
            capsule_user: CapsuleUser::of_this_process(),
            launch_concurrency: 2 * cores,
            build: BuildLimits::default(),
            registries: None,
            timeouts: Timeouts::default(),
            runtime: None,
        }
    }
}

/// As whom capsules run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsuleUser {
    /// As the image's own user, unless that is root; then as [`CapsuleUser::NOBODY`].
    OfImage,
    /// As this user, never 0; images that name another one are refused. For a node that is not
    /// root: it could not read the files of others.
    Own { uid: u32, gid: u32 },
}

impl CapsuleUser {
    /// User and group of capsules whose image names none. Source: the kernel's overflow id, which
    /// owns nothing.
    pub const NOBODY: u32 = 65_534;

    /// [`CapsuleUser::OfImage`] for root, [`CapsuleUser::Own`] for everybody else.
    pub fn of_this_process() -> Self {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return Self::OfImage;
        }
        Self::Own {
            uid: uid.as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// What the build of an image may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Memory and swap of each step, in bytes.
    pub memory_bytes: u64,
    /// The whole build.
    pub seconds: u64,
}

impl Default for BuildLimits {
    /// 4 GiB and half an hour: enough to install scientific Python packages over a slow line.
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            seconds: 1_800,
        }
    }
}

/// How long the engine may take for an answer, by the kind of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Inspect, list, version, kill.
    pub query: Duration,
    /// Creating a container. A busy engine takes seconds.
    pub create: Duration,
    /// Starting one.
    pub start: Duration,
    /// From the end of the start until the gate speaks.
    pub gate: Duration,
    /// Killing and removing a container.
    pub remove: Duration,
    /// Loading an image.
    pub load: Duration,
    /// Between two pieces of a stream that the engine sends.
    pub stream: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            query: Duration::from_secs(15),
            create: Duration::from_secs(30),
            start: Duration::from_secs(60),
            gate: Duration::from_secs(20),
            remove: Duration::from_secs(60),
            load: Duration::from_secs(1_800),
            stream: Duration::from_secs(120),
        }
    }
}
