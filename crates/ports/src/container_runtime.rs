//! Containers: builds, stores and moves images; runs one container for each attempt and watches it until its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::capsule::{Image, Resources};
use aod_domain::id::RunId;
use aod_domain::manifest::CapsuleName;
use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::BoxError;
use crate::artifact_store::{ArtifactStore, StoreError};
use crate::log_stream::Output;
use crate::secrets::SecretValue;

/// The directories of an attempt on the host. The container sees them at the paths of the contract. Each is a separate
/// mount, in this order, so that the capsule cannot move or replace a mount below another.
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
    /// `/.aod/channel`, read-only: the sockets of the run. Short, because the path of a socket has at most 108 bytes.
    pub channel: PathBuf,
    /// An empty directory of the node, in which the runtime makes the volumes that the image declares.
    pub volumes: PathBuf,
}

/// Where a container finds its secrets: memory of the container, freed with it.
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
    /// The group with access to it, which the capsule's user joins.
    pub group: u32,
}

/// What starts a container.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    pub run: RunId,
    pub attempt: u32,
    /// The capsule's name, for labels.
    pub capsule: String,
    /// `sha256:…`, an image that [`ContainerRuntime::has_image`] finds.
    pub image: String,
    pub io: IoPaths,
    /// What the contract sets in addition to the image's own environment.
    pub environment: Vec<(String, String)>,
    /// Written before the command starts, and to no disk.
    pub secrets: Vec<SecretFile>,
    /// Devices of the host that the container may use, at the same paths.
    pub devices: Vec<Device>,
    pub resources: Resources,
    /// Whether the container starts without the image's own command, for [`Container::spawn`].
    pub holds: bool,
    /// When the container must end, as time since the boot of the host: the value when the command starts; later
    /// renewals are sent to the container.
    pub lease_until: tokio::sync::watch::Receiver<Duration>,
}

/// A process of a container that holds, leader of its own process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The caller's number for it, different from those of all other processes of the container.
    pub number: u32,
    /// The program and its arguments. A program without a slash is searched in `PATH`.
    pub argv: Vec<String>,
    /// Added to the environment of the container.
    pub environment: Vec<(String, String)>,
    /// The file in [`IoPaths::channel`] that it reads as its standard input; none for an empty one.
    pub stdin: Option<String>,
}

/// An event of a process of a container that holds; the last is an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    Wrote {
        output: Output,
        bytes: Bytes,
    },
    /// It has ended, and all its output was delivered.
    Exited {
        exit: Exit,
        /// A process of the container was killed because the memory ran out, while this one ran.
        out_of_memory: bool,
        /// The engine, or a user on the host, has requested the end of the container.
        asked_from_outside: bool,
    },
    /// It could not be started; contains the reason.
    Unusable(String),
}

/// The events of a live container, in order; ends after `Exited` or `Lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerEvent {
    /// The image's own command is running, or the container holds.
    Started,
    /// An event of a process, by its number.
    Process(u32, ProcessEvent),
    Wrote {
        output: Output,
        bytes: Bytes,
    },
    /// All processes have ended, and all output was delivered.
    Exited {
        exit: Exit,
        /// A process of the container was killed because the memory ran out.
        out_of_memory: bool,
        /// The engine, or a user on the host, requested the end, not this program through [`Container`].
        asked_from_outside: bool,
    },
    /// The command could not be started; contains the reason.
    Unusable(String),
    /// The channel to the gate broke; only the engine knows the state of the container.
    Lost,
}

/// The engine's report after a container has ended for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub out_of_memory: bool,
    /// The exit code according to the engine.
    pub exit_code: Option<i64>,
}

impl Verdict {
    /// The exit code in the text of an error.
    pub fn exit_code_text(&self) -> String {
        let code = self.exit_code.map(|code| code.to_string());
        code.unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Why the runtime failed, sorted by what the caller does about it.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The image is not on this host: fetch it and try again.
    #[error("image {image} is not on this host")]
    ImageMissing { image: String },
    /// The build ran and failed; to be fixed by the author of the capsule.
    #[error("the build failed: {message}")]
    BuildFailed {
        message: String,
        last_lines: Vec<String>,
    },
    /// No attempt on this node can start the capsule; to be fixed by its author.
    #[error("the image is unusable on this node: {message}")]
    ImageRefused { message: String },
    /// The engine failed or did not answer in time: retry, or use another node.
    #[error("{action} failed")]
    Engine {
        action: &'static str,
        source: BoxError,
    },
    /// The artifact store failed, or does not have a part of the image.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The engine, for presence and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    pub version: String,
    pub architecture: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    /// The directory of images and containers, on the host of the engine.
    pub directory: Option<PathBuf>,
    /// Weaknesses of this engine, one sentence each.
    pub warnings: Vec<String>,
}

/// An image built by this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedImage {
    /// The config digest, `sha256:…`.
    pub id: String,
    /// The capsule that it was built for.
    pub capsule: CapsuleName,
}

/// A started container. Dropping it does not stop it.
#[async_trait]
pub trait Container: Send + Sync {
    /// Its name in the engine.
    fn name(&self) -> &str;

