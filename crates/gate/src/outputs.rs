//! The command's stdout and stderr on their way to the node.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::{Errno, read};

use crate::link::Link;
use crate::protocol::kind;
use crate::readiness::{Interests, Source};

#[cfg(test)]
mod tests;

/// The reading ends of both pipes; none once an output has reached its end.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// Who may still write to the pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Some process lives: an empty pipe may fill again.
    Living,
    /// All are dead: an empty pipe has reached its end, even if someone outside still holds it open
    /// (a descriptor can be sent away over a socket).
    Dead,
}

impl Outputs {
    /// Whether both outputs have reached their end.
    pub(crate) const fn are_complete(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Adds the outputs that are still open.
    pub(crate) fn add_interests<'fd>(&'fd self, interests: &mut Interests<'fd>) {
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            interests.add(output.as_fd(), true, false, Source::Outputs);
        }
    }

    /// Reads each output once, if the link has room, and sends what came.
    pub(crate) fn pump(&mut self, link: &mut Link, writers: Writers, scratch: &mut [u8]) {
        pump_one(&mut self.stdout, kind::STDOUT, link, writers, scratch);
        pump_one(&mut self.stderr, kind::STDERR, link, writers, scratch);
    }
}

fn pump_one(
    output: &mut Option<OwnedFd>,
    kind: u8,
    link: &mut Link,
    writers: Writers,
    scratch: &mut [u8],
) {
    let Some(pipe) = output else { return };
    if !link.has_room() {
        return;
    }
    match read(pipe, &mut *scratch) {
        Ok(0) => *output = None,
        Ok(size_bytes) => link.send_output(kind, &scratch[..size_bytes]),
        Err(Errno::INTR) => (),
        Err(Errno::AGAIN) if writers == Writers::Living => (),
        Err(_) => *output = None,
    }
}
