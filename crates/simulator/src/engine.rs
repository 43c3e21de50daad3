//! The container engine of one host with its faults. It continues when the node dies; the gate's deadline then ends
//! the containers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::capsule::Image;
use aod_domain::id::RunId;
use aod_domain::node::ObservedContainer;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, ImageBuild, ImagePush,
    NamedImage, ObservedImage, ProcessSpec, RuntimeError, Verdict,
};
use aod_testkit::engine::{self as double, Command, EXIT_CODE_GATE, End, Inside, container_name};
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use crate::capsule;
use crate::link::Switch;
use crate::world::World;

/// One start in this number fails before any effect.
const START_FAILS_ONE_IN: u64 = 80;

/// One start in this number fails after the container was created; its gate never gets the order to start.
const START_FAILS_LATE_ONE_IN: u64 = 80;

/// One start in this number hangs.
const START_HANGS_ONE_IN: u64 = 80;

/// Maximum duration of such a start, in milliseconds.
const HANG_MILLISECONDS_MAX: u64 = 15_000;

/// One container in this number ends without a report from its gate.
const EXIT_FORGOTTEN_ONE_IN: u64 = 100;

/// One capsule in this number ignores the request to end.
const DEAF_ONE_IN: u64 = 4;

/// Maximum time between the end of the process and the removal of the container, in milliseconds.
const TEARDOWN_MILLISECONDS_MAX: u64 = 200;

/// The engine of one host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    world: World,
    host: Arc<str>,
    pub(crate) switch: Switch,
    double: double::Engine,
}

/// Attempts with live processes, on all hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alive(Arc<Mutex<BTreeSet<(RunId, u32)>>>);

impl Alive {
    /// When an attempt begins, no other attempt of the run may have a live process on any host.
    fn begin(&self, world: &World, run: RunId, attempt: u32) {
        let mut alive = self.lock();
        for (other, number) in alive.iter() {
            if *other == run {
                world.violation(format!(
                    "{run}: attempt {number} runs when {attempt} begins"
                ));
            }
        }
        alive.insert((run, attempt));
    }

