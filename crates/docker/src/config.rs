//! Configuration of the adapter.

use std::path::PathBuf;
use std::time::Duration;

use aod_domain::id::NodeId;

use crate::names::Owner;

/// Address and use of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine's Unix socket, for instance `/var/run/docker.sock`.
    pub endpoint: PathBuf,
    /// The cluster's name: the value of the label `dev.aod.cluster`. The adapter ignores containers and
    /// images of other clusters on the same engine.
    pub cluster: String,
    /// The node that starts the containers: the value of `dev.aod.node`. The adapter ignores containers of
    /// other nodes on the same engine.
    pub node: NodeId,
    /// A directory of the host with the static program `aod-gate`, bound into every container.
    pub gate_directory: PathBuf,
    /// A file of the host that becomes `/etc/hosts` of every container; written if it is missing or
    /// has other content.
    pub hosts_file: PathBuf,
    /// The user of capsules.
    pub capsule_user: CapsuleUser,
    /// Maximum number of concurrent launches. Source of the default: above twice the number of
    /// processors only the queue grows (measured on 2 processors: 9.3 launches a second with 4
    /// workers, 9.6 with 8).
    pub launch_concurrency: usize,
    /// Limits of a build.
    pub build: BuildLimits,
    /// A file with credentials of private registries, as `docker login` writes it; builds pull their
    /// base images with them.
    pub registries: Option<PathBuf>,
    /// How images move between the engine and the artifact store.
    pub registry: RegistryUse,
    /// Time limits of calls to the engine.
    pub timeouts: Timeouts,
    /// An OCI runtime other than the engine's default, for instance `crun` or `runsc`.
    pub runtime: Option<String>,
}

impl Config {
    /// Default settings for an engine at `endpoint`.
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
            registry: RegistryUse::Loopback(None),
            timeouts: Timeouts::default(),
            runtime: None,
        }
    }

    /// The owner of the containers that the adapter touches.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner {
            cluster: &self.cluster,
            node: self.node,
        }
    }
}

/// How images move between the engine and the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryUse {
    /// Layer by layer, through a registry on a loopback address. The file, if any, keeps the port: with the same port,
    /// the engine remembers which layers it has pushed before.
    Loopback(Option<PathBuf>),
    /// As whole images.
    Off,
}

/// The user of capsules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsuleUser {
    /// The image's own user, or [`CapsuleUser::NOBODY`] if that user is root.
    OfImage,
    /// This user, never 0; the node rejects images that name another user. For a node that is not
    /// root: it cannot read files of other users.
    Own { uid: u32, gid: u32 },
}

impl CapsuleUser {
    /// User and group of capsules whose image names no user. Source: the kernel's overflow id, which
    /// owns nothing.
    pub const NOBODY: u32 = 65_534;

    /// [`CapsuleUser::OfImage`] if this process is root, else [`CapsuleUser::Own`].
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

/// Limits of the build of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Memory and swap of each step, in bytes.
    pub memory_bytes: u64,
    /// Time limit of the whole build.
    pub seconds: u64,
    /// Maximum size of the files in all layers of the image, uncompressed, in bytes. A layer of zeros needs a thousandth
    /// of its size in the artifact store, and its whole size on the disk of each host.
    pub image_size_bytes: u64,
}

impl Default for BuildLimits {
    /// 4 GiB and half an hour: enough to install scientific Python packages over a slow connection. 64 GiB: more than
    /// twice the size of images with CUDA and a model.
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            seconds: 1_800,
            image_size_bytes: 64 << 30,
        }
    }
}

/// Time limits of calls to the engine, by kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Inspect, list, version, kill.
    pub query: Duration,
    /// Creating a container. A busy engine takes seconds.
    pub create: Duration,
    /// Starting a container.
    pub start: Duration,
    /// From the end of the start to the greeting of the gate.
    pub gate: Duration,
    /// Killing and removing a container.
    pub remove: Duration,
    /// Loading an image.
    pub load: Duration,
    /// Between two chunks of a stream from the engine.
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