    /// Its events; can be taken once.
    fn events(&mut self) -> BoxStream<'static, ContainerEvent>;

    /// Extends its lease to `milliseconds` from now.
    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError>;

    /// Starts a process in a container that holds. When none of its processes runs, the container kills all that they
    /// left before it reports the last end.
    async fn spawn(&self, _process: ProcessSpec) -> Result<(), RuntimeError> {
        Err(holds_no_container())
    }

    /// Asks the process group of a process to end, or kills it if `is_forced`. Nothing happens after its end.
    async fn end_process(&self, _number: u32, _is_forced: bool) -> Result<(), RuntimeError> {
        Err(holds_no_container())
    }

    /// Ends a container that holds, as soon as none of its processes runs, with exit code 0.
    async fn finish(&self) -> Result<(), RuntimeError> {
        Err(holds_no_container())
    }

    /// Asks the main process to end; in a container that holds, all its processes, and then finishes.
    async fn terminate(&self) -> Result<(), RuntimeError>;

    /// Kills it; returns when the engine has accepted the order.
    async fn kill(&self) -> Result<(), RuntimeError>;

    /// Returns when the engine reports that no process of the container is running. Retries a hanging engine a limited
    /// number of times; an error is final for this process.
    async fn gone(&self) -> Result<Verdict, RuntimeError>;

    /// A lower bound of the bytes on disks of deleted files that its processes still have open.
    async fn deleted_bytes(&self) -> Result<u64, RuntimeError> {
        Ok(0)
    }

    /// What AOD's own program in the container printed, for the error of a container that ended without a report;
    /// empty if it printed nothing.
    async fn complaints(&self) -> String {
        String::new()
    }
}

fn holds_no_container() -> RuntimeError {
    RuntimeError::Engine {
        action: "an order for the processes of a container",
        source: "this runtime holds no containers".into(),
    }
}

/// An image to which a reference refers on this engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedImage {
    /// The config digest, `sha256:…`.
    pub id: String,
    /// Its names in registries, `name@sha256:…`.
    pub digests: Vec<String>,
}

/// A build of an image.
#[derive(Clone, Debug)]
pub struct ImageBuild<'a> {
    /// The packed directory, a tar file.
    pub context: PathBuf,
    /// Name of the capsule.
    pub name: &'a str,
    pub tag: &'a str,
    /// Receives the lines of the build.
    pub progress: mpsc::Sender<String>,
    /// Id of an earlier version on this engine, whose layers the build may reuse.
    pub earlier: Option<String>,
    /// Takes the place of the `Dockerfile` of the packed directory.
    pub dockerfile: Option<String>,
}

impl<'a> ImageBuild<'a> {
    pub const fn new(
        context: PathBuf,
        name: &'a str,
        tag: &'a str,
        progress: mpsc::Sender<String>,
    ) -> Self {
        Self {
            context,
            name,
            tag,
            progress,
            earlier: None,
            dockerfile: None,
        }
    }
}

/// An image whose parts are to be stored.
#[derive(Clone, Debug)]
pub struct ImagePush<'a> {
    pub image: &'a str,
    pub artifacts: &'a Arc<dyn ArtifactStore>,
    /// Receives a line each second: what was stored so far.
    pub progress: mpsc::Sender<String>,
}

/// A container engine with the images of this cluster and the containers of this node.
#[async_trait]
pub trait ContainerRuntime: Send + Sync + std::fmt::Debug {
    /// Whether the engine answers, and its properties.
    async fn describe(&self) -> Result<EngineInfo, RuntimeError>;

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError>;

    /// The image to which `reference` refers on this engine: `name:tag`, `name@sha256:…` or an id.
    async fn named_image(&self, reference: &str) -> Result<Option<NamedImage>, RuntimeError>;

    /// Pulls an image from the registry of `reference`, with the credentials of builds.
    async fn pull_image(
        &self,
        reference: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<(), RuntimeError>;

    /// Builds the image and returns its config digest, `sha256:…`.
    async fn build_image(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError>;

    /// Stores the parts of the image that the artifact store lacks, and renews the others, so that an event may name them.
    async fn store_image(&self, push: ImagePush<'_>) -> Result<Image, RuntimeError>;

    /// Brings a stored image to this engine, and fails unless the engine has exactly this image then. Several callers
    /// share one transfer. Returns the number of bytes that came from `artifacts`.
    async fn fetch_image(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError>;

    /// As [`fetch_image`](Self::fetch_image), for the base image of a capsule: its labels, which a stranger may have
    /// written, give it no name.
    async fn fetch_base(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        self.fetch_image(image, artifacts).await
    }

    /// The images on this engine that any node of this cluster has built.
    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError>;

    /// Removes an image of this cluster. Returns whether it is deleted: an image that a container needs stays.
    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError>;

    /// Creates and starts a container. Replaces an existing container of the same attempt, because the caller has its
    /// lease.
    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError>;

    /// All containers that this node has started on this engine, also before its restart; never those of another
    /// node, even if its log has the same runs.
    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError>;

    /// Kills and removes a container with its anonymous volumes; succeeds if none has the name.
    async fn remove(&self, name: &str) -> Result<(), RuntimeError>;
}
