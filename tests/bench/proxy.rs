//! The benchmark `proxy`: the latency that the egress proxy adds to a connection, and the model proxy to the first
//! byte of an answer.
//!
//! A client represents a capsule: it connects to a real gate, which forwards to the channel of a run, whose node opens
//! a tunnel to a local host, or calls a local model provider. In between, it contacts the same host and provider
//! directly.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aod_domain::admission::Capacity;
use aod_domain::capsule::{ModelGrant, Needs, Registration};
use aod_domain::spending::Budget;
use aod_gate::protocol::{CAPSULE_SOCKET, Decoder, FromGate, GATE_SOCKET};
use aod_node::{GATE_BINARY, ModelSettings};
use aod_ports::network::{Connection, Network};
use aod_testkit::capsules::registration;
use aod_tests::cluster::{Cluster, any_schema, append_registration, store_schema};
use aod_tests::progress::say;
use aod_tests::simulated::{Command as Capsule, Inside, runtime};
use async_trait::async_trait;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::report::Measurement;

/// Its name.
pub(crate) const NAME: &str = "proxy";

/// Pairs of connections, after the warm-up.
const PAIRS: usize = 300;

const WARM_UP: usize = 20;

/// The name of the host in the capsule; never resolved by the system.
const PLACE: &str = "api.example.com:443";

/// The address of that name; nothing connects to it.
const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// Number of concurrent runs.
const RUNS: usize = 3;

/// Maximum wait for any start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One host with every name.
#[derive(Debug)]
struct Double {
    host: SocketAddr,
}

#[async_trait]
impl Network for Double {
    async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(vec![PUBLIC])
    }

    async fn connect(&self, _: SocketAddr) -> std::io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(self.host).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

pub(crate) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let host = listener.local_addr()?;
    tokio::spawn(answer_all(listener));
    let provider = TcpListener::bind("127.0.0.1:0").await?;
    let models = provider.local_addr()?;
    tokio::spawn(async { axum::serve(provider, Router::new().fallback(answer_as_model)).await });
    let mut scene = Scene::start(host, models).await?;
    let mut measured = egress(&mut scene, host).await?;
    measured.extend(first_bytes(&mut scene, models, "model", json!({})).await?);
    // Each call is reserved in the log before it is sent.
    let budget = json!({"budget": {"tokens": 1_000_000_000}});
    measured.extend(first_bytes(&mut scene, models, "model_within_budget", budget).await?);
    for node in scene.cluster.nodes {
        node.stop().await;
    }
    Ok(measured)
}

