//! NATS servers on separate hosts, one or a cluster of several.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use aod_testkit::nats;

use super::Program;
use crate::hosts::Host;

/// Ports of a server on its host: for programs, for monitoring, for other servers.
const PORT: u16 = 4222;
const MONITORING_PORT: u16 = 8222;
const CLUSTER_PORT: u16 = 6222;

/// Maximum size of JetStream, in bytes: the sum of all streams of `aod`, as in `deploy/nats.conf`.
const STORE_BYTES_MAX: u64 = 20 << 30;

/// Maximum time for the greeting of a server.
const GREETING_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a server on each of `hosts` with the users of a file created by `aod`.
pub(super) fn start_all(hosts: &[Host], users: &Path) -> Vec<Program> {
    let users = fs::read_to_string(users).expect("a file that aod made");
    let program = nats::program();
    let start = |host: &Host| {
        let configuration = host.directory().join("nats.conf");
        fs::write(&configuration, configure(host, hosts) + &users).expect("a test directory");
        let arguments = vec!["-c".to_owned(), configuration.display().to_string()];
        Program::start(host, &program, "nats", arguments, Vec::new())
    };
    hosts.iter().map(start).collect()
}

/// `nats://host:port`.
pub(super) fn url(broker: &Program) -> String {
    format!("nats://{}:{PORT}", broker.host().address())
}

/// `http://host:port` of its monitoring.
pub(super) fn monitoring_url(broker: &Program) -> String {
    format!("http://{}:{MONITORING_PORT}", broker.host().address())
}

/// Whether the server greets connections, and has JetStream.
pub(super) fn is_ready(broker: &Program) -> bool {
    let address = SocketAddr::new(IpAddr::V4(broker.host().address()), PORT);
    let Ok(stream) = TcpStream::connect_timeout(&address, GREETING_PATIENCE) else {
        return false;
    };
    let mut line = String::new();
    stream.set_read_timeout(Some(GREETING_PATIENCE)).is_ok()
        && BufReader::new(stream).read_line(&mut line).is_ok()
        && line.contains("\"jetstream\":true")
}

/// The configuration of the server on `host`, one of `hosts`, without its users.
fn configure(host: &Host, hosts: &[Host]) -> String {
    let address = host.address();
    let store = host.directory().join("nats");
    let mut text = format!(
        "server_name: \"{}\"\nlisten: \"{address}:{PORT}\"\nhttp: \"{address}:{MONITORING_PORT}\"\n\
         jetstream {{\n  store_dir: \"{}\"\n  sync_interval: always\n  max_file_store: {STORE_BYTES_MAX}\n}}\n",
        host.name(),
        store.display(),
    );
    if hosts.len() > 1 {
        let routes: Vec<String> = hosts
            .iter()
            .map(|host| format!("\"nats://{}:{CLUSTER_PORT}\"", host.address()))
            .collect();
        let routes = routes.join(", ");
        let listen = format!("{address}:{CLUSTER_PORT}");
        let cluster =
            format!("cluster {{\n  name: aod\n  listen: \"{listen}\"\n  routes: [{routes}]\n}}\n");
        text.push_str(&cluster);
    }
    text
}
