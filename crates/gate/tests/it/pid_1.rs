//! The gate as PID 1, in the tests' own PID namespaces.
//!
//! As root these tests must run. Other users may lack the right to create namespaces; each test then
//! prints that it has not run, except if `CI` is set.

use std::process::{Command, Stdio};

use aod_gate::protocol::{Deleted, Exited, FromGate, ToGate};

use crate::node::{Channel, Gate, LONG_LEASE_MILLISECONDS, kill, wait_until};

/// `unshare` with its own PID namespace and `/proc`; its end ends all processes in the namespace.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the test can run; prints why not. As root, or in CI, it must.
fn can_unshare() -> bool {
    let probe = unshare().arg("true").stderr(Stdio::piped()).output();
    if probe.as_ref().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(
        !is_root() && std::env::var_os("CI").is_none(),
        "no PID namespace: {probe:?}"
    );
    eprintln!("not run: this user cannot create PID namespaces");
    false
}

/// A gate that is PID 1, if the user can create namespaces.
fn gate() -> Option<Gate> {
    can_unshare().then(|| {
        let mut command = unshare();
        command.arg(env!("CARGO_BIN_EXE_aod-gate"));
        let gate = Gate::start_by(command, Channel::new());
        assert_eq!(gate.own_pid, 1);
        gate
    })
}

fn exited_with(code: i32) -> Exited {
    Exited {
        code: Some(code),
        ..Exited::default()
    }
}

#[test]
fn daemons_that_hold_outputs_die_with_command() {
    let Some(mut gate) = gate() else { return };
    let script = "sleep 1000 & setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; while :; do
                  echo on; sleep 0.001; done' & echo begun; exit 6";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    let told = gate.rest();
    assert_eq!(told.exited, exited_with(6));
    assert!(told.stdout.starts_with(b"begun\n") || told.stdout.starts_with(b"on\n"));
    assert_eq!(gate.exit_code(), Some(6));
}

#[test]
fn deleted_files_that_are_open_are_counted_once() {
    let Some(mut gate) = gate() else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let script = format!(
        "cd {}; head -c 1048576 /dev/urandom >gone; exec 3<gone; rm gone
         head -c 1048576 /dev/urandom >kept; exec 4<kept; sleep 60 & echo ready; sleep 60",
        directory.path().display()
    );
    gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
    gate.expect_stdout("ready\n");
    gate.send(&ToGate::CountDeleted);
    let FromGate::Deleted(Deleted { bytes }) = gate.next() else {
        panic!("a count is expected")
    };
    assert!((1_048_576..2_097_152).contains(&bytes), "{bytes}");
}

#[test]
fn orphans_are_reaped_while_command_runs() {
    let Some(mut gate) = gate() else { return };
    // More than one round. The shell waits for its own children, so any zombie is the gate's.
    let script = "i=0; while [ $i -lt 600 ]; do (true &); i=$((i + 1)); done; echo left;
                  while grep -q '^State:.Z' /proc/[0-9]*/status 2>&-; do :; done; echo buried";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    let told = gate.rest();
    assert_eq!(told.stdout, b"left\nburied\n");
    assert_eq!(told.exited, exited_with(0));
}

