//! Commands: their input, and the report of their end.

use std::process::{Command, Stdio};

use aod_gate::protocol::{Exited, FromGate};

use crate::node::{Gate, LONG_LEASE_MILLISECONDS, Seen};

fn exited_with(code: i32) -> Exited {
    Exited {
        code: Some(code),
        ..Exited::default()
    }
}

#[test]
fn outputs_are_separate_and_exit_code_is_last() {
    let mut gate = Gate::start();
    gate.go_with_script("echo out; echo err >&2; exit 3", LONG_LEASE_MILLISECONDS);
    let expected = Seen {
        stdout: b"out\n".to_vec(),
        stderr: b"err\n".to_vec(),
        exited: exited_with(3),
    };
    assert_eq!(gate.rest(), expected);
    assert_eq!(gate.exit_code(), Some(3));
}

#[test]
fn command_without_output_ends_well() {
    let mut gate = Gate::start();
    gate.go(
        &["true"],
        &[("PATH", "/usr/bin:/bin")],
        LONG_LEASE_MILLISECONDS,
    );
    assert!(matches!(gate.next(), FromGate::Started(_)));
    assert_eq!(
        gate.rest(),
        Seen {
            exited: exited_with(0),
            ..Seen::default()
        }
    );
    assert_eq!(gate.exit_code(), Some(0));
}

#[test]
fn secrets_exist_before_command_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("KEY");
    let mut gate = Gate::start();
    let script = format!(
        "cat {0}; stat -c %a {0}; env | grep -c sesame",
        path.display()
    );
    gate.go_with_secret(&script, &path, "open\nsesame\n");
    assert!(matches!(gate.next(), FromGate::Started(_)));
    let seen = gate.rest();
    let stdout = String::from_utf8(seen.stdout).expect("UTF-8");
    assert_eq!(stdout, "open\nsesame\n400\n0\n");
}

#[test]
fn command_without_its_secrets_does_not_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nowhere/KEY");
    let mut gate = Gate::start();
    gate.go_with_secret("true", &path, "opensesame");
    let FromGate::Exited(exited) = gate.next() else {
        panic!("the command does not start")
    };
    assert_eq!((exited.code, exited.signal), (None, None));
    let error = exited.error.expect("a reason");
    assert!(
        error.contains("KEY") && !error.contains("opensesame"),
        "{error}"
    );
    assert_eq!(gate.exit_code(), Some(125));
}

#[test]
fn exit_names_signal_that_ended_command() {
    let mut gate = Gate::start();
    gate.go_with_script("kill -9 $$", LONG_LEASE_MILLISECONDS);
    assert_eq!(
        gate.rest().exited,
        Exited {
            signal: Some(9),
            ..Exited::default()
        }
    );
    assert_eq!(gate.exit_code(), Some(137));
}

#[test]
fn command_has_exactly_the_given_environment() {
    let mut gate = Gate::start();
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("TEXT", "a=b c\nd"),
        ("EMPTY", ""),
        ("TWICE", "1"),
    ];
    let env: Vec<_> = env.into_iter().chain([("TWICE", "2")]).collect();
    gate.go(&["env", "-0"], &env, LONG_LEASE_MILLISECONDS);
    assert!(matches!(gate.next(), FromGate::Started(_)));
    let stdout = String::from_utf8(gate.rest().stdout).expect("UTF-8");
    let mut variables: Vec<_> = stdout.split_terminator('\0').collect();
    variables.sort_unstable();
    assert_eq!(
        variables,
        ["EMPTY=", "PATH=/usr/bin:/bin", "TEXT=a=b c\nd", "TWICE=2"]
    );
}

/// The command inherits no file of the gate, has default signals, and gets its arguments as given,
/// including the name. A shell that the test starts shows the files that the gate itself inherited (in a
/// container: none).
#[test]
fn command_inherits_no_files_and_no_signal_settings() {
    // The shell reads the file itself: while it forks for a grep, its own signals may be blocked.
    let script = "echo \"$0 $1\"; readlink /proc/$$/fd/0; (cd /proc/$$/fd; echo *); \
                  while read -r line; do case $line in SigBlk*|SigIgn*) echo \"$line\";; esac; done \
                  </proc/$$/status";
    let arguments = ["-c", script, "zero", "o n e"];
    let plain = Command::new("sh")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");

    let mut gate = Gate::start();
    let argv: Vec<_> = ["sh"].into_iter().chain(arguments).collect();
    gate.go(&argv, &[("PATH", "/usr/bin:/bin")], LONG_LEASE_MILLISECONDS);
    assert!(matches!(gate.next(), FromGate::Started(_)));
    let seen = gate.rest();
    let stdout = String::from_utf8(seen.stdout).expect("UTF-8");
    assert!(
        stdout.starts_with("zero o n e\n/dev/null\n0 1 "),
        "{stdout}"
    );
    assert!(stdout.contains("SigBlk:\t0000000000000000\n"), "{stdout}");
    assert_eq!(stdout, String::from_utf8(plain.stdout).expect("UTF-8"));
    assert_eq!(seen.stderr, b"");
}

#[test]
fn command_that_cannot_start_is_reported_as_exit_with_reason() {
    for (argv, code, error) in [
        (&["no-such"][..], 127, "no-such: not found in PATH=/nowhere"),
        (
            &["/etc/passwd"],
            126,
            "/etc/passwd: is a directory or not executable",
        ),
        (
            &[],
            127,
            "the image has no command; set ENTRYPOINT or CMD in the Dockerfile",
        ),
    ] {
        let mut gate = Gate::start();
        gate.go(argv, &[("PATH", "/nowhere")], LONG_LEASE_MILLISECONDS);
        let exited = Exited {
            code: Some(code),
            signal: None,
            error: Some(error.into()),
            out_of_memory: false,
            asked_from_outside: false,
        };
        assert_eq!(
            gate.rest(),
            Seen {
                exited,
                ..Seen::default()
            }
        );
        assert_eq!(gate.exit_code(), Some(code));
    }
}
