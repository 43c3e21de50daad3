//! Before "go": waiting, and failures.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;

use aod_gate::protocol::{Exited, FromGate};

use crate::node::{Channel, Gate, gate_arguments, gate_command, wait_for_exit};

#[test]
fn waiting_gate_ends_with_its_node() {
    let mut gate = Gate::start();
    gate.connection
        .shutdown(std::net::Shutdown::Both)
        .expect("connected");
    assert_eq!(gate.exit_code(), Some(125));
}

#[test]
fn invalid_message_ends_waiting_gate() {
    let frames: [&[u8]; 4] = [
        b"HTTP/1.1 200 OK",
        b"G\0\0\0\x02{}",
        b"L\0\0\0\x12{\"milliseconds\":5}",
        b"T\0\0\0\x0d{\"signal\":15}",
    ];
    for frame in frames {
        let mut gate = Gate::start();
        gate.connection.write_all(frame).expect("connected");
        assert_eq!(gate.next_or_end(), None);
        assert_eq!(gate.exit_code(), Some(125));
    }
}

#[test]
fn second_go_breaks_connection_but_not_command() {
    let mut gate = Gate::start();
    gate.go_with_script("read never </dev/null; exec sleep 1000", 300);
    gate.go(&["true"], &[], 60_000);
    assert_eq!(gate.next_or_end(), None);
    // The lease of the first "go", not of the second.
    assert_eq!(gate.exit_code(), Some(125));
}

#[test]
fn gate_without_node_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut process = gate_command()
        .args(gate_arguments(directory.path(), "127.0.0.1:0"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the gate can be started");
    assert_eq!(wait_for_exit(&mut process).code(), Some(125));
    let text = std::io::read_to_string(process.stderr.take().expect("piped")).expect("UTF-8");
    assert!(
        text.contains("no node listens at") && text.contains("gate.sock"),
        "{text}"
    );
}

#[test]
fn unknown_arguments_are_rejected() {
    let output = gate_command()
        .arg("serve")
        .output()
        .expect("the gate can be started");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        text.starts_with("aod-gate: unknown argument \"serve\""),
        "{text}"
    );
}

#[test]
fn address_in_use_is_reported_to_node() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = taken.local_addr().expect("bound").to_string();
    let channel = Channel::new();
    let mut process = gate_command()
        .args(gate_arguments(channel.path(), &address))
        .stderr(Stdio::null())
        .spawn()
        .expect("the gate can be started");
    let messages = channel.all_messages();
    let [
        FromGate::Exited(Exited {
            code: None,
            signal: None,
            error: Some(error),
            ..
        }),
    ] = &messages[..]
    else {
        panic!("{messages:?}")
    };
    assert!(error.starts_with(&format!(
        "cannot listen at {address}: Address already in use"
    )));
    assert_eq!(wait_for_exit(&mut process).code(), Some(125));
}
