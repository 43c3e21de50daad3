//! The gate: PID 1 of every capsule's container, one small static binary that needs nothing from the
//! image.
//!
//! The gate connects to its node over a Unix socket, waits for "go" (a warm container waits here, for
//! hours if necessary), starts the image's own command and stays its parent. The gate
//!
//! - forwards loopback TCP to the run's Unix socket, so that a container without any network reaches
//!   its node with any HTTP client;
//! - passes outputs to the node, without a lost byte, and reads no faster than the node;
//! - passes signals to the command, and reaps orphaned processes;
//! - after the end of the command, kills all other processes in the container, empties the outputs, and
//!   reports the exit, before Docker begins its own teardown;
//! - or, if the node says so, holds the container and starts the processes that the node sends, one after the other or
//!   several at the same time, and kills whatever they leave;
//! - counts deleted files that are still open, for the limit of the disk;
//! - kills everything when its lease expires, so that nothing runs on after the death of a node.
//!
//! Nodes use [`protocol`] too: the only definition of the messages between both. The rest is the
//! program: one thread, one loop over all events ([`supervisor`]), no allocation that grows with the
//! work. Docker sets user, working directory, limits and mounts. The node decides how much output it
//! keeps, and what an exit means.
//!
//! The capsule runs as the same user, but cannot trace the gate or open its files (the gate is not
//! dumpable), kill it (it is PID 1), change its limits or its priority (a filter of system calls), or
//! replace it on the node's socket (connected before the capsule starts). The gate passes signals that
//! the capsule sends to PID 1 back to the capsule.
//!
//! Built for embedding: `RUSTFLAGS="-C target-feature=+crt-static"`, with glibc's static library on the
//! build host. In addition to serde, the gate uses rustix for system calls without libc and without
//! unsafe code, seccompiler to apply a filter of system calls, and signal-hook for handlers without
//! unsafe code (exec resets handlers, unlike a blocked mask and a signalfd, so the command starts with
//! clean signals).

pub mod options;
pub mod protocol;
pub mod supervisor;

mod command;
mod deleted;
mod forwarder;
mod held;
mod lease;
mod link;
mod memory;
mod outputs;
mod processes;
mod readiness;
mod secrets;
mod shield;
mod signals;

/// Writes a problem to stderr, the container's own log. The reader may have ended, so a failed write means
/// nothing.
pub fn complain(problem: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "aod-gate: {problem}");
}
