//! A container engine without containers: a command is a function that sees the directories and the channel of its
//! container. It isolates nothing.
//!
//! The only double of the port; tests that need faults wrap it. Time is tokio's, and may be virtual.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::capsule::Image;
use aod_domain::node::ObservedContainer;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, ImageBuild, ImagePush,
    NamedImage, ObservedImage, RuntimeError, Verdict,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

mod container;
mod held;
mod images;

use container::{DoubleContainer, Live};
use held::Order;

pub use container::Inside;
pub use images::{Images, Recipe};

/// The command of an image: receives the view of its container, returns its exit code.
pub type Command = Arc<dyn Fn(Inside) -> BoxFuture<'static, i32> + Send + Sync>;

/// Receives every end, may change how it appears from outside, and returns the time until the engine has removed the
/// container.
pub type OnEnd = Arc<dyn Fn(&ObservedContainer, &mut End) -> Duration + Send + Sync>;

/// Exit code of a gate whose lease has expired. Source: `aod-gate`, `EXIT_CODE_GATE_FAILED`.
pub const EXIT_CODE_GATE: i64 = 125;

/// Exit code of a gate without a command. Source: `aod-gate`, `EXIT_CODE_NOT_FOUND`.
const EXIT_CODE_NOT_FOUND: i64 = 127;

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The last event.
    pub event: ContainerEvent,
    /// The exit code that the engine has.
    pub exit_code: i64,
}

/// The engine of one host. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    images: Images,
    containers: Mutex<BTreeMap<String, Arc<Live>>>,
    started: AtomicUsize,
    on_end: OnEnd,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine with these images on a host with this clock.
    pub fn new(
        clock: Arc<dyn Clock>,
        images: impl IntoIterator<Item = (String, Command)>,
        on_end: OnEnd,
    ) -> Self {
        Self(Arc::new(Inner {
            clock,
            images: Images::new(images),
            containers: Mutex::default(),
            started: AtomicUsize::new(0),
            on_end,
        }))
    }

    /// An engine without hooks.
    pub fn plain(
        clock: Arc<dyn Clock>,
        images: impl IntoIterator<Item = (String, Command)>,
    ) -> Self {
        Self::new(clock, images, Arc::new(|_, _| Duration::ZERO))
    }

    pub fn images(&self) -> &Images {
        &self.0.images
    }

    /// Commands started so far.
    pub fn started(&self) -> usize {
        self.0.started.load(Ordering::Relaxed)
    }

    /// The number of containers, including ended ones.
    pub fn count(&self) -> usize {
        self.live().len()
    }

    /// Whether a container has this name, including ended ones.
    pub fn has(&self, name: &str) -> bool {
        self.live().contains_key(name)
    }

    /// The host loses power: no process runs, ended containers remain.
    pub fn crash(&self) {
        for live in self.live().values() {
            live.killed.send_replace(true);
        }
    }

    /// Asks a container to end, as a user on its host may.
    pub fn ask_from_outside(&self, name: &str) {
        if let Some(live) = self.live().get(name) {
            live.ask_from_outside();
        }
    }

    /// The engine was killed and has restarted: it asks the running containers to end.
    pub fn restart(&self) {
        for live in self.live().values() {
            live.ask_from_outside();
        }
    }

    /// Creates a container whose gate never gets the order to start.
    pub async fn create(&self, spec: ContainerSpec) -> Result<(), RuntimeError> {
        let (live, ..) = self.make(spec).await?;
        live.gone.send_replace(Some(Verdict::default()));
        Ok(())
    }

    async fn make(
        &self,
        spec: ContainerSpec,
    ) -> Result<(Arc<Live>, Option<Command>, mpsc::UnboundedReceiver<Order>), RuntimeError> {
        let command = self.0.images.command(&spec.image)?;
        let name = container_name(&spec);
        self.remove(&name).await?;
        let left = spec
            .lease_until
            .borrow()
            .saturating_sub(self.0.clock.since_boot());
        let (orders, ordered) = mpsc::unbounded_channel();
        let live = Arc::new(Live {
            orders,
            name: name.clone(),
            spec,
            asked: watch::Sender::default(),
            killed: watch::Sender::default(),
            until: watch::Sender::new(Instant::now() + left),
            gone: watch::Sender::default(),
        });
        self.live().insert(name, Arc::clone(&live));
        Ok((live, command, ordered))
    }

    /// Runs a container until its command ends or is killed, or its gate's lease expires.
    async fn live_through(
        self,
        live: Arc<Live>,
        command: Option<Command>,
        events: mpsc::UnboundedSender<ContainerEvent>,
        orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let mut end = match command {
            Some(command) if live.spec.holds => held::run(&live, &command, &events, orders).await,
            Some(command) => container::run(&live, &command, &events).await,
            None => End {
                event: ContainerEvent::Unusable("there is no such command".into()),
                exit_code: EXIT_CODE_NOT_FOUND,
            },
        };
        let gone_after = (self.0.on_end)(&live.observed(), &mut end);
        let _ = events.send(end.event);
        drop(events);
        tokio::time::sleep(gone_after).await;
        live.gone.send_replace(Some(Verdict {
            out_of_memory: false,
            exit_code: Some(end.exit_code),
        }));
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Live>>> {
        self.0
            .containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of the container of an attempt.
pub fn container_name(spec: &ContainerSpec) -> String {
    format!("aod-{}-{}", spec.run.token(), spec.attempt)
}

#[async_trait]
impl ContainerRuntime for Engine {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        Ok(EngineInfo {
            version: "simulated".into(),
            architecture: std::env::consts::ARCH.into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            directory: None,
            warnings: Vec::new(),
        })
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        Ok(self.0.images.has(image))
    }

    async fn named_image(&self, reference: &str) -> Result<Option<NamedImage>, RuntimeError> {
        Ok(self.0.images.named(reference))
    }

    async fn pull_image(
        &self,
        reference: &str,
        _progress: mpsc::Sender<String>,
    ) -> Result<(), RuntimeError> {
        // No registry has an image.
        let text = format!("no registry has {reference}");
        Err(RuntimeError::Engine {
            action: "pulling an image",
            source: text.into(),
        })
    }

    async fn build_image(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError> {
        self.0.images.build(build).await
    }

    async fn store_image(&self, push: ImagePush<'_>) -> Result<Image, RuntimeError> {
        self.0
            .images
            .store(push.image, push.artifacts.as_ref())
            .await
    }

    async fn fetch_image(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        self.0.images.fetch(image, artifacts.as_ref()).await
    }

    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError> {
        Ok(self.0.images.built())
    }

    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError> {
        let is_needed = self.live().values().any(|live| live.spec.image == image);
        if !is_needed {
            self.0.images.forget(image);
        }
        Ok(!is_needed)
    }

    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError> {
        let (live, command, orders) = self.make(spec).await?;
        self.0.started.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = mpsc::unbounded_channel();
        tokio::spawn(
            self.clone()
                .live_through(Arc::clone(&live), command, sender, orders),
        );
        Ok(Box::new(DoubleContainer {
            live,
            events: Some(events),
        }))
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        Ok(self.live().values().map(|live| live.observed()).collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        let live = self.live().get(name).cloned();
        let Some(live) = live else { return Ok(()) };
        live.killed.send_replace(true);
        live.gone().await;
        let mut containers = self.live();
        // It may have been removed in the meantime, and replaced by another.
        if containers
            .get(name)
            .is_some_and(|found| Arc::ptr_eq(found, &live))
        {
            containers.remove(name);
        }
        Ok(())
    }
}