async fn egress(scene: &mut Scene, host: SocketAddr) -> anyhow::Result<Vec<Measurement>> {
    say(&format!("==> {NAME}: egress"));
    let gate = Gate::start(&scene.channel_of_run(json!({})).await?)?;
    let (mut direct, mut through, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..WARM_UP + PAIRS {
        let one = milliseconds(exchange(host, None)).await?;
        let other = milliseconds(exchange(gate.listen, Some(PLACE))).await?;
        if pair >= WARM_UP {
            direct.push(one);
            through.push(other);
            more.push(other - one);
        }
    }
    Ok(vec![
        Measurement::new("egress_connection", "ms", &through)?
            .beside("direct_connection", &through, &direct)?
            .noted("connect, CONNECT through gate and node, one byte there and back"),
        Measurement::new("egress_more_than_direct", "ms", &more)?
            .bounded("p50 <= 1 ms")?
            .noted("the same, less the direct connection before it"),
    ])
}

async fn first_bytes(
    scene: &mut Scene,
    models: SocketAddr,
    name: &str,
    options: Value,
) -> anyhow::Result<Vec<Measurement>> {
    say(&format!("==> {NAME}: {name}"));
    let gate = Gate::start(&scene.channel_of_run(options).await?)?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let there = format!("http://{models}/v1/chat/completions");
    let around = format!("http://{}/llm/openai/v1/chat/completions", gate.listen);
    let (mut direct, mut through, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..WARM_UP + PAIRS {
        let one = first_byte(&client, &there).await?;
        let other = first_byte(&client, &around).await?;
        if pair >= WARM_UP {
            direct.push(one);
            through.push(other);
            more.push(other - one);
        }
    }
    Ok(vec![
        Measurement::new(&format!("{name}_first_byte"), "ms", &through)?
            .beside("direct_first_byte", &through, &direct)?
            .noted("a request on an open connection, to the first byte of its answer"),
        Measurement::new(&format!("{name}_more_than_direct"), "ms", &more)?
            .bounded("p50 <= 2 ms")?
            .noted("the same, less the direct request before it"),
    ])
}

/// The answer of the provider to every request.
async fn answer_as_model() -> Json<Value> {
    Json(json!({
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }))
}

/// Milliseconds to the first byte of an answer, which is read completely.
async fn first_byte(client: &reqwest::Client, url: &str) -> anyhow::Result<f64> {
    let body = json!({"model": "tiny", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]});
    let began = Instant::now();
    let mut answer = client.post(url).json(&body).send().await?;
    let status = answer.status();
    let first = answer.chunk().await?;
    let elapsed = began.elapsed().as_secs_f64() * 1_000.0;
    anyhow::ensure!(
        status.is_success() && first.is_some(),
        "{status}: {first:?}"
    );
    while answer.chunk().await?.is_some() {}
    Ok(elapsed)
}

/// Answers every byte with another one.
async fn answer_all(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            while let Ok(byte) = stream.read_u8().await {
                if stream.write_u8(byte).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Connects, through a proxy to `place` if given, and sends a byte there and back.
async fn exchange(address: SocketAddr, place: Option<&str>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if let Some(place) = place {
        let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let is_granted = head.starts_with(b"HTTP/1.1 200 ");
        anyhow::ensure!(is_granted, "{}", String::from_utf8_lossy(&head));
    }
    stream.write_u8(7).await?;
    anyhow::ensure!(stream.read_u8().await? == 7, "wrong answer of the host");
    Ok(())
}

async fn milliseconds(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<f64> {
    let began = Instant::now();
    work.await?;
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}

/// A cluster whose only capsule never ends, and may use the host and the model.
struct Scene {
    cluster: Cluster,
    /// The directory of the channel of each started run.
    channels: mpsc::UnboundedReceiver<PathBuf>,
}

impl Scene {
    async fn start(host: SocketAddr, models: SocketAddr) -> anyhow::Result<Self> {
        let (sender, channels) = mpsc::unbounded_channel();
        let capsule: Capsule = Arc::new(move |inside: Inside| {
            let _ = sender.send(inside.spec.io.channel.clone());
            Box::pin(std::future::pending())
        });
        let mut cluster = Cluster::start(1).await;
        cluster.egress = vec!["*".parse()?];
        cluster.network = Arc::new(Double { host });
        let settings = format!("providers:\n  openai: {{base_url: 'http://{models}/v1'}}\n");
        cluster.models = Arc::new(ModelSettings::parse(&settings)?);
        cluster.keep_key_of_models("the operator's");
        let capacity = Capacity {
            slots: RUNS,
            containers_max: RUNS,
            memory_bytes: 16 << 30,
        };
        let engine = runtime([("outside".to_owned(), capsule)]);
        cluster.add_node(&["any"], capacity, engine).await;
        let schema = store_schema(cluster.artifacts.as_ref(), &any_schema()).await;
        let registration = Registration {
            needs: Needs {
                egress: vec![PLACE.parse()?],
                ..Needs::default()
            },
            models: Some(ModelGrant {
                names: vec!["openai/tiny".to_owned()],
                budget: Budget::default(),
            }),
            ..registration("outside", schema)
        };
        append_registration(&cluster.broker("registrar").await, registration).await;
        Ok(Self { cluster, channels })
    }

    /// Starts a run with more fields of its request.
    async fn channel_of_run(&mut self, options: Value) -> anyhow::Result<PathBuf> {
        let client = self.cluster.client(0);
        client.start_with("outside", json!({}), options).await;
        let channel = tokio::time::timeout(START_TIMEOUT, self.channels.recv()).await?;
        channel.context("the run has not started")
    }
}

/// A gate that waits for its command, and forwards.
struct Gate {
    process: Child,
    listen: SocketAddr,
    /// The gate waits while this end is open.
    _node: UnixStream,
    _directory: TempDir,
}

impl Gate {
    /// Starts a gate that forwards to the channel in `channel`.
    fn start(channel: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let program = directory.path().join("aod-gate");
        std::fs::write(&program, GATE_BINARY)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        symlink(
            channel.join(CAPSULE_SOCKET),
            directory.path().join(CAPSULE_SOCKET),
        )?;
        let listener = UnixListener::bind(directory.path().join(GATE_SOCKET))?;
        let process = Command::new(program)
            .arg("--channel")
            .arg(directory.path())
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .spawn()?;
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        let mut decoder = Decoder::<FromGate>::new();
        let mut piece = [0; 4096];
        let hello = loop {
            match decoder.next_message()? {
                Some(FromGate::Hello(hello)) => break hello,
                Some(other) => anyhow::bail!("unexpected first message of the gate: {other:?}"),
                None => {
                    let size_bytes = stream.read(&mut piece)?;
                    anyhow::ensure!(size_bytes > 0, "the gate has closed the connection");
                    decoder.push(&piece[..size_bytes]);
                }
            }
        };
        Ok(Self {
            process,
            listen: hello.listen,
            _node: stream,
            _directory: directory,
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
