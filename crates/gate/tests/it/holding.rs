//! A gate that holds: processes start on the node's word, and nothing outlives them.

use aod_gate::protocol::{Exited, FromGate, Process, ProcessExited, Signal, ToGate};

use crate::node::Gate;

fn exited(number: u32, code: i32) -> ProcessExited {
    ProcessExited {
        number,
        exited: Exited {
            code: Some(code),
            ..Exited::default()
        },
    }
}

fn killed(number: u32, signal: i32) -> ProcessExited {
    ProcessExited {
        number,
        exited: Exited {
            signal: Some(signal),
            ..Exited::default()
        },
    }
}

fn finished() -> Exited {
    Exited {
        code: Some(0),
        ..Exited::default()
    }
}

#[test]
fn processes_run_one_after_the_other_with_input_and_environment() {
    let directory = tempfile::tempdir().expect("a directory");
    let prompt = directory.path().join("prompt");
    std::fs::write(&prompt, "a prompt").expect("own directory");
    let mut gate = Gate::start();
    gate.hold();
    gate.start_script(1, "cat; printf %s $WHO", &[("WHO", "-me")], Some(&prompt));
    let (stdout, end) = gate.end_of_process();
    assert_eq!((&stdout[..], end), (&b"a prompt-me"[..], exited(1, 0)));
    gate.start_script(2, "cat; printf %s $WHO; exit 3", &[], None);
    let (stdout, end) = gate.end_of_process();
    assert_eq!((&stdout[..], end), (&b""[..], exited(2, 3)));
    gate.send(&ToGate::Finish);
    assert_eq!(gate.rest().exited, finished());
    assert_eq!(gate.exit_code(), Some(0));
}

#[test]
fn processes_at_the_same_time_have_outputs_and_signals_of_their_own() {
    let mut gate = Gate::start();
    gate.hold();
    gate.start_script(1, "echo one; exec sleep 1000", &[], None);
    gate.start_script(2, "echo two >&2; exec sleep 1000", &[], None);
    let mut seen = vec![gate.next(), gate.next()];
    seen.sort_by_key(|message| matches!(message, FromGate::ProcessStderr(..)));
    let expected = [
        FromGate::ProcessStdout(1, b"one\n".to_vec()),
        FromGate::ProcessStderr(2, b"two\n".to_vec()),
    ];
    assert_eq!(seen, expected);
    gate.send(&ToGate::Signal(Signal {
        signal: 9,
        process: Some(2),
    }));
    assert_eq!(gate.next(), FromGate::ProcessExited(killed(2, 9)));
    // Without a number: to all, and the gate ends.
    gate.send_signal(15);
    assert_eq!(gate.next(), FromGate::ProcessExited(killed(1, 15)));
    assert_eq!(gate.rest().exited, finished());
}

#[test]
fn process_that_cannot_start_is_reported() {
    let mut gate = Gate::start();
    gate.hold();
    let process = Process {
        number: 1,
        argv: vec!["no-such-program".into()],
        env: Vec::new(),
        stdin: None,
    };
    gate.send(&ToGate::Process(process));
    let (_, end) = gate.end_of_process();
    assert_eq!(end.exited.code, Some(127));
    let text = end.exited.error.expect("a reason");
    assert!(text.contains("not found in PATH=/usr/bin:/bin"), "{text}");
    gate.start_script(2, "true", &[], Some("/no/such/prompt".as_ref()));
    let (_, end) = gate.end_of_process();
    let text = end.exited.error.expect("a reason");
    assert!(
        text.starts_with("/no/such/prompt: cannot be read"),
        "{text}"
    );
}

#[test]
fn order_for_process_before_the_gate_holds_ends_it() {
    let mut gate = Gate::start();
    gate.start_script(1, "true", &[], None);
    assert_eq!(gate.next_or_end(), None);
}
