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

/// The process that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Writer {
    /// The image's own command.
    Command,
    /// The process of the node with this number.
    Process(u32),
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
    pub(crate) fn pump(
        &mut self,
        writer: Writer,
        link: &mut Link,
        writers: Writers,
        scratch: &mut [u8],
    ) {
        let both = [(&mut self.stdout, false), (&mut self.stderr, true)];
        for (output, is_stderr) in both {
            pump_one(output, link, writers, scratch, |link, bytes| {
                send(writer, is_stderr, link, bytes);
            });
        }
    }
}

fn pump_one(
    output: &mut Option<OwnedFd>,
    link: &mut Link,
    writers: Writers,
    scratch: &mut [u8],
    send: impl FnOnce(&mut Link, &[u8]),
) {
    let Some(pipe) = output else { return };
    if !link.has_room() {
        return;
    }
    match read(pipe, &mut *scratch) {
        Ok(0) => *output = None,
        Ok(size_bytes) => send(link, &scratch[..size_bytes]),
        Err(Errno::INTR) => (),
        Err(Errno::AGAIN) if writers == Writers::Living => (),
        Err(_) => *output = None,
    }
}

fn send(writer: Writer, is_stderr: bool, link: &mut Link, bytes: &[u8]) {
    match (writer, is_stderr) {
        (Writer::Command, false) => link.send_output(kind::STDOUT, &[bytes]),
        (Writer::Command, true) => link.send_output(kind::STDERR, &[bytes]),
        (Writer::Process(number), is_stderr) => {
            let kinds = [kind::PROCESS_STDOUT, kind::PROCESS_STDERR];
            let number = number.to_be_bytes();
            link.send_output(kinds[usize::from(is_stderr)], &[&number, bytes]);
        }
    }
}
