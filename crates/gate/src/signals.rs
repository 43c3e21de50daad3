//! The signals that the gate itself receives, as something that can be waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;

/// What is passed on to the command: all that images name as their stop signal. PID 1 receives no
/// signal from its own container for which it has no handler.
const PASSED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// The handlers and what they caught.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

/// What was caught since the last look.
#[derive(Debug, Default)]
pub(crate) struct Caught {
    /// A child has ended.
    pub(crate) child: bool,
    /// To be passed on to the command.
    pub(crate) passed_on: Vec<Signal>,
    /// One of those came from outside of the container.
    pub(crate) from_outside: bool,
}

impl Signals {
    /// Installs the handlers, for the life of the process.
    pub(crate) fn install() -> io::Result<Self> {
        give_up_own_handlers()?;
        let (read, write) = UnixStream::pair()?;
        let signals = PASSED_ON.iter().chain(&[SIGCHLD]);
        Ok(Self {
            delivery: SignalDelivery::with_pipe(read, write, WithOrigin::default(), signals)?,
        })
    }

    /// Takes what has been caught; never blocks.
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
    /// Readable when something has been caught.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Whether the sender is in no PID namespace that is seen from here: then it has the id 0. Source:
/// pid_namespaces(7), "siginfo_t".
fn is_from_outside(origin: &Origin) -> bool {
    origin.process.is_some_and(|sender| sender.pid == 0)
}

/// Has the standard library take back its two handlers, which it does on a signal that is not a
/// stack overflow, before `kill` returns.
///
/// They run on a stack of their own, of a few KiB. A capsule that sends both at once, and one or
/// two others that interrupt them, overflows it, and so kills its gate. Without handlers, PID 1
/// gets neither from its own container; a true overflow still ends it.
fn give_up_own_handlers() -> io::Result<()> {
    for signal in [Signal::SEGV, Signal::BUS] {
        kill_process(getpid(), signal)?;
    }
    Ok(())
}
