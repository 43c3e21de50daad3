//! `aod up` and `aod down`, and what a killed process leaves.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, wait_until};

#[test]
fn what_is_started_in_the_background_is_found_and_stopped() {
    let cluster = Cluster::up();
    let nodes = cluster
        .run(&["nodes", "ls", "--output", "json"])
        .with(0)
        .json();
    assert_eq!(nodes["items"][0]["slots"], 2, "{nodes}");
    let second = cluster.start().with(2);
    assert!(
        second
            .stderr
            .contains(&format!("runs already as process {}", cluster.process_id())),
        "{}",
        second.stderr
    );
    let doctor = cluster.run(&["doctor", "--output", "json"]).with(0).json();
    assert_eq!(doctor["is_fine"], true, "{doctor}");
    let down = cluster.run(&["down"]).with(0);
    assert!(down.stderr.starts_with("stopped"), "{}", down.stderr);
    assert_eq!(cluster.processes(), Vec::<u32>::new());
    assert!(!cluster.data().join("connection.json").exists());
    let gone = cluster.run(&["nodes", "ls"]).with(3);
    assert!(
        gone.stderr
            .contains("hint: start one with `aod up --detach`"),
        "{}",
        gone.stderr
    );
    assert!(
        cluster
            .run(&["down"])
            .with(0)
            .stderr
            .starts_with("nothing runs")
    );
}

#[test]
fn the_next_start_clears_up_after_a_killed_one() {
    let cluster = Cluster::up();
    let first = cluster.process_id();
    let node = cluster
        .run(&["nodes", "ls", "--output", "json"])
        .with(0)
        .json()["items"][0]["id"]
        .clone();
    kill("-9", first);
    wait_until("the killed process is gone", || {
        !cluster.processes().contains(&first)
    });
    let orphans = cluster.processes();
    assert_eq!(orphans.len(), 1, "the broker outlives whoever is killed");
    cluster.start().with(0);
    assert!(
        !cluster.processes().contains(&orphans[0]),
        "the broker of the first start still runs"
    );
    wait_until("the node is back under its id", || {
        cluster
            .run(&["nodes", "ls", "--output", "json"])
            .with(0)
            .json()["items"][0]["id"]
            == node
    });
}

#[test]
fn in_the_foreground_a_signal_ends_everything() {
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
fn a_broker_that_is_killed_is_started_again() {
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
fn a_start_that_fails_says_why() {
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
