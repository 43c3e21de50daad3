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
use aod_domain::run::Exit;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use aod_ports::program::Program;
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

mod images;

pub use images::{Images, Recipe};

/// What an image runs: is handed what a container would see, and answers with its exit code.
pub type Command = Arc<dyn Fn(Inside) -> BoxFuture<'static, i32> + Send + Sync>;

/// Is told of every end, may change how it looks from outside, and says how long the engine takes
/// from it until the container is gone.
pub type OnEnd = Arc<dyn Fn(&ObservedContainer, &mut End) -> Duration + Send + Sync>;

/// Source: POSIX `signal.h`.
const SIGNAL_TERMINATE: i32 = 15;

/// What engines and shells add to the number of a signal that ended a process.
const EXIT_CODE_SIGNAL: i64 = 128;

/// 128 and the number of SIGKILL.
const EXIT_CODE_KILLED: i64 = 137;

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

/// What a command sees.
#[derive(Clone, Debug)]
pub struct Inside {
    pub spec: ContainerSpec,
    events: mpsc::UnboundedSender<ContainerEvent>,
    asked: watch::Sender<Asked>,
}

impl Inside {
    /// The payload.
    pub fn input(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(&self.spec.io.input_json)
            .expect("input.json is there before the start");
        serde_json::from_str(&text).expect("input.json is JSON")
    }

    /// Writes the answer.
    pub fn write_output(&self, output: &serde_json::Value) {
        std::fs::write(self.spec.io.io.join("output.json"), output.to_string())
            .expect("/io can be written");
    }

    /// Writes to one of its outputs.
    pub fn say(&self, output: Output, text: &'static str) {
        let bytes = Bytes::from_static(text.as_bytes());
        let _ = self.events.send(ContainerEvent::Wrote { output, bytes });
    }

    /// From now on it decides itself what follows when it is asked to end, which is when the future
    /// returns. Without it that ends the command.
    pub fn trap(&self) -> impl Future<Output = ()> + use<> {
        self.asked.send_modify(|asked| asked.is_trapped = true);
        let mut asked = self.asked.subscribe();
        async move {
            let _ = asked.wait_for(|asked| asked.is_asked).await;
        }
    }
}

/// Whether a command was asked to end, and whether it has a handler for that.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    is_asked: bool,
    is_trapped: bool,
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

/// A container.
struct Live {
    name: String,
    spec: ContainerSpec,
    asked: watch::Sender<Asked>,
    killed: watch::Sender<bool>,
    /// Until when its gate lets it live.
    until: watch::Sender<Instant>,
    gone: watch::Sender<Option<Verdict>>,
}

impl Live {
    fn observed(&self) -> ObservedContainer {
        ObservedContainer {
            name: self.name.clone(),
            run: self.spec.run,
            attempt: self.spec.attempt,
            is_running: self.gone.borrow().is_none(),
        }
    }

    async fn gone(&self) -> Verdict {
        let mut gone = self.gone.subscribe();
        let verdict = gone.wait_for(Option::is_some).await;
        verdict
            .ok()
            .and_then(|verdict| *verdict)
            .unwrap_or_default()
    }
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
            Some(command) => run(&live, &command, &events).await,
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

async fn run(
    live: &Live,
    command: &Command,
    events: &mpsc::UnboundedSender<ContainerEvent>,
) -> End {
    let _ = events.send(ContainerEvent::Started);
    let (mut killed, mut asked) = (live.killed.subscribe(), live.asked.subscribe());
    let inside = Inside {
        spec: live.spec.clone(),
        events: events.clone(),
        asked: live.asked.clone(),
    };
    // What it has begun ends with it.
    let processes = Program::default();
    let exited = |code, signal| ContainerEvent::Exited {
        exit: Exit { code, signal },
        out_of_memory: false,
    };
    let end = tokio::select! {
        biased;
        // The gate is killed too, and says nothing more; nor does one whose lease has run out.
        _ = killed.wait_for(|&killed| killed) => End {
            event: ContainerEvent::Lost,
            exit_code: EXIT_CODE_KILLED,
        },
        () = overdue(live.until.subscribe()) => End {
            event: ContainerEvent::Lost,
            exit_code: EXIT_CODE_GATE,
        },
        _ = asked.wait_for(|asked| asked.is_asked && !asked.is_trapped) => End {
            event: exited(None, Some(SIGNAL_TERMINATE)),
            exit_code: EXIT_CODE_SIGNAL + i64::from(SIGNAL_TERMINATE),
        },
        code = processes.run(command(inside)) => End {
            event: exited(Some(code), None),
            exit_code: code.into(),
        },
    };
    processes.kill();
    end
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

struct DoubleContainer {
    live: Arc<Live>,
    /// None once taken.
    events: Option<mpsc::UnboundedReceiver<ContainerEvent>>,
}

#[async_trait]
impl Container for DoubleContainer {
    fn name(&self) -> &str {
        &self.live.name
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
        self.live.asked.send_modify(|asked| asked.is_asked = true);
        Ok(())
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.live.killed.send_replace(true);
        Ok(())
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        Ok(self.live.gone().await)
    }
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
        _name: &str,
        tag: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        self.0.images.build(&context, tag, progress).await
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
