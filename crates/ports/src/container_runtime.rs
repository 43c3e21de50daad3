//! Containers: images built, kept and moved, one container an attempt, watched to its very end.

use std::path::PathBuf;
use std::time::Duration;

use aod_domain::capsule::Resources;
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use thiserror::Error;

use crate::BoxError;
use crate::log_stream::Output;
use crate::secrets::SecretValue;

/// Where an attempt's directories are on the host. The container sees them as the contract says;
/// every one is a mount of its own, in this order, so that none below can be moved or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoPaths {
    /// `/io` itself, mode 1777: holds the next six, or a mount point for each.
    pub io: PathBuf,
    /// `/io/input.json`, read-only.
    pub input_json: PathBuf,
    /// `/io/input`, read-only.
    pub inputs: PathBuf,
    /// `/io/output`.
    pub outputs: PathBuf,
    /// `/io/handoff`, read-only: holds the next two.
    pub handoff: PathBuf,
    /// `/io/handoff/outgoing`.
    pub outgoing: PathBuf,
    /// `/io/handoff/incoming`, read-only.
    pub incoming: PathBuf,
    /// `/workspace`.
    pub workspace: PathBuf,
    /// `/.aod/channel`, read-only: the sockets of the run. Short: a socket's path has 108 bytes.
    pub channel: PathBuf,
}

/// Where a container finds its secrets: memory that is its own, and gone with it.
pub const SECRETS_DIRECTORY: &str = "/run/secrets";

/// A secret of a container: a file of this name in [`SECRETS_DIRECTORY`], mode 0400.
#[derive(Clone, Debug)]
pub struct SecretFile {
    pub name: String,
    pub value: SecretValue,
}

/// A device of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub path: PathBuf,
    /// The group that may use it, which the capsule's user joins.
    pub group: u32,
}

/// Everything that starts a container.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    pub run: RunId,
    pub attempt: u32,
    /// The capsule's name, for labels.
    pub capsule: String,
    /// `sha256:…`, an image that [`ContainerRuntime::has_image`] knows.
    pub image: String,
    pub io: IoPaths,
    /// What the contract sets, besides the image's own environment.
    pub environment: Vec<(String, String)>,
    /// Written before the command starts, and to no disk.
    pub secrets: Vec<SecretFile>,
    /// Devices of the host that it may use, at the same paths.
    pub devices: Vec<Device>,
    pub resources: Resources,
    /// When the container must end, as time since the boot of the host: as it is when the command
    /// starts, later renewals are told to the container.
    pub lease_until: tokio::sync::watch::Receiver<Duration>,
}

/// What a live container tells, in order; ends after `Exited` or `Lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerEvent {
    /// The image's own command runs.
    Started,
    Wrote {
        output: Output,
        bytes: Bytes,
    },
    /// The main process and all others are gone, all output has been told.
    Exited {
        exit: Exit,
        /// A process of the container was killed because its memory ran out.
        out_of_memory: bool,
        /// Its engine, or somebody on its host, asked for the end, not through [`Container`].
        asked_from_outside: bool,
    },
    /// The command could not be started at all: why.
    Unusable(String),
    /// The channel to the gate broke; only the engine knows what has become of it.
    Lost,
}

/// What the engine says once a container is gone for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub out_of_memory: bool,
    /// The exit code as the engine has it.
    pub exit_code: Option<i64>,
}

/// Why the runtime did not do what was asked, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The image is not on this host: bring it and try again.
    #[error("the image {image} is not on this host")]
    ImageMissing { image: String },
    /// The build ran and failed: the author mends it.
    #[error("the build failed: {message}")]
    BuildFailed {
        message: String,
        last_lines: Vec<String>,
    },
    /// The capsule cannot be started by this node, whoever tries: the author mends it.
    #[error("the image cannot be used here: {message}")]
    ImageRefused { message: String },
    /// The engine failed or did not answer in time: another try, or another node, may do.
    #[error("{action} failed")]
    Engine {
        action: &'static str,
        source: BoxError,
    },
}

/// What the engine is, for presence and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    pub version: String,
    pub architecture: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    /// What is weaker here than it should be, a sentence each.
    pub warnings: Vec<String>,
}

/// An image that this cluster has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedImage {
    /// The config digest, `sha256:…`.
    pub id: String,
    /// The name that it was built for.
    pub capsule: CapsuleName,
}

/// A started container. Dropping it does not stop it.
#[async_trait]
pub trait Container: Send + Sync {
    /// The name that the engine knows it by.
    fn name(&self) -> &str;

    /// Its events; to be taken once.
    fn events(&mut self) -> BoxStream<'static, ContainerEvent>;

    /// Lets it live for another `milliseconds` from now.
    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError>;

    /// Asks the main process to end.
    async fn terminate(&self) -> Result<(), RuntimeError>;

    /// Ends it by force; returns once the engine has taken the order.
    async fn kill(&self) -> Result<(), RuntimeError>;

    /// Returns once the engine says that nothing of it runs any more. Bounded tries of a hanging
    /// engine go on inside; the error is final for this process.
    async fn gone(&self) -> Result<Verdict, RuntimeError>;
}

/// A container engine with the images and containers of this cluster.
#[async_trait]
pub trait ContainerRuntime: Send + Sync + std::fmt::Debug {
    /// Whether the engine answers, and what it is.
    async fn describe(&self) -> Result<EngineInfo, RuntimeError>;

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError>;

    /// Builds the packed directory (a tar file) and answers with the image's config digest,
    /// `sha256:…`. Lines of the build go to `progress`.
    async fn build_image(
        &self,
        context: PathBuf,
        name: &str,
        tag: &str,
        progress: tokio::sync::mpsc::Sender<String>,
    ) -> Result<String, RuntimeError>;

    /// The image as a tar stream, as [`ContainerRuntime::load_image`] takes it.
    async fn save_image(
        &self,
        image: &str,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>;

    /// Loads a saved image and fails unless it is `image`. Several callers share one load.
    async fn load_image(&self, image: &str, archive: PathBuf) -> Result<(), RuntimeError>;

    /// The images on this engine that this cluster has built, wherever.
    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError>;

    /// Takes an image of this cluster away. Whether it is gone: one that a container needs stays.
    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError>;

    /// Creates and starts a container. A container of the same attempt that is there already is
    /// replaced: the caller has its lease.
    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError>;

    /// All containers of this cluster on this engine, whichever node started them.
    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError>;

    /// Kills and removes a container with its anonymous volumes; none of that name is fine.
    async fn remove(&self, name: &str) -> Result<(), RuntimeError>;
}
