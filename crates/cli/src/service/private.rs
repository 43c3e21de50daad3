//! A private cluster of one command: on this machine, in a temporary directory, with capsules registered directly from
//! their directories.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_api::capsules::CapsuleView;
use aod_domain::capsule::{
    Event, Handoffs, Image, ImageContent, Needs, Openness, Registration, Resources, image_tag,
};
use aod_domain::digest::Digest;
use aod_domain::event::CloudEvent;
use aod_domain::manifest::CapsuleName;
use aod_domain::placement::Requirements;
use aod_domain::subject::Pool;
use aod_domain::tenant::Tenant;
use aod_kit::stand_in::{self, StandIns};
use aod_kit::{Source, pack};
use aod_ports::clock::SystemClock;
use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild, RuntimeError};
use aod_ports::event_log::{Append, EventLog as _, Guard};
use aod_services::runs::Runs;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::local::Local;
use crate::arguments::{
    ArchiveArguments, CapacityArguments, ConnectArguments, DiskArguments, EquipmentArguments,
    PolicyArguments, TraceArguments, UpArguments,
};
use crate::client::{Client, encoded};
use crate::console::{Console, StatusLine};
use crate::exit::Exit;
use crate::failure::Failure;

/// The registering principal.
const REGISTERED_BY: &str = "local";

/// Maximum time until the gateway has read a registration.
const APPLIED_PATIENCE: Duration = Duration::from_secs(20);

/// Interval between two queries of the gateway.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Capacity of the channel for output lines of a build.
const LINES_QUEUED: usize = 256;

/// A private cluster. Its owner must call [`Private::end`], also after a failure.
#[derive(Debug)]
pub(crate) struct Private {
    local: Local,
    client: Client,
    directory: Temporary,
}

/// A temporary directory, removed on drop, with trees of any depth.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    is_kept: bool,
}

impl Temporary {
    fn new() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("aod-").tempdir();
        let directory = directory.map_err(|error| {
            Failure::environment("cannot create a temporary directory").because(&error)
        })?;
        Ok(Self {
            path: directory.keep(),
            is_kept: false,
        })
    }

    fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = aod_node::remove_tree(&self.path) {
            warn!(path = %self.path.display(), %error, "cannot remove a temporary directory");
        }
    }
}

/// The origin of a capsule's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageOrigin {
    /// Built from the directory of the capsule.
    Built,
    /// No image: [`StandIns`] answer all calls.
    None,
}

/// What a registration reports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told<'a> {
    Line(&'a str),
    /// Of interest only until the next text.
    Passing(&'a str),
}

impl Told<'_> {
    /// Prints a line, or shows a passing text in `status`.
    pub(crate) fn show(self, status: &StatusLine, console: Console) {
        match self {
            Told::Line(text) => console.tell(text),
            Told::Passing(text) => status.set(text),
        }
    }
}

