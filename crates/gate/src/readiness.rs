//! Waits for the next event: poll(2) over all files of current interest.
//!
//! Each wait builds a new set from the state, so that both cannot disagree. The set has at most some
//! 130 entries.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A ready source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A signal has arrived.
    Signals,
    /// The lease has expired.
    Lease,
    /// The node has sent bytes, accepts bytes, or has closed.
    Node,
    /// The command has written to an output or closed it.
    Outputs,
    /// The capsule opens a connection.
    Listener,
    /// A forwarded connection can continue: its slot.
    Connection(usize),
}

/// The files of interest, with their sources.
#[derive(Default)]
pub(crate) struct Interests<'fd> {
    entries: Vec<PollFd<'fd>>,
    sources: Vec<Source>,
}

impl<'fd> Interests<'fd> {
    /// Adds a file that is of interest when it can be read (`readable`), can be written (`writable`), or is
    /// broken. A file with neither is not added: poll would report a hang-up forever.
    pub(crate) fn add(
        &mut self,
        file: BorrowedFd<'fd>,
        readable: bool,
        writable: bool,
        source: Source,
    ) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, readable);
        flags.set(PollFlags::OUT, writable);
        if !flags.is_empty() {
            self.entries.push(PollFd::from_borrowed_fd(file, flags));
            self.sources.push(source);
        }
    }

    /// Waits until a source is ready, at most for `timeout`. A source may appear more than once.
    pub(crate) fn wait(mut self, timeout: Option<Duration>) -> Result<Vec<Source>, Errno> {
        let timeout = timeout.map(|duration| {
            Timespec::try_from(duration).expect("the gate's own timeouts are below a second")
        });
        match poll(&mut self.entries, timeout.as_ref()) {
            Ok(_) => (),
            // A signal: its handler has written to the signals' socket, so the next wait returns immediately.
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
        let ready = self.entries.iter().zip(self.sources);
        Ok(ready
            .filter(|(entry, _)| !entry.revents().is_empty())
            .map(|(_, source)| source)
            .collect())
    }
}
