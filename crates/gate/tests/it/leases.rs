//! Leases: everything ends with them, with or without a node.

use std::time::{Duration, Instant};

use crate::node::{Gate, LONG_LEASE_MILLISECONDS, lives, wait_until};

/// Ignores every stop signal and prints forever.
const STUBBORN: &str = "trap '' TERM INT HUP; while :; do echo on; sleep 0.01; done";

#[test]
fn expired_lease_ends_everything() {
    let mut gate = Gate::start();
    let begin = Instant::now();
    let main = gate.go_with_script(STUBBORN, 400);
    assert_eq!(gate.exit_code(), Some(125));
    assert!(begin.elapsed() >= Duration::from_millis(400));
    wait_until("the end of the command", || !lives(main));
}

#[test]
fn command_outlives_its_node_until_lease_expires() {
    let mut gate = Gate::start();
    let begin = Instant::now();
    let main = gate.go_with_script(STUBBORN, 600);
    gate.connection
        .shutdown(std::net::Shutdown::Both)
        .expect("connected");
    assert!(lives(main));
    assert_eq!(gate.exit_code(), Some(125));
    assert!(begin.elapsed() >= Duration::from_millis(600));
    wait_until("the end of the command", || !lives(main));
}

#[test]
fn command_that_ends_without_node_leaves_exit_code_to_docker() {
    let mut gate = Gate::start();
    let directory = tempfile::tempdir().expect("a directory");
    let gone = directory.path().join("gone");
    let script = format!(
        "while ! [ -e {} ]; do sleep 0.01; done; head -c 1000000 /dev/zero; exit 9",
        gone.display()
    );
    gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
    gate.connection
        .shutdown(std::net::Shutdown::Both)
        .expect("connected");
    std::fs::write(&gone, "").expect("own directory");
    assert_eq!(gate.exit_code(), Some(9));
}

#[test]
fn renewed_command_outlives_many_leases() {
    const LEASE_MILLISECONDS: u64 = 500;
    let mut gate = Gate::start();
    let begin = Instant::now();
    gate.go_with_script("while :; do echo on; sleep 0.05; done", LEASE_MILLISECONDS);
    while begin.elapsed() < Duration::from_millis(3 * LEASE_MILLISECONDS) {
        gate.expect_stdout("on\n");
        gate.renew(LEASE_MILLISECONDS);
    }
    gate.renew(LONG_LEASE_MILLISECONDS);
    gate.send_signal(15);
    assert_eq!(gate.rest().exited.signal, Some(15));
}

#[test]
fn lease_can_be_shortened() {
    let mut gate = Gate::start();
    let main = gate.go_with_script(STUBBORN, LONG_LEASE_MILLISECONDS);
    gate.renew(0);
    assert_eq!(gate.exit_code(), Some(125));
    wait_until("the end of the command", || !lives(main));
}
