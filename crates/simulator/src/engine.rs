//! The container engine of one host, and the gates in its containers. It goes on when the node dies:
//! then the gate's deadline ends what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::id::RunId;
use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, RuntimeError, Verdict,
};
use aod_ports::program::Program;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::capsule;
use crate::link::Switch;
use crate::world::World;

/// One start in so many fails before anything was done.
const START_FAILS_ONE_IN: u64 = 80;

/// One start in so many fails although the container was made; its gate was never told to go.
const START_FAILS_LATE_ONE_IN: u64 = 80;

/// One start in so many takes long.
const START_HANGS_ONE_IN: u64 = 80;

/// How long such a start takes, in milliseconds.
const HANG_MILLISECONDS_MAX: u64 = 15_000;

/// One container in so many ends without that its gate could say how.
const EXIT_FORGOTTEN_ONE_IN: u64 = 100;

/// How long an engine takes from the end of the process until the container is gone, at the most.
const TEARDOWN_MILLISECONDS_MAX: u64 = 200;

/// The engine of one host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    world: World,
    host: Arc<str>,
    pub(crate) switch: Switch,
    containers: Arc<Mutex<BTreeMap<String, Arc<Live>>>>,
    alive: Alive,
}

/// The attempts whose processes are alive, on whichever host.
pub(crate) type Alive = Arc<Mutex<BTreeSet<(RunId, u32)>>>;

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// A container.
struct Live {
    observed: ObservedContainer,
    /// Asked to end, or made to.
    killed: watch::Sender<bool>,
    /// Until when the gate lets it live.
    until: watch::Sender<Instant>,
    gone: watch::Sender<Option<Verdict>>,
}

impl Engine {
    pub(crate) fn new(world: &World, host: &str, alive: &Alive) -> Self {
        Self {
            world: world.clone(),
            host: host.into(),
            switch: Switch::new(),
            containers: Arc::default(),
            alive: Arc::clone(alive),
        }
    }

    /// When an attempt begins nothing of another may run any more, wherever.
    fn nothing_runs_twice(&self, run: RunId, attempt: u32) {
        let mut alive = self.alive();
        for (other, number) in alive.iter() {
            if *other == run {
                self.world.violation(format!(
                    "{run}: attempt {number} runs when {attempt} begins"
                ));
            }
        }
        alive.insert((run, attempt));
    }

    fn alive(&self) -> MutexGuard<'_, BTreeSet<(RunId, u32)>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many containers there are, ended ones included.
    pub(crate) fn count(&self) -> usize {
        self.live().len()
    }

    /// The host loses its power: all that runs is gone, the ended containers are still there.
    pub(crate) fn crash(&self) {
        for live in self.live().values() {
            live.killed.send_replace(true);
        }
    }

