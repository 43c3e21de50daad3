//! The signals that the gate itself receives, as a file that poll(2) can wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;

/// Signals that the gate passes to the command: all stop signals that images use. PID 1 receives no signal
/// from its own container without a handler for it.
const PASSED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// The handlers and the signals that they caught.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

/// The signals caught since the last call.
#[derive(Debug, Default)]
pub(crate) struct Caught {
    /// A child has ended.
    pub(crate) child: bool,
    /// Signals for the command.
    pub(crate) passed_on: Vec<Signal>,
    /// One of these signals came from outside the container.
    pub(crate) from_outside: bool,
}

impl Signals {
    /// Installs the handlers, for the life of the process.
    pub(crate) fn install() -> io::Result<Self> {
        uninstall_handlers_of_std()?;
        let (read, write) = UnixStream::pair()?;
        let signals = PASSED_ON.iter().chain(&[SIGCHLD]);
        Ok(Self {
            delivery: SignalDelivery::with_pipe(read, write, WithOrigin::default(), signals)?,
        })
    }

    /// Takes the caught signals; never blocks.
    pub(crate) fn take(&mut self) -> Caught {
        let mut caught = Caught::default();
        for origin in self.delivery.pending() {
            match Signal::from_named_raw(origin.signal) {
                Some(Signal::CHILD) => caught.child = true,
                Some(signal) => {
                    caught.passed_on.push(signal);
                    caught.from_outside |= is_from_outside(&origin);
                }
                None => (),
            }
        }
        caught
    }
}

impl AsFd for Signals {
    /// Readable when a signal has been caught.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Whether the sender is in no visible PID namespace: its id is then 0. Source: pid_namespaces(7),
/// "siginfo_t".
fn is_from_outside(origin: &Origin) -> bool {
    origin.process.is_some_and(|sender| sender.pid == 0)
}

/// Makes the standard library uninstall its two handlers, which it does after a signal that is not a
/// stack overflow, before `kill` returns.
///
/// The handlers run on their own stack of a few KiB. A capsule that sends both signals together with one
/// or two that interrupt the handlers overflows this stack and kills its gate. Without handlers, PID 1
/// receives neither from its own container; a true overflow still ends the gate.
fn uninstall_handlers_of_std() -> io::Result<()> {
    for signal in [Signal::SEGV, Signal::BUS] {
        kill_process(getpid(), signal)?;
    }
    Ok(())
}
