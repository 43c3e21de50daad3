//! A container runtime without containers: a capsule is a function that sees the directories and
//! the channel that a container would see.
//!
//! It stands beside the real one for tests and benchmarks of everything else; it isolates nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, RuntimeError, Verdict,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

/// A capsule: is handed what a container would see, and answers with its exit code.
pub type Program = Arc<dyn Fn(Inside) -> BoxFuture<'static, i32> + Send + Sync>;

/// What a capsule sees.
#[derive(Clone, Debug)]
pub struct Inside {
    pub spec: ContainerSpec,
}

impl Inside {
    /// The payload.
    pub fn input(&self) -> Value {
        let text = std::fs::read_to_string(&self.spec.io.input_json)
            .expect("input.json is there before the start");
        serde_json::from_str(&text).expect("input.json is JSON")
    }

    /// Writes the answer.
    pub fn write_output(&self, output: &Value) {
        std::fs::write(self.spec.io.io.join("output.json"), output.to_string())
            .expect("/io can be written");
    }

    /// Calls another capsule and waits: the status and the answer.
    pub async fn handoff(&self, body: &Value) -> (u16, Value) {
        let stream = UnixStream::connect(self.spec.io.channel.join("capsule.sock"))
            .await
            .expect("the channel is open");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("the channel speaks HTTP");
        tokio::spawn(connection);
        let request = hyper::Request::post("/handoff")
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        let response = sender
            .send_request(request)
            .await
            .expect("the channel answers");
        let status = response.status().as_u16();
        let answer = response
            .into_body()
            .collect()
            .await
            .expect("the answer comes whole")
            .to_bytes();
        (
            status,
            serde_json::from_slice(&answer).expect("the answer is JSON"),
        )
    }
}

/// The runtime. Images are the names of its programs.
pub struct SimulatedRuntime {
    programs: HashMap<String, Program>,
    containers: Arc<Mutex<HashMap<String, Live>>>,
    started: AtomicUsize,
}

#[derive(Debug)]
struct Live {
    observed: ObservedContainer,
    killed: watch::Sender<bool>,
}

impl std::fmt::Debug for SimulatedRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SimulatedRuntime")
            .field("images", &self.programs.keys())
            .finish_non_exhaustive()
    }
}

impl SimulatedRuntime {
    pub fn new(programs: impl IntoIterator<Item = (String, Program)>) -> Arc<Self> {
        let programs = programs.into_iter().collect();
        Arc::new(Self {
            programs,
            containers: Arc::default(),
            started: AtomicUsize::new(0),
        })
    }

    /// Capsules started so far.
    pub fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<String, Live>> {
        self.containers.lock().expect("nobody panics with the lock")
    }
}

struct SimulatedContainer {
    name: String,
    events: Option<mpsc::Receiver<ContainerEvent>>,
    killed: watch::Sender<bool>,
    gone: watch::Receiver<Option<i32>>,
}

#[async_trait]
impl Container for SimulatedContainer {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        let receiver = self.events.take().expect("events are taken once");
        stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        })
        .boxed()
    }

    async fn renew(&self, _milliseconds: u64) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        self.killed.send_replace(true);
        Ok(())
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.killed.send_replace(true);
        Ok(())
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        let mut gone = self.gone.clone();
        let code = gone
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|code| *code);
        Ok(Verdict {
            out_of_memory: false,
            exit_code: code.map(i64::from),
        })
    }
}

#[async_trait]
impl ContainerRuntime for SimulatedRuntime {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        Ok(EngineInfo {
            version: "simulated".into(),
            architecture: std::env::consts::ARCH.into(),
            cpus: 1,
            memory_bytes: 1 << 30,
            warnings: Vec::new(),
        })
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        Ok(self.programs.contains_key(image))
    }

    async fn build_image(
        &self,
        _context: PathBuf,
        _name: &str,
        _tag: &str,
        _progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        Err(RuntimeError::BuildFailed {
            message: "there is nothing to build here".into(),
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
        let program = self.programs.get(&spec.image).cloned();
        let program = program.ok_or_else(|| RuntimeError::ImageMissing {
            image: spec.image.clone(),
        })?;
        self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("simulated-{}-{}", spec.run.token(), spec.attempt);
        let observed = ObservedContainer {
            name: name.clone(),
            run: spec.run,
            attempt: spec.attempt,
            is_running: true,
        };
        let (killed, mut is_killed) = watch::channel(false);
        let (done, gone) = watch::channel(None);
        let (events, receiver) = mpsc::channel(16);
        self.live().insert(
            name.clone(),
            Live {
                observed,
                killed: killed.clone(),
            },
        );
        tokio::spawn(async move {
            let _ = events.send(ContainerEvent::Started).await;
            let exit = tokio::select! {
                code = program(Inside { spec }) => Exit { code: Some(code), signal: None },
                _ = is_killed.wait_for(|&killed| killed) => Exit { code: None, signal: Some(9) },
            };
            let _ = events
                .send(ContainerEvent::Exited {
                    exit,
                    out_of_memory: false,
                })
                .await;
            done.send_replace(Some(exit.code.unwrap_or(137)));
        });
        Ok(Box::new(SimulatedContainer {
            name,
            events: Some(receiver),
            killed,
            gone,
        }))
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        Ok(self
            .live()
            .values()
            .map(|live| live.observed.clone())
            .collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        if let Some(live) = self.live().remove(name) {
            live.killed.send_replace(true);
        }
        Ok(())
    }
}
