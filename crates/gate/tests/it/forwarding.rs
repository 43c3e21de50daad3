//! Forwarding from loopback to the run's socket.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use aod_gate::protocol::{CAPSULE_SOCKET, CONNECTIONS_MAX};

use crate::node::{DEADLINE, Gate, accept, wait_until};

fn connect(gate: &Gate) -> TcpStream {
    let stream = TcpStream::connect(gate.listen).expect("the gate listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream
}

/// Connects, and accepts the connection at the node.
fn connect_through(gate: &Gate) -> (TcpStream, UnixStream) {
    let capsule = connect(gate);
    let node = accept(&gate.channel.capsules);
    (capsule, node)
}

fn exchange(capsule: &mut TcpStream, node: &mut UnixStream) {
    let mut received = [0; 4];
    capsule.write_all(b"ping").expect("connected");
    node.read_exact(&mut received).expect("passed on");
    assert_eq!(&received, b"ping");
    node.write_all(b"pong").expect("connected");
    capsule.read_exact(&mut received).expect("passed on");
    assert_eq!(&received, b"pong");
}

#[test]
fn requests_answers_and_ends_are_forwarded() {
    let gate = Gate::start();
    let (mut capsule, mut node) = connect_through(&gate);
    exchange(&mut capsule, &mut node);
    capsule.shutdown(Shutdown::Write).expect("connected");
    let mut rest = Vec::new();
    node.read_to_end(&mut rest).expect("an end, not a reset");
    assert_eq!(rest, b"");
    node.write_all(b"late answer").expect("connected");
    drop(node);
    capsule.read_to_end(&mut rest).expect("an end, not a reset");
    assert_eq!(rest, b"late answer");
}

#[test]
fn connection_above_64_is_closed() {
    let gate = Gate::start();
    let mut pairs: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| connect_through(&gate))
        .collect();
    let mut refused = connect(&gate);
    assert_eq!(refused.read(&mut [0]).expect("closed, not silent"), 0);
    for (capsule, node) in &mut pairs {
        exchange(capsule, node);
    }
    // The gate accepts another connection after it has seen the end of one.
    pairs.pop();
    wait_until("another accepted connection", || {
        let mut capsule = connect(&gate);
        gate.channel
            .capsules
            .set_nonblocking(true)
            .expect("a socket");
        capsule.write_all(b"x").is_ok()
            && capsule
                .set_read_timeout(Some(std::time::Duration::from_millis(100)))
                .is_ok()
            && !matches!(capsule.read(&mut [0]), Ok(0))
            && gate.channel.capsules.accept().is_ok()
    });
}

#[test]
fn connections_without_node_are_closed_until_node_returns() {
    let mut gate = Gate::start();
    let path = gate.channel.path().join(CAPSULE_SOCKET);
    std::fs::remove_file(&path).expect("own directory");
    assert_eq!(
        connect(&gate).read(&mut [0]).expect("closed, not silent"),
        0
    );
    gate.channel.capsules = UnixListener::bind(&path).expect("a short path");
    let (mut capsule, mut node) = connect_through(&gate);
    exchange(&mut capsule, &mut node);
}

/// The gate delays a burst above the listener's backlog.
#[test]
fn burst_of_connections_is_served_completely() {
    let gate = Gate::start();
    for _ in 0..300 {
        let (mut capsule, mut node) = connect_through(&gate);
        exchange(&mut capsule, &mut node);
    }
}

#[test]
fn command_reaches_its_node_over_loopback() {
    let mut gate = Gate::start();
    let (host, port) = (gate.listen.ip(), gate.listen.port());
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; echo question >&3; cat <&3");
    gate.go(
        &["bash", "-c", &script],
        &[("PATH", "/usr/bin:/bin")],
        60_000,
    );
    assert!(matches!(
        gate.next(),
        aod_gate::protocol::FromGate::Started(_)
    ));
    let mut node = accept(&gate.channel.capsules);
    let mut question = [0; 9];
    node.read_exact(&mut question).expect("passed on");
    assert_eq!(&question, b"question\n");
    node.write_all(b"answer\n").expect("connected");
    drop(node);
    let told = gate.rest();
    assert_eq!(told.stdout, b"answer\n");
    assert_eq!(told.exited.code, Some(0));
}
