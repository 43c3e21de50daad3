//! The gate: PID 1 of every capsule's container, one small static binary that needs nothing of the
//! image.
//!
//! It connects to its node over a Unix socket, waits for "go" (a warm container waits here, for
//! hours if need be), starts the image's own command and stays its parent:
//!
//! - it forwards loopback TCP to the run's Unix socket, so that a container without any network
//!   reaches its orchestrator with any HTTP client;
//! - it passes outputs to the node, never losing a byte and never running ahead of it;
//! - it passes signals to the command, and reaps whatever the command leaves behind;
//! - once the command has ended it kills all else in the container, empties the outputs, and reports
//!   the exit, before Docker begins its own teardown;
//! - it kills everything when its lease runs out, so that a dead node leaves nothing that runs on.
//!
//! [`protocol`] is for nodes too: the one definition of what both say to each other. The rest is the
//! program: one thread, one loop over all that can happen ([`supervisor`]), no allocation that grows
//! with the work. It leaves to Docker: user, working directory, limits, mounts. It leaves to the
//! node: whose output it is, how much of it is kept, and what an exit means.
//!
//! What the capsule cannot do to it, being the same user: trace it or open its files (it is not
//! dumpable), kill it (it is PID 1), take its place on the node's socket (connected before the
//! capsule is started). Signals that the capsule sends to PID 1 come back to itself.
//!
//! Built to be embedded: `RUSTFLAGS="-C target-feature=+crt-static"`, glibc's static library on the
//! building host. Beside serde it uses rustix for system calls without libc and without unsafe code,
//! and signal-hook for handlers without unsafe code (handlers, unlike a blocked mask and a signalfd,
//! are undone by exec, so the command starts with clean signals).

pub mod options;
pub mod protocol;
pub mod supervisor;

mod command;
mod forwarder;
mod lease;
mod link;
mod memory;
mod outputs;
mod processes;
mod readiness;
mod secrets;
mod signals;

/// Says on stderr, which is the container's own log, why something went wrong. Whoever reads there
/// may be gone, so a failure to write means nothing.
pub fn complain(problem: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "aod-gate: {problem}");
}
