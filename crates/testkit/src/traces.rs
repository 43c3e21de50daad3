//! A receiver of traces (`rotel-agent`, a collector of OpenTelemetry's), which prints what it is sent.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;

const HOW_TO_GET: &str = "get it with `deploy/prerequisites/tools.sh rotel-agent`, then put it on PATH or name it in \
    AOD_TEST_ROTEL";

/// How long spans may take from the receiver's door to its output: it collects them for 200 ms.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A span as it arrived. Ids are in hexadecimal; no parent is an empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub kind: String,
    /// Everything else that was printed of it.
    pub rest: String,
}

/// A running receiver; killed and swept away on drop.
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
        let output = output.expect("a directory of ours");
        // It does not say which port it was given.
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

    /// All that it has printed.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).expect("a file of ours")
    }

    /// The spans that it was sent, once there are as many as `count`.
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

/// Reads what is printed of each span: its fields, and then whatever belongs to it.
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
