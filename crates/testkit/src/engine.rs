//! A container engine without containers: a command is a function that sees the directories and the
//! channel that a container would see. It isolates nothing.
//!
//! It is the one double of the port: whoever wants faults puts them around it. Time is tokio's, so
//! that it may be virtual.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::node::ObservedContainer;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, ObservedImage,
    RuntimeError, Verdict,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

mod container;
mod images;

use container::{DoubleContainer, Live};

pub use container::Inside;
pub use images::{Images, Recipe};

/// What an image runs: is handed what a container would see, and answers with its exit code.
pub type Command = Arc<dyn Fn(Inside) -> BoxFuture<'static, i32> + Send + Sync>;

/// Is told of every end, may change how it looks from outside, and says how long the engine takes
/// from it until the container is gone.
pub type OnEnd = Arc<dyn Fn(&ObservedContainer, &mut End) -> Duration + Send + Sync>;

/// How a gate ends whose lease has run out. Source: `aod-gate`, `EXIT_CODE_GATE_FAILED`.
pub const EXIT_CODE_GATE: i64 = 125;

/// How a gate ends that finds no command. Source: `aod-gate`, `EXIT_CODE_NOT_FOUND`.
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

    /// An engine to which nothing happens.
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

    /// How many containers there are, ended ones included.
    pub fn count(&self) -> usize {
        self.live().len()
    }

    /// Whether there is a container of this name, an ended one included.
    pub fn has(&self, name: &str) -> bool {
        self.live().contains_key(name)
    }

    /// The host loses its power: nothing runs any more, the ended containers are still there.
    pub fn crash(&self) {
        for live in self.live().values() {
            live.killed.send_replace(true);
        }
    }

    /// Asks a container to end, as somebody on its host may.
    pub fn ask_from_outside(&self, name: &str) {
        if let Some(live) = self.live().get(name) {
            live.ask_from_outside();
        }
    }

    /// The engine was killed and is back: it asks those to end that it finds running.
    pub fn restart(&self) {
        for live in self.live().values() {
            live.ask_from_outside();
        }
    }

    /// Makes a container whose gate is never told to go.
    pub async fn create(&self, spec: ContainerSpec) -> Result<(), RuntimeError> {
        let live = self.make(spec).await?.0;
        live.gone.send_replace(Some(Verdict::default()));
        Ok(())
    }

    async fn make(
        &self,
        spec: ContainerSpec,
    ) -> Result<(Arc<Live>, Option<Command>), RuntimeError> {
        let command = self.0.images.command(&spec.image)?;
        let name = container_name(&spec);
        self.remove(&name).await?;
        let left = spec
            .lease_until
            .borrow()
            .saturating_sub(self.0.clock.since_boot());
        let live = Arc::new(Live {
            name: name.clone(),
            spec,
            asked: watch::Sender::default(),
            killed: watch::Sender::default(),
            until: watch::Sender::new(Instant::now() + left),
            gone: watch::Sender::default(),
        });
        self.live().insert(name, Arc::clone(&live));
        Ok((live, command))
    }

    /// The life of a container: its command, until that ends, is ended, or its gate's time is over.
    async fn live_through(
        self,
        live: Arc<Live>,
        command: Option<Command>,
        events: mpsc::UnboundedSender<ContainerEvent>,
    ) {
        let mut end = match command {
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

/// What the container of an attempt is called.
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
            warnings: Vec::new(),
        })
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        Ok(self.0.images.has(image))
    }

    async fn build_image(
        &self,
        context: PathBuf,
        name: &str,
        tag: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        self.0.images.build(&context, name, tag, progress).await
    }

    async fn save_image(
        &self,
        image: &str,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
        self.0.images.save(image)
    }

    async fn load_image(&self, image: &str, archive: PathBuf) -> Result<(), RuntimeError> {
        self.0.images.load(image, &archive)
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
        let (live, command) = self.make(spec).await?;
        self.0.started.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = mpsc::unbounded_channel();
        tokio::spawn(
            self.clone()
                .live_through(Arc::clone(&live), command, sender),
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
        // Somebody else may have removed it meanwhile, and made another.
        if containers
            .get(name)
            .is_some_and(|found| Arc::ptr_eq(found, &live))
        {
            containers.remove(name);
        }
        Ok(())
    }
}
