//! Outputs: every byte, in order, at the node's pace.

use std::time::{Duration, Instant};

use aod_gate::protocol::FromGate;

use crate::node::{Gate, LONG_LEASE_MILLISECONDS};

#[test]
fn all_bytes_arrive_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bytes");
    // The period divides neither a frame nor a pipe.
    let written: Vec<u8> = (0..9_000_001_u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&path, &written).expect("own directory");
    let mut gate = Gate::start();
    let path = path.display();
    gate.go_with_script(
        &format!("cat {path} & cat {path} >&2; wait"),
        LONG_LEASE_MILLISECONDS,
    );
    let told = gate.rest();
    assert!(told.stdout == written, "stdout differs");
    assert!(told.stderr == written, "stderr differs");
}

#[test]
fn flood_of_output_is_complete_and_gate_stays_small() {
    const SIZE_BYTES: usize = 1 << 30;
    let mut gate = Gate::start();
    let script = format!("exec head -c {SIZE_BYTES} /dev/zero");
    gate.go_with_script(&script, LONG_LEASE_MILLISECONDS);
    let mut received_bytes = 0;
    let mut resident_bytes_max = 0;
    loop {
        match gate.next() {
            FromGate::Stdout(bytes) => received_bytes += bytes.len(),
            FromGate::Exited(exited) => {
                assert_eq!(exited.code, Some(0));
                break;
            }
            other => panic!("{other:?}"),
        }
        if received_bytes % (1 << 26) < 65_536 {
            resident_bytes_max = resident_bytes_max.max(resident_bytes(gate.process_id()));
        }
    }
    assert_eq!(received_bytes, SIZE_BYTES);
    assert!(
        (1..16 << 20).contains(&resident_bytes_max),
        "{resident_bytes_max} bytes"
    );
}

/// A node that does not read blocks the command, not the gate: the node can still renew leases.
#[test]
fn node_that_does_not_read_loses_nothing_and_can_renew() {
    const LEASE: Duration = Duration::from_millis(500);
    const SIZE_BYTES: usize = 3_000_000;
    let lease_milliseconds = 500;
    let mut gate = Gate::start();
    let script = format!("head -c {SIZE_BYTES} /dev/zero; echo end >&2");
    gate.go_with_script(&script, lease_milliseconds);
    let begin = Instant::now();
    while begin.elapsed() < LEASE * 3 {
        gate.renew(lease_milliseconds);
        std::thread::sleep(LEASE / 10);
    }
    assert!((1..16 << 20).contains(&resident_bytes(gate.process_id())));
    gate.renew(LONG_LEASE_MILLISECONDS);
    let told = gate.rest();
    assert_eq!(told.stdout.len(), SIZE_BYTES);
    assert_eq!(told.stderr, b"end\n");
    assert_eq!(told.exited.code, Some(0));
}

#[test]
fn outputs_closed_early_do_not_end_command() {
    let mut gate = Gate::start();
    gate.go_with_script(
        "echo last; exec >&- 2>&-; sleep 0.1; exit 5",
        LONG_LEASE_MILLISECONDS,
    );
    let told = gate.rest();
    assert_eq!(told.stdout, b"last\n");
    assert_eq!(told.exited.code, Some(5));
}

/// The gate reads the bytes that an ended command has left in its pipes.
#[test]
fn bytes_in_pipes_at_end_are_not_lost() {
    for _ in 0..20 {
        let mut gate = Gate::start();
        gate.go_with_script(
            "head -c 60000 /dev/zero; kill -9 $$",
            LONG_LEASE_MILLISECONDS,
        );
        let told = gate.rest();
        assert_eq!(told.stdout.len(), 60_000);
        assert_eq!(told.exited.signal, Some(9));
    }
}

/// The memory of a process that is in use; none when it has ended.
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kibibytes.unwrap_or(0) * 1024
}
