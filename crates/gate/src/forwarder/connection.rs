//! One forwarded connection: two directions, each with at most one unfinished piece in hand.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::{Errno, read, write};
use rustix::net::{Shutdown, shutdown};

use crate::readiness::{Interests, Source};

#[cfg(test)]
mod tests;

/// Both ends and what flows between them.
#[derive(Debug)]
pub(super) struct Connection {
    capsule: OwnedFd,
    node: OwnedFd,
    to_node: Direction,
    to_capsule: Direction,
    is_reset: bool,
}

/// One way through a connection.
#[derive(Debug)]
struct Direction {
    stage: Stage,
    /// Read and not yet taken by the other end; nothing more is read before.
    pending: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Bytes are passed on.
    Open,
    /// The receiver takes no more. The sender is read on, or closing would reset what still flows
    /// the other way.
    Discarding,
    /// The sender has ended, and the receiver knows.
    Ended,
}

/// A sender was reset: there is no one to pass anything on to.
struct Reset;

impl Connection {
    /// Joins a connection of the capsule to one of the node, which already does not block.
    pub(super) fn open(capsule: TcpStream, node: OwnedFd) -> io::Result<Self> {
        capsule.set_nonblocking(true)?;
        capsule.set_nodelay(true)?;
        Ok(Self {
            capsule: capsule.into(),
            node,
            to_node: Direction::new(),
            to_capsule: Direction::new(),
            is_reset: false,
        })
    }

    /// Adds both ends, each for what its directions can do next.
    pub(super) fn add_interests<'fd>(&'fd self, interests: &mut Interests<'fd>, source: Source) {
        let (to_node, to_capsule) = (&self.to_node, &self.to_capsule);
        interests.add(
            self.capsule.as_fd(),
            to_node.reads(),
            to_capsule.writes(),
            source,
        );
        interests.add(
            self.node.as_fd(),
            to_capsule.reads(),
            to_node.writes(),
            source,
        );
    }

    /// Passes on what there is, at most one piece each way, so that no connection keeps the others
    /// waiting.
    pub(super) fn pump(&mut self, scratch: &mut [u8]) -> &Self {
        let (capsule, node) = (self.capsule.as_fd(), self.node.as_fd());
        let there = self.to_node.pump(capsule, node, scratch);
        let back = self.to_capsule.pump(node, capsule, scratch);
        self.is_reset |= there.is_err() || back.is_err();
        self
    }

    /// Whether nothing will flow any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_reset || (self.to_node.stage != Stage::Open && self.to_capsule.stage != Stage::Open)
    }
}

impl Direction {
    const fn new() -> Self {
        Self {
            stage: Stage::Open,
            pending: Vec::new(),
        }
    }

    fn reads(&self) -> bool {
        match self.stage {
            Stage::Open => self.pending.is_empty(),
            Stage::Discarding => true,
            Stage::Ended => false,
        }
    }

    const fn writes(&self) -> bool {
        !self.pending.is_empty()
    }

    fn pump(
        &mut self,
        sender: BorrowedFd<'_>,
        receiver: BorrowedFd<'_>,
        scratch: &mut [u8],
    ) -> Result<(), Reset> {
        if self.writes() {
            let pending = std::mem::take(&mut self.pending);
            self.pass_on(&pending, receiver);
        }
        if !self.reads() {
            return Ok(());
        }
        match read(sender, &mut *scratch) {
            Ok(0) => {
                // An error means that the receiver is gone, which its own direction notices.
                let _ = shutdown(receiver, Shutdown::Write);
                self.stage = Stage::Ended;
            }
            Ok(_) if self.stage == Stage::Discarding => (),
            Ok(size_bytes) => self.pass_on(&scratch[..size_bytes], receiver),
            Err(Errno::AGAIN | Errno::INTR) => (),
            Err(_) => return Err(Reset),
        }
        Ok(())
    }

    /// Writes what the receiver takes now and keeps the rest.
    fn pass_on(&mut self, bytes: &[u8], receiver: BorrowedFd<'_>) {
        match write(receiver, bytes) {
            Ok(size_bytes) => self.pending = bytes[size_bytes..].to_vec(),
            Err(Errno::AGAIN | Errno::INTR) => self.pending = bytes.to_vec(),
            Err(_) => self.stage = Stage::Discarding,
        }
    }
}