    pub(crate) fn is_alive(&self, run: RunId, attempt: u32) -> bool {
        self.lock().contains(&(run, attempt))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(RunId, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(world: &World, host: &str, clock: Arc<dyn Clock>, alive: &Alive) -> Self {
        let host: Arc<str> = host.into();
        let images = [(capsule::NAME.to_owned(), command(world, alive))];
        let (ending, on, alive) = (world.clone(), Arc::clone(&host), alive.clone());
        let on_end = move |container: &ObservedContainer, end: &mut End| {
            alive.lock().remove(&(container.run, container.attempt));
            heed(&ending, &on, container, end)
        };
        Self {
            world: world.clone(),
            host,
            switch: Switch::new(),
            double: double::Engine::new(clock, images, Arc::new(on_end)),
        }
    }

    /// The number of containers, including ended ones.
    pub(crate) fn count(&self) -> usize {
        self.double.count()
    }

    /// The host loses power: no process runs, ended containers remain.
    pub(crate) fn crash(&self) {
        self.double.crash();
    }

    /// The engine was killed and has restarted.
    pub(crate) fn restart(&self) {
        self.double.restart();
    }

    async fn act(&self, action: &'static str) -> Result<(), RuntimeError> {
        self.world.pause().await;
        if self.switch.is_on() {
            return Ok(());
        }
        Err(silent(action))
    }
}

fn silent(action: &'static str) -> RuntimeError {
    RuntimeError::Engine {
        action,
        source: "the engine does not answer".into(),
    }
}

/// The only capsule; sometimes it ignores the request to end.
fn command(world: &World, alive: &Alive) -> Command {
    let (world, alive) = (world.clone(), alive.clone());
    Arc::new(move |inside: Inside| {
        alive.begin(&world, inside.spec.run, inside.spec.attempt);
        if world.below(DEAF_ONE_IN) == 0 {
            // A handler without effect.
            drop(inside.trap());
        }
        Box::pin(capsule::run(inside.spec, world.clone()))
    })
}

/// Decides how a container's end appears, and how long it takes.
fn heed(world: &World, host: &str, container: &ObservedContainer, end: &mut End) -> Duration {
    if end.exit_code == EXIT_CODE_GATE {
        world.count("killed by its gate");
        world.step(host, &format!("the gate kills {}", container.name));
    }
    if world.strikes("exit forgotten", EXIT_FORGOTTEN_ONE_IN) {
        end.event = ContainerEvent::Lost;
    }
    world.step(host, &format!("end {} {}", container.name, end.exit_code));
    Duration::from_millis(world.below(TEARDOWN_MILLISECONDS_MAX))
}

struct SimulatedContainer {
    world: World,
    inner: Box<dyn Container>,
}

#[async_trait]
impl Container for SimulatedContainer {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        self.inner.events()
    }

    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError> {
        self.inner.renew(milliseconds).await
    }

    async fn spawn(&self, process: ProcessSpec) -> Result<(), RuntimeError> {
        self.world.pause().await;
        self.inner.spawn(process).await
    }

    async fn end_process(&self, number: u32, is_forced: bool) -> Result<(), RuntimeError> {
        self.world.pause().await;
        self.inner.end_process(number, is_forced).await
    }

    async fn finish(&self) -> Result<(), RuntimeError> {
        self.world.pause().await;
        self.inner.finish().await
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        self.world.pause().await;
        self.world.count("asked to end");
        self.inner.terminate().await
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.world.pause().await;
        self.world.count("ended by force");
        self.inner.kill().await
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        self.inner.gone().await
    }
}

#[async_trait]
impl ContainerRuntime for Engine {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        self.act("describe").await?;
        self.double.describe().await
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        self.act("has image").await?;
        self.double.has_image(image).await
    }

    async fn named_image(&self, reference: &str) -> Result<Option<NamedImage>, RuntimeError> {
        self.act("named image").await?;
        self.double.named_image(reference).await
    }

    async fn pull_image(
        &self,
        reference: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<(), RuntimeError> {
        self.act("pull image").await?;
        self.double.pull_image(reference, progress).await
    }

    async fn build_image(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError> {
        self.act("build").await?;
        self.double.build_image(build).await
    }

    async fn store_image(&self, push: ImagePush<'_>) -> Result<Image, RuntimeError> {
        self.act("store image").await?;
        self.double.store_image(push).await
    }

    async fn fetch_image(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        self.act("fetch image").await?;
        self.double.fetch_image(image, artifacts).await
    }

    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError> {
        self.act("list images").await?;
        self.double.built_images().await
    }

    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError> {
        self.act("remove image").await?;
        self.double.remove_image(image).await
    }

    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError> {
        let (world, name) = (&self.world, container_name(&spec));
        self.act("start").await?;
        if world.strikes("start failed", START_FAILS_ONE_IN) {
            return Err(silent("start"));
        }
        if world.strikes("start hung", START_HANGS_ONE_IN) {
            let milliseconds = world.below(HANG_MILLISECONDS_MAX);
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        if self.double.has(&name) {
            world.violation(format!("{name} was started twice"));
        }
        world.count("start");
        world.step(&self.host, &format!("start {name}"));
        if world.strikes("start failed late", START_FAILS_LATE_ONE_IN) {
            self.double.create(spec).await?;
            return Err(silent("start"));
        }
        let inner = self.double.start(spec).await?;
        world.pause().await;
        Ok(Box::new(SimulatedContainer {
            world: world.clone(),
            inner,
        }))
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.act("list").await?;
        self.double.list().await
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        self.act("remove").await?;
        if self.double.has(name) {
            self.world.count("remove");
        }
        self.double.remove(name).await
    }
}

#[cfg(test)]
mod tests;