impl Private {
    /// Starts the cluster on the engine at `docker`; it is ready when this returns.
    pub(crate) async fn start(
        docker: &str,
        policy: &PolicyArguments,
        stand_ins: Option<Arc<StandIns>>,
    ) -> Result<Self, Failure> {
        // Short, because paths of sockets are limited.
        let directory = Temporary::new()?;
        let arguments = UpArguments {
            data: Some(directory.path.clone()),
            nats: Vec::new(),
            nats_credentials: None,
            store: None,
            restored: false,
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            open_to_agent_on_demand: false,
            capacity: CapacityArguments {
                slots: None,
                pools: vec![Pool::any()],
                equipment: EquipmentArguments::default(),
                memory: None,
                containers_max: None,
                disk: DiskArguments::default(),
                docker: docker.to_owned(),
                registries: None,
                policy: policy.clone(),
                keep_model_contents: false,
            },
            archive: ArchiveArguments { log_days: 0 },
            traces: TraceArguments::default(),
            detach: false,
            in_background: false,
        };
        let local = Local::start_with(&arguments, stand_ins).await?;
        let connect = ConnectArguments {
            data: arguments.data,
            ..ConnectArguments::default()
        };
        match Client::connect(&connect) {
            Ok(client) => Ok(Self {
                local,
                client,
                directory,
            }),
            Err(failure) => {
                local.stop().await?;
                Err(failure)
            }
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Like [`Local::watch`].
    pub(crate) async fn watch(&mut self) -> Failure {
        self.local.watch().await
    }

    /// Stops the cluster; returns the directory of its data if that is kept.
    pub(crate) async fn end(self, is_kept: bool) -> Result<Option<PathBuf>, Failure> {
        let Self {
            local, directory, ..
        } = self;
        local.stop().await?;
        Ok(is_kept.then(|| directory.keep()))
    }

    /// Registers a capsule. Builds its image unless the engine has an image of the same content.
    pub(crate) async fn register(
        &self,
        source: &Source,
        origin: ImageOrigin,
        openness: Openness,
        tell: impl Fn(Told<'_>),
    ) -> Result<(), Failure> {
        let package = pack(&source.directory)?;
        let path = package.file.path();
        let content = self.local.artifacts().put_file(path, None).await;
        let content = content.map_err(|error| unstored(&error))?;
        let config_digest = match origin {
            ImageOrigin::None => stand_in::IMAGE.to_owned(),
            ImageOrigin::Built => {
                if let Some(left_out) = &package.left_out {
                    tell(Told::Line(&format!("{}: {left_out}", source.name)));
                }
                self.image(source, content.digest, content.size_bytes, tell)
                    .await?
            }
        };
        self.append(
            self.registration(source, openness, content.digest, config_digest)
                .await?,
        )
        .await
    }

    /// Registers a capsule without a directory: it accepts any arguments, and `output` is the schema of its canned
    /// answers.
    pub(crate) async fn register_unknown(
        &self,
        name: &CapsuleName,
        output: &Value,
    ) -> Result<(), Failure> {
        let schema = json!({"input": {"type": "object"}, "output": output}).to_string();
        let schema = self.store(schema.as_bytes()).await?;
        let registration = Registration {
            name: name.clone(),
            title: None,
            description: None,
            aliases: Vec::new(),
            content: Digest::of(name.as_str()),
            schema,
            agent: None,
            tools: None,
            workflow: None,
            image: here(stand_in::IMAGE.to_owned()),
            bases: Vec::new(),
            resources: Resources::default(),
            handoffs: Handoffs::Listed(Vec::new()),
            models: None,
            needs: Needs::default(),
            pool: Pool::any(),
            registered_by: REGISTERED_BY.to_owned(),
        };
        self.append(registration).await
    }

    async fn registration(
        &self,
        source: &Source,
        openness: Openness,
        content: Digest,
        config_digest: String,
    ) -> Result<Registration, Failure> {
        let agent = &source.agent;
        Ok(Registration {
            name: source.name.clone(),
            title: agent.title.clone(),
            description: agent.description.clone(),
            aliases: agent.aliases.clone(),
            content,
            schema: self.store(&source.schema_json).await?,
            agent: self.store_optional(source.agent_yaml.as_ref()).await?,
            tools: self.store_optional(source.tools_yaml.as_ref()).await?,
            workflow: self.store_optional(source.workflow_yaml.as_ref()).await?,
            image: here(config_digest),
            bases: Vec::new(),
            resources: agent.resources.clone(),
            handoffs: openness.handoffs(&source.tools),
            models: agent.model_grant(),
            needs: Needs {
                // The cluster has only this host.
                placement: Requirements::default(),
                ..openness.needs(agent)
            },
            pool: Pool::any(),
            registered_by: REGISTERED_BY.to_owned(),
        })
    }

    /// The id of the image with the tag of this content; builds the image if it does not exist.
    async fn image(
        &self,
        source: &Source,
        content: Digest,
        size_bytes: u64,
        tell: impl Fn(Told<'_>),
    ) -> Result<String, Failure> {
        let name = source.name.as_str();
        let tag = image_tag(&source.name, content);
        let runtime = self.local.runtime();
        let failed = |error: &RuntimeError| build_failed(name, error);
        if let Some(id) = runtime
            .image_of_tag(&tag)
            .await
            .map_err(|error| failed(&error))?
        {
            return Ok(id);
        }
        tell(Told::Line(&format!("{name}: building the image {tag}")));
        let context = self.local.artifacts().get_file(content, size_bytes).await;
        let context = context.map_err(|error| unstored(&error))?;
        let (progress, mut lines) = mpsc::channel::<String>(LINES_QUEUED);
        let building = runtime.build_image(ImageBuild::new(
            context.path().to_owned(),
            name,
            &tag,
            progress,
        ));
        // The error of a failed build contains its last lines.
        let telling = async {
            while let Some(line) = lines.recv().await {
                tell(Told::Passing(&format!("{name}: {line}")));
            }
        };
        let (built, ()) = tokio::join!(building, telling);
        built.map_err(|error| failed(&error))
    }

    async fn store(&self, bytes: &[u8]) -> Result<Digest, Failure> {
        let piece = stream::iter([Ok(Bytes::copy_from_slice(bytes))]).boxed();
        let stored = self.local.artifacts().put_stream(piece).await;
        Ok(stored.map_err(|error| unstored(&error))?.digest)
    }

    async fn store_optional(&self, bytes: Option<&Vec<u8>>) -> Result<Option<Digest>, Failure> {
        match bytes {
            Some(bytes) => Ok(Some(self.store(bytes).await?)),
            None => Ok(None),
        }
    }

    /// Stores the registration and waits until the gateway has read it.
    async fn append(&self, registration: Registration) -> Result<(), Failure> {
        let (name, content) = (registration.name.clone(), registration.content);
        let log = Arc::new(self.local.broker().event_log());
        let runs = Runs::new(Arc::clone(&log) as _, Arc::new(SystemClock), "/local");
        let event = Event::Registered(Box::new(registration));
        let subject = event.subject(&Tenant::default());
        let event = CloudEvent::new(runs.header(), format!("capsule/{name}"), None, event);
        let append = Append::of(subject, Guard::None, &event).map_err(|error| {
            Failure::usage("agent.yaml and tools.yaml are too large for an event").because(&error)
        })?;
        log.append(append).await.map_err(|error| {
            Failure::environment(format!("cannot register {name}")).because(&error)
        })?;
        let deadline = Instant::now() + APPLIED_PATIENCE;
        let path = format!("/v1/capsules/{}", encoded(name.as_str()));
        while Instant::now() < deadline {
            let found = self.client.get::<CapsuleView>(&path, &[]).await;
            if found.is_ok_and(|capsule| capsule.content == content) {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        let message = format!(
            "the gateway did not read the registration of {name} within {APPLIED_PATIENCE:?}"
        );
        Err(Failure::new(Exit::Internal, message))
    }
}

/// An image on this host. No other host needs it.
fn here(config_digest: String) -> Image {
    Image {
        config_digest,
        content: ImageContent::Archive {
            archive: Digest::of(""),
            archive_size_bytes: 0,
        },
    }
}

fn unstored(error: &aod_ports::artifact_store::StoreError) -> Failure {
    Failure::environment("cannot store the artifacts of the run").because(error)
}

fn build_failed(name: &str, error: &RuntimeError) -> Failure {
    let message = format!("cannot build the image of {name}");
    match error {
        RuntimeError::BuildFailed { .. } => Failure::new(Exit::RunFailed, message).because(error),
        error => Failure::environment(message).because(error),
    }
}
