//! Waiting for whatever comes first: poll(2) over everything that is of interest just now.
//!
//! The set is made anew for each wait. It has at most some 130 entries, and a set that is derived
//! from the state cannot disagree with it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What has become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A signal has come.
    Signals,
    /// The lease's clock has run out.
    Lease,
    /// The node has sent something, takes something, or is gone.
    Node,
    /// The command has written, or closed, one of its outputs.
    Outputs,
    /// The capsule opens a connection.
    Listener,
    /// A forwarded connection can go on: its slot.
    Connection(usize),
}

/// The files that are of interest, and to whom.
#[derive(Default)]
pub(crate) struct Interests<'fd> {
    entries: Vec<PollFd<'fd>>,
    sources: Vec<Source>,
}

impl<'fd> Interests<'fd> {
    /// Adds a file that is of interest when it can be read (`readable`), written (`writable`), or
    /// is broken. Neither means not at all: poll would report a hang-up for ever.
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

    /// Waits until something is ready, at most for `timeout`. A source may appear more than once.
    pub(crate) fn wait(mut self, timeout: Option<Duration>) -> Result<Vec<Source>, Errno> {
        let timeout = timeout.map(|duration| {
            Timespec::try_from(duration).expect("the gate's own timeouts are below a second")
        });
        match poll(&mut self.entries, timeout.as_ref()) {
            Ok(_) => (),
            // A signal: its handler has written to the signals' socket, so the next wait returns.
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
