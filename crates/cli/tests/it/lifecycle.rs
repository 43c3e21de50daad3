//! `aod up` and `aod down`, and recovery after a killed process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, wait_until};

#[test]
fn detached_up_is_found_by_commands_and_stopped_by_down() {
    let cluster = Cluster::up();
    let nodes = cluster
        .run(&["nodes", "ls", "--format", "json"])
        .with(0)
        .json();
    assert_eq!(nodes["items"][0]["slots"], 2, "{nodes}");
    let second = cluster.start().with(2);
    assert!(
        second
            .stderr
            .contains(&format!(", process {}", cluster.process_id())),
        "{}",
        second.stderr
    );
    let doctor = cluster.run(&["doctor", "--format", "json"]).with(0).json();
    assert_eq!(doctor["is_fine"], true, "{doctor}");
    let down = cluster.run(&["down"]).with(0);
    assert!(down.stderr.starts_with("stopped"), "{}", down.stderr);
    assert_eq!(cluster.processes(), Vec::<u32>::new());
    assert!(!cluster.data().join("connection.json").exists());
    let gone = cluster.run(&["nodes", "ls"]).with(3);
    assert!(
        gone.stderr.contains("hint: run `aod up --detach`"),
        "{}",
        gone.stderr
    );
    assert!(
        cluster
            .run(&["down"])
            .with(0)
            .stderr
            .starts_with("no `aod up` runs with the data directory")
    );
}

#[test]
fn up_cleans_up_after_a_killed_up() {
    let cluster = Cluster::up();
    let first = cluster.process_id();
    let node = cluster
        .run(&["nodes", "ls", "--format", "json"])
        .with(0)
        .json()["items"][0]["id"]
        .clone();
    kill("-9", first);
    wait_until("the killed process has ended", || {
        !cluster.processes().contains(&first)
    });
    let orphans = cluster.processes();
    assert_eq!(orphans.len(), 1, "only the broker survives the kill");
    let port = std::fs::read_to_string(cluster.data().join("nats/port")).expect("a port");
    let started = cluster.start().with(0);
    let joining = format!(
        "joins with: aod node --nats nats://127.0.0.1:{} ",
        port.trim()
    );
    assert!(started.stderr.contains(&joining), "{}", started.stderr);
    assert!(
        !cluster.processes().contains(&orphans[0]),
        "the broker of the first start still runs"
    );
    wait_until("the node is online with its id", || {
        cluster
            .run(&["nodes", "ls", "--format", "json"])
            .with(0)
            .json()["items"][0]["id"]
            == node
    });
}

#[test]
fn foreground_up_stops_everything_on_a_signal() {
    let cluster = Cluster::new();
    let mut command = cluster.command(&["up", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let ready = lines.find(|line| {
        line.as_ref()
            .is_ok_and(|line| line.starts_with("ready: http://127.0.0.1:"))
    });
    assert!(ready.is_some(), "it ended before it was ready");
    kill("-INT", child.id());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(
        child.wait().expect("a child of ours").code(),
        Some(0),
        "{rest:?}"
    );
    assert_eq!(cluster.processes(), Vec::<u32>::new());
}

#[test]
fn open_up_is_refused_on_address_of_network() {
    let cluster = Cluster::new();
    for mode in [&[][..], &["--detach"]] {
        let up = ["up", "--open-to-agent-on-demand", "--listen", "0.0.0.0:0"];
        let refused = cluster.run(&[&up, mode].concat()).with(2);
        let text = &refused.stderr;
        assert!(text.contains("other hosts can reach 0.0.0.0:0"), "{text}");
        assert!(text.contains("--listen 127.0.0.1:8000"), "{text}");
    }
    assert!(!cluster.data().exists(), "nothing was started");
}

#[test]
fn open_up_warns_and_serves_clients_of_agent_on_demand_without_token() {
    let cluster = Cluster::new();
    let up = ["up", "--detach", "--open-to-agent-on-demand"];
    let up = [&up[..], &["--listen", "127.0.0.1:0", "--slots", "2"]].concat();
    let started = cluster.run(&up).with(0);
    let text = &started.stderr;
    assert!(text.contains("warning: open to agent-on-demand"), "{text}");
    let address = text.split("ready: http://").nth(1).expect("an address");
    let address = address.split_whitespace().next().expect("an address");
    for (path, status) in [
        ("/capsules", "200"),
        ("/visualizer", "200"),
        ("/v1/runs", "401"),
    ] {
        let mut stream = TcpStream::connect(address).expect("the gateway listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a connection");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{path}: {answer}");
    }
    cluster.run(&["down"]).with(0);
}

#[test]
fn killed_broker_is_restarted() {
    let cluster = Cluster::up();
    let brokers = || {
        cluster
            .processes()
            .into_iter()
            .filter(|id| *id != cluster.process_id())
            .collect::<Vec<_>>()
    };
    let first = brokers();
    kill("-9", first[0]);
    wait_until("another broker runs", || {
        brokers().first().is_some_and(|id| *id != first[0])
    });
    wait_until("the gateway reaches it", || {
        cluster.run(&["runs", "ls"]).code == 0
    });
}

#[test]
fn failed_detached_start_reports_its_reason() {
    let cluster = Cluster::new();
    let failed = cluster
        .run(&["up", "--detach", "--docker", "unix:///none/docker.sock"])
        .with(6);
    assert!(
        failed.stderr.contains("did not start in the background"),
        "{}",
        failed.stderr
    );
    assert!(
        failed
            .stderr
            .contains("Docker at unix:///none/docker.sock cannot be used"),
        "{}",
        failed.stderr
    );
    assert_eq!(cluster.processes(), Vec::<u32>::new());
}

fn kill(signal: &str, id: u32) {
    let status = Command::new("kill")
        .args([signal, &id.to_string()])
        .status()
        .expect("kill");
    assert!(status.success());
}