    async fn act(&self, action: &'static str) -> Result<(), RuntimeError> {
        self.world.pause().await;
        if self.switch.is_on() {
            return Ok(());
        }
        Err(RuntimeError::Engine {
            action,
            source: "the engine does not answer".into(),
        })
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Live>>> {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct SimulatedContainer {
    engine: Engine,
    name: String,
    live: Arc<Live>,
    events: Option<mpsc::UnboundedReceiver<ContainerEvent>>,
}

#[async_trait]
impl Container for SimulatedContainer {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        let events = self.events.take().expect("events are taken once");
        stream::unfold(events, |mut events| async {
            events.recv().await.map(|event| (event, events))
        })
        .boxed()
    }

    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError> {
        let until = Instant::now() + Duration::from_millis(milliseconds);
        self.live.until.send_replace(until);
        Ok(())
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        self.engine.world.pause().await;
        self.live.killed.send_replace(true);
        Ok(())
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.terminate().await
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        let mut gone = self.live.gone.subscribe();
        let verdict = gone.wait_for(Option::is_some).await;
        Ok(verdict
            .ok()
            .and_then(|verdict| *verdict)
            .unwrap_or_default())
    }
}

#[async_trait]
impl ContainerRuntime for Engine {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        self.act("describe").await?;
        Ok(EngineInfo {
            version: "simulated".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            warnings: Vec::new(),
        })
    }

    async fn has_image(&self, _image: &str) -> Result<bool, RuntimeError> {
        self.act("has image").await?;
        Ok(true)
    }

    async fn build_image(
        &self,
        _context: PathBuf,
        _name: &str,
        _tag: &str,
        _progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        Err(RuntimeError::BuildFailed {
            message: "nothing is built in simulations".into(),
            last_lines: Vec::new(),
        })
    }

    async fn save_image(
        &self,
        image: &str,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
        Err(RuntimeError::ImageMissing {
            image: image.into(),
        })
    }

    async fn load_image(&self, image: &str, _archive: PathBuf) -> Result<(), RuntimeError> {
        Err(RuntimeError::ImageMissing {
            image: image.into(),
        })
    }

    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError> {
        let failed = || RuntimeError::Engine {
            action: "start",
            source: "the engine does not answer".into(),
        };
        self.act("start").await?;
        if self.world.strikes("start failed", START_FAILS_ONE_IN) {
            return Err(failed());
        }
        if self.world.strikes("start hung", START_HANGS_ONE_IN) {
            let milliseconds = self.world.below(HANG_MILLISECONDS_MAX);
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        let name = format!("aod-{}-{}", spec.run.token(), spec.attempt);
        let live = Arc::new(Live {
            observed: ObservedContainer {
                name: name.clone(),
                run: spec.run,
                attempt: spec.attempt,
                is_running: true,
            },
            killed: watch::Sender::new(false),
            until: watch::Sender::new(
                Instant::now()
                    + spec
                        .lease_until
                        .borrow()
                        .saturating_sub(self.world.since_boot()),
            ),
            gone: watch::Sender::new(None),
        });
        if self
            .live()
            .insert(name.clone(), Arc::clone(&live))
            .is_some()
        {
            self.world.violation(format!("{name} was started twice"));
        }
        self.world.count("start");
        self.world.step(&self.host, &format!("start {name}"));
        if self
            .world
            .strikes("start failed late", START_FAILS_LATE_ONE_IN)
        {
            live.gone.send_replace(Some(Verdict::default()));
            return Err(failed());
        }
        self.nothing_runs_twice(spec.run, spec.attempt);
        let (events, receiver) = mpsc::unbounded_channel();
        tokio::spawn(process(self.clone(), spec, Arc::clone(&live), events));
        self.world.pause().await;
        Ok(Box::new(SimulatedContainer {
            engine: self.clone(),
            name,
            live,
            events: Some(receiver),
        }))
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.act("list").await?;
        let containers = self.live();
        let observed = containers.values().map(|live| ObservedContainer {
            is_running: live.gone.borrow().is_none(),
            ..live.observed.clone()
        });
        Ok(observed.collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        self.act("remove").await?;
        let live = self.live().get(name).cloned();
        let Some(live) = live else { return Ok(()) };
        live.killed.send_replace(true);
        let mut gone = live.gone.subscribe();
        let _ = gone.wait_for(Option::is_some).await;
        self.live().remove(name);
        self.world.count("remove");
        Ok(())
    }
}

/// The life of a container: its capsule, until that ends, is killed, or its gate's time is over.
async fn process(
    engine: Engine,
    spec: ContainerSpec,
    live: Arc<Live>,
    events: mpsc::UnboundedSender<ContainerEvent>,
) {
    let (world, inside) = (engine.world.clone(), Program::default());
    let name = live.observed.name.clone();
    let _ = events.send(ContainerEvent::Started);
    let (mut killed, until) = (live.killed.subscribe(), live.until.subscribe());
    let killed_exit = Exit {
        code: None,
        signal: Some(9),
    };
    let (exit, is_told) = tokio::select! {
        biased;
        _ = killed.wait_for(|&killed| killed) => (killed_exit, true),
        // A gate whose lease has run out kills, and says no more.
        () = overdue(until) => {
            world.count("killed by its gate");
            world.step(&engine.host, &format!("the gate kills {name}"));
            (killed_exit, false)
        }
        code = inside.run(capsule::run(spec, world.clone())) => (Exit { code: Some(code), signal: None }, true),
    };
    inside.kill();
    let (run, attempt) = (live.observed.run, live.observed.attempt);
    engine.alive().remove(&(run, attempt));
    let is_forgotten = world.strikes("exit forgotten", EXIT_FORGOTTEN_ONE_IN);
    let _ = events.send(if is_forgotten || !is_told {
        ContainerEvent::Lost
    } else {
        ContainerEvent::Exited {
            exit,
            out_of_memory: false,
        }
    });
    drop(events);
    world.step(&engine.host, &format!("end {name} {:?}", exit.code));
    let milliseconds = world.below(TEARDOWN_MILLISECONDS_MAX);
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    live.gone.send_replace(Some(Verdict {
        out_of_memory: false,
        exit_code: exit.code.map(i64::from),
    }));
}

/// Returns when nobody has prolonged the container's time in time.
async fn overdue(mut until: watch::Receiver<Instant>) {
    loop {
        let at = *until.borrow_and_update();
        tokio::select! {
            biased;
            changed = until.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep_until(at) => return,
        }
    }
}
