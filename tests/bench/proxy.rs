//! The benchmark `proxy`: what the way out of a capsule adds to a connection.
//!
//! A client here stands for a capsule: it connects to a real gate, which forwards to the channel of a
//! run, whose node opens a tunnel to a host of ours. The same host is connected to directly in between.

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
use aod_domain::capsule::{Needs, Registration};
use aod_gate::protocol::{CAPSULE_SOCKET, Decoder, FromGate, GATE_SOCKET};
use aod_node::GATE_BINARY;
use aod_ports::network::{Connection, Network};
use aod_testkit::capsules::registration;
use aod_tests::cluster::{Cluster, any_schema, append_registration, store_schema};
use aod_tests::progress::say;
use aod_tests::simulated::{Command as Capsule, Inside, runtime};
use async_trait::async_trait;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::report::Measurement;

/// What it is called.
pub(crate) const NAME: &str = "proxy";

/// Pairs of connections, after the warm-up.
const PAIRS: usize = 300;

const WARM_UP: usize = 20;

/// How the capsule names the host; no such name is looked up.
const PLACE: &str = "api.example.com:443";

/// Where that name leads; nobody connects to it.
const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// Longest wait for anything that is started here.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One host under every name.
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
    say(&format!("==> {NAME}: egress"));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let host = listener.local_addr()?;
    tokio::spawn(answer_all(listener));
    let (cluster, channel) = run_with_channel(host).await?;
    let gate = Gate::start(&channel)?;
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
    drop(gate);
    for node in cluster.nodes {
        node.stop().await;
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

/// Connects, through a proxy to `place` if there is one, and sends a byte there and back.
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
    anyhow::ensure!(stream.read_u8().await? == 7, "the host answers wrongly");
    Ok(())
}

async fn milliseconds(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<f64> {
    let began = Instant::now();
    work.await?;
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}

/// A run that lists [`PLACE`] and goes on, and the directory of its channel.
async fn run_with_channel(host: SocketAddr) -> anyhow::Result<(Cluster, PathBuf)> {
    let (sender, mut channels) = mpsc::unbounded_channel();
    let capsule: Capsule = Arc::new(move |inside: Inside| {
        let _ = sender.send(inside.spec.io.channel.clone());
        Box::pin(std::future::pending())
    });
    let mut cluster = Cluster::start(1).await;
    cluster.egress = vec!["*".parse()?];
    cluster.network = Arc::new(Double { host });
    let capacity = Capacity {
        slots: 1,
        containers_max: 1,
        memory_bytes: 4 << 30,
    };
    let engine = runtime([("outside".to_owned(), capsule)]);
    cluster.add_node(&["any"], capacity, engine).await;
    let schema = store_schema(cluster.artifacts.as_ref(), &any_schema()).await;
    let registration = Registration {
        needs: Needs {
            egress: vec![PLACE.parse()?],
            ..Needs::default()
        },
        ..registration("outside", schema)
    };
    append_registration(&cluster.broker("registrar").await, registration).await;
    cluster.client(0).start("outside", json!({})).await;
    let channel = tokio::time::timeout(START_TIMEOUT, channels.recv()).await?;
    Ok((cluster, channel.context("the run has not begun")?))
}

/// A gate that waits for its command, and forwards.
struct Gate {
    process: Child,
    listen: SocketAddr,
    /// As long as this end is open the gate waits.
    _node: UnixStream,
    _directory: TempDir,
}

impl Gate {
    /// Starts one that forwards to the channel in `channel`.
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
                Some(other) => anyhow::bail!("the gate began with {other:?}"),
                None => {
                    let size_bytes = stream.read(&mut piece)?;
                    anyhow::ensure!(size_bytes > 0, "the gate has closed");
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
