//! One forwarded connection: two directions, each with at most one pending piece.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::{Errno, read, write};
use rustix::net::{Shutdown, shutdown};

use crate::readiness::{Interests, Source};

#[cfg(test)]
mod tests;

/// Both ends and both directions.
#[derive(Debug)]
pub(super) struct Connection {
    capsule: OwnedFd,
    node: OwnedFd,
    to_node: Direction,
    to_capsule: Direction,
    is_reset: bool,
}

/// One direction of a connection.
#[derive(Debug)]
struct Direction {
    stage: Stage,
    /// Bytes that the receiver has not accepted yet; before that, nothing more is read.
    pending: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Bytes are forwarded.
    Open,
    /// The receiver accepts no more. The forwarder still reads the sender, because a close with unread
    /// bytes would reset the other direction.
    Discarding,
    /// The sender has ended, and the receiver's half is shut down.
    Ended,
}

/// A sender was reset.
struct Reset;

impl Connection {
    /// Joins a connection of the capsule and a non-blocking one of the node.
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

    /// Adds both ends, each with its next possible operations.
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

    /// Forwards at most one piece in each direction, so that no connection blocks other connections.
    pub(super) fn pump(&mut self, scratch: &mut [u8]) -> &Self {
        let (capsule, node) = (self.capsule.as_fd(), self.node.as_fd());
        let there = self.to_node.pump(capsule, node, scratch);
        let back = self.to_capsule.pump(node, capsule, scratch);
        self.is_reset |= there.is_err() || back.is_err();
        self
    }

    /// Whether both directions have ended.
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
                // An error means that the receiver has closed, which its own direction notices.
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

    /// Writes as much as the receiver accepts now, and keeps the rest.
    fn pass_on(&mut self, bytes: &[u8], receiver: BorrowedFd<'_>) {
        match write(receiver, bytes) {
            Ok(size_bytes) => self.pending = bytes[size_bytes..].to_vec(),
            Err(Errno::AGAIN | Errno::INTR) => self.pending = bytes.to_vec(),
            Err(_) => self.stage = Stage::Discarding,
        }
    }
}
