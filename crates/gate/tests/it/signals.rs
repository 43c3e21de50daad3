//! Signals from the node and signals to the gate, both passed to the command.

use crate::node::{Gate, LONG_LEASE_MILLISECONDS, kill};

/// A script that prints when it is ready for TERM, and exits with code 7 on TERM.
const WAITS_FOR_TERM: &str = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";

#[test]
fn stop_signal_ends_waiting_gate() {
    let mut gate = Gate::start();
    kill("-TERM", gate.process_id());
    assert_eq!(gate.exit_code(), Some(143));
}

#[test]
fn stop_signal_to_gate_stops_command() {
    let mut gate = Gate::start();
    gate.go_with_script(WAITS_FOR_TERM, LONG_LEASE_MILLISECONDS);
    gate.expect_stdout("ready\n");
    kill("-TERM", gate.process_id());
    assert_eq!(gate.rest().exited.code, Some(7));
    assert_eq!(gate.exit_code(), Some(7));
}

#[test]
fn other_stop_signals_are_passed_unchanged() {
    for (name, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("USR1", 10),
        ("WINCH", 28),
    ] {
        let mut gate = Gate::start();
        let script = WAITS_FOR_TERM.replace("TERM", name);
        gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
        gate.expect_stdout("ready\n");
        if number % 2 == 0 {
            kill(&format!("-{name}"), gate.process_id());
        } else {
            gate.send_signal(number);
        }
        assert_eq!(gate.rest().exited.code, Some(7), "{name}");
    }
}

#[test]
fn signal_reaches_whole_group() {
    let mut gate = Gate::start();
    // The outer trap is set before the inner shell prints that both are ready.
    let script = "trap 'wait; echo outer; exit 7' USR1
                  sh -c 'trap \"echo inner; exit\" USR1; echo ready; while :; do sleep 0.01; done' &
                  while :; do sleep 0.01; done";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    gate.expect_stdout("ready\n");
    gate.send_signal(10);
    let told = gate.rest();
    assert_eq!(told.stdout, b"inner\nouter\n");
    assert_eq!(told.exited.code, Some(7));
}

#[test]
fn command_that_ignores_term_or_is_stopped_can_be_killed() {
    for preparation in ["trap '' TERM", "kill -STOP $$"] {
        let mut gate = Gate::start();
        let script = format!("echo ready; {preparation}; while :; do sleep 0.01; done");
        gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
        gate.expect_stdout("ready\n");
        gate.send_signal(9);
        assert_eq!(gate.rest().exited.signal, Some(9), "{preparation}");
    }
}

#[test]
fn invalid_signal_numbers_are_ignored() {
    let mut gate = Gate::start();
    gate.go_with_script(WAITS_FOR_TERM, LONG_LEASE_MILLISECONDS);
    gate.expect_stdout("ready\n");
    for number in [0, -1, -9, 32, 65, i32::MAX, i32::MIN] {
        gate.send_signal(number);
    }
    gate.send_signal(15);
    assert_eq!(gate.rest().exited.code, Some(7));
}
