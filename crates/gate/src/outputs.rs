//! Passes the command's stdout and stderr to the node.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::{Errno, read};

use crate::link::Link;
use crate::protocol::kind;
use crate::readiness::{Interests, Source};

#[cfg(test)]
mod tests;

/// The read ends of both pipes; none after the end of an output.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// Whether processes may still write to the pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Processes live: an empty pipe may fill again.
    Living,
    /// All processes are dead: an empty pipe has reached its end, even if a process outside the container
    /// holds it open (a socket can transfer a descriptor).
    Dead,
}

impl Outputs {
    /// Whether both outputs have reached their end.
    pub(crate) const fn are_complete(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Adds the open outputs.
    pub(crate) fn add_interests<'fd>(&'fd self, interests: &mut Interests<'fd>) {
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            interests.add(output.as_fd(), true, false, Source::Outputs);
        }
    }

    /// Reads each output once and sends the bytes, unless too many bytes wait for the node.
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