/// Processes that fork and exit endlessly: each is a new orphan.
#[test]
fn chain_of_forks_ends_with_command() {
    let Some(mut gate) = gate() else { return };
    let script = "chain() { chain & }; for i in 1 2 3 4; do chain & done; echo begun;
                  exec sleep 1000";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    gate.expect_stdout("begun\n");
    gate.send_signal(9);
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
fn chain_of_forks_ends_with_lease() {
    let Some(mut gate) = gate() else { return };
    let script = "chain() { chain & }; for i in 1 2 3 4; do chain & done; echo begun;
                  exec sleep 1000";
    gate.go_with_script(script, 500);
    gate.expect_stdout("begun\n");
    assert_eq!(gate.exit_code(), Some(125));
}

#[test]
fn capsule_can_neither_kill_nor_stop_its_gate() {
    let Some(mut gate) = gate() else { return };
    let script = "for signal in KILL STOP ABRT SEGV ILL BUS FPE PIPE ALRM TSTP TTIN CHLD; do
                  kill -$signal 1; done; echo alive; exit 8";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    let told = gate.rest();
    assert_eq!(told.stdout, b"alive\n");
    assert_eq!(told.exited, exited_with(8));
}

/// All signals together, as after a pause without a processor: each signal interrupts the handler of the
/// one before.
#[test]
fn burst_of_signals_does_not_kill_gate() {
    let Some(mut gate) = gate() else { return };
    let directory = gate.channel.path().to_owned();
    let script = format!(
        "trap '' HUP INT QUIT TERM USR1 USR2 WINCH; cd {}; : >ready; while [ ! -e go ]; do :; done
         for signal in SEGV BUS HUP INT QUIT TERM USR1 USR2 WINCH CHLD; do kill -$signal 1; done
         : >sent; exit 9",
        directory.display()
    );
    gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
    wait_until("ready", || directory.join("ready").exists());
    let pid_1 = pid_1_of(&gate);
    kill("-STOP", pid_1);
    std::fs::write(directory.join("go"), "").expect("own directory");
    wait_until("sent", || directory.join("sent").exists());
    kill("-CONT", pid_1);
    assert_eq!(gate.rest().exited, exited_with(9));
}

/// The process id of PID 1 in the host's namespace.
fn pid_1_of(gate: &Gate) -> u32 {
    let pid = gate.process_id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.expect("of unshare").trim().parse().expect("one")
}

#[test]
fn exit_reports_signal_from_outside() {
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let Some(mut asked_by_its_node) = gate() else {
        return;
    };
    asked_by_its_node.go_with_script(script, LONG_LEASE_MILLISECONDS);
    asked_by_its_node.expect_stdout("ready\n");
    asked_by_its_node.send_signal(15);
    assert_eq!(asked_by_its_node.rest().exited, exited_with(7));

    let Some(mut asked_from_outside) = gate() else {
        return;
    };
    asked_from_outside.go_with_script(script, LONG_LEASE_MILLISECONDS);
    asked_from_outside.expect_stdout("ready\n");
    kill("-TERM", pid_1_of(&asked_from_outside));
    let expected = Exited {
        asked_from_outside: true,
        ..exited_with(7)
    };
    assert_eq!(asked_from_outside.rest().exited, expected);
}

#[test]
fn stop_signal_of_capsule_to_pid_1_reaches_capsule() {
    let Some(mut gate) = gate() else { return };
    let script = "trap 'exit 7' TERM; kill -TERM 1; while :; do sleep 0.01; done";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    assert_eq!(gate.rest().exited, exited_with(7));
}

/// The gate as the same unprivileged user as its capsule, as in a container.
#[test]
fn capsule_cannot_trace_or_read_its_gate() {
    if !is_root() {
        eprintln!("not run: only root can start a gate as another user");
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        return;
    }
    // The build directory may be closed to other users.
    let channel = Channel::new();
    let binary = channel.path().join("aod-gate");
    std::fs::copy(env!("CARGO_BIN_EXE_aod-gate"), &binary).expect("own directory");
    let opened = Command::new("chmod")
        .args(["-R", "a+rwx"])
        .arg(channel.path())
        .status();
    assert!(opened.expect("chmod").success());
    let mut command = unshare();
    command
        .args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ])
        .arg(&binary);
    let mut gate = Gate::start_by(command, channel);
    let script = "id -u; cat /proc/$$/environ >/dev/null && readlink /proc/$$/exe >/dev/null \
                  && ls /proc/$$/fd >/dev/null && echo own;
                  for file in environ mem maps auxv; do
                  head -c 1 /proc/1/$file >/dev/null 2>&1 && echo $file; done;
                  readlink /proc/1/exe; readlink /proc/1/cwd; ls /proc/1/fd 2>/dev/null; exit 0";
    gate.go_with_script(script, LONG_LEASE_MILLISECONDS);
    let told = gate.rest();
    assert_eq!(
        String::from_utf8(told.stdout).expect("UTF-8"),
        "65534\nown\n"
    );
    assert_eq!(told.exited, exited_with(0));
}

/// A process that a step leaves must not change what the next step sees.
#[test]
fn nothing_outlives_the_processes_of_a_gate_that_holds() {
    let Some(mut gate) = gate() else { return };
    gate.hold();
    // In a session of its own, deaf, and with the output open.
    let leave =
        "mkfifo $FIFO; setsid sh -c 'trap \"\" TERM HUP; echo left; echo >$FIFO; while :; do
                 sleep 0.01; done' & read line <$FIFO; exit 4";
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let fifo = directory.path().join("fifo").display().to_string();
    gate.start_script(1, leave, &[("FIFO", &fifo)], None);
    let (stdout, end) = gate.end_of_process();
    assert_eq!(String::from_utf8_lossy(&stdout), "left\n");
    assert_eq!((end.number, end.exited), (1, exited_with(4)));
    gate.start_script(2, "set -- /proc/[0-9]*; echo $#", &[], None);
    let (stdout, end) = gate.end_of_process();
    assert_eq!(end.number, 2);
    // The gate and the shell.
    assert_eq!(String::from_utf8_lossy(&stdout), "2\n");
    gate.send(&ToGate::Finish);
    assert_eq!(gate.rest().exited, exited_with(0));
}
