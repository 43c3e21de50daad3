//! A trace receiver (`rotel-agent`, an OpenTelemetry collector) that prints the received spans.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

const HOW_TO_GET: &str = "install it with `deploy/prerequisites/tools.sh rotel-agent`, then put it on PATH or name it in \
    AOD_TEST_ROTEL";

/// Maximum time of a span from the receiver's input to its output: it batches for 200 ms.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A received span. Ids are hexadecimal; without a parent, the text is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub kind: String,
    /// All other printed lines of the span.
    pub rest: String,
}

/// A running receiver; killed and removed on drop.
#[derive(Debug)]
pub struct TraceReceiver {
    _process: Process,
    directory: Scratch,
    address: SocketAddr,
}

impl TraceReceiver {
    /// Starts on loopback; waits until it listens, 30 s at most.
    pub fn start() -> Self {
        let program = tool::find("rotel-agent", "AOD_TEST_ROTEL", HOW_TO_GET);
        let directory = Scratch::new("traces");
        let output = std::fs::File::create(directory.path().join("log"));
        let output = output.expect("a test directory");
        // It does not report ports of its own choice.
        let (http, grpc) = (free_address(), free_address());
        let mut command = Command::new(program);
        command
            .args(["start", "--exporter", "blackhole"])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &http.to_string()])
            .args(["--otlp-grpc-endpoint", &grpc.to_string()])
            .stdout(output)
            .stderr(Stdio::null());
        let mut process = Process::start(&mut command);
        process.wait_until("listening", || TcpStream::connect(http).ok());
        Self {
            _process: process,
            directory,
            address: http,
        }
    }

    /// `http://address:port`, without the path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its whole output.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).expect("a test file")
    }

    /// The received spans, once there are `count` of them.
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let received = read(&self.text());
            if received.len() >= count {
                return received;
            }
            assert!(
                Instant::now() < deadline,
                "{} of {count} spans:\n{}",
                received.len(),
                self.text()
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("it is bound")
}

/// Parses the output of each span: its fields, then everything that belongs to it.
fn read(text: &str) -> Vec<Received> {
    let mut spans: Vec<Received> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Span #") {
            spans.push(Received::default());
            continue;
        }
        let Some(span) = spans.last_mut() else {
            continue;
        };
        let field = line.split_once(" : ").or(line.split_once(": "));
        let (name, value) = field.unwrap_or((line, ""));
        let value = value.trim().to_owned();
        match name.trim() {
            "Trace ID" => span.trace = value,
            "ID" => span.id = value,
            "Parent ID" => span.parent = value,
            "Name" => span.name = value,
            "Kind" => span.kind = value,
            _ => span.rest.extend([line.trim(), "\n"]),
        }
    }
    spans
}
