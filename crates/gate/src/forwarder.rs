//! Forwards loopback TCP to the run's Unix socket.
//!
//! Connections have no idle limit. The forwarder passes bytes on immediately. When one direction ends,
//! it ends that direction on the other side too; the opposite direction continues.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::protocol::CONNECTIONS_MAX;
use crate::readiness::{Interests, Source};

mod connection;

use connection::Connection;

/// The listener and its accepted connections.
#[derive(Debug)]
pub(crate) struct Forwarder {
    listener: TcpListener,
    capsule_socket: PathBuf,
    slots: Vec<Option<Connection>>,
    /// Accept no connection until the next round: the system or the node lacks a resource, and the
    /// listener would stay ready all the time.
    is_paused: bool,
}

impl Forwarder {
    /// Listens at `address` for connections to `capsule_socket`.
    pub(crate) fn listen(address: SocketAddr, capsule_socket: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            capsule_socket: capsule_socket.into(),
            slots: Vec::new(),
            is_paused: false,
        })
    }

    /// The listening address, with the actual port if port 0 was requested.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Whether the loop must come back soon, because no file reports the end of the pause.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Ends a pause.
    pub(crate) const fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Adds the listener and all connections, each with its next possible operations.
    pub(crate) fn add_interests<'fd>(&'fd self, interests: &mut Interests<'fd>) {
        interests.add(
            self.listener.as_fd(),
            !self.is_paused,
            false,
            Source::Listener,
        );
        for (slot, connection) in self.slots.iter().enumerate() {
            if let Some(connection) = connection {
                connection.add_interests(interests, Source::Connection(slot));
            }
        }
    }

    /// Forwards the available bytes of the connection in `slot`.
    pub(crate) fn pump(&mut self, slot: usize, scratch: &mut [u8]) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if connection
            .as_mut()
            .is_some_and(|connection| connection.pump(scratch).is_over())
        {
            *connection = None;
        }
    }

    /// Accepts one connection; closes it immediately if there are too many or the node does not listen.
    ///
    /// Connects to the node first: while its backlog is full, the capsule's connection stays in ours.
    pub(crate) fn accept(&mut self) {
        let node = if self.is_below_max() {
            match connect_without_blocking(&self.capsule_socket) {
                Ok(node) => Some(node),
                Err(Errno::NOENT | Errno::CONNREFUSED) => None,
                Err(_) => {
                    self.is_paused = true;
                    return;
                }
            }
        } else {
            None
        };
        match self.listener.accept() {
            Ok((capsule, _)) => {
                if let Some(node) = node
                    && let Ok(connection) = Connection::open(capsule, node)
                {
                    self.keep(connection);
                }
            }
            // The capsule has closed the connection.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(_) => self.is_paused = true,
        }
    }

    fn is_below_max(&self) -> bool {
        self.slots.iter().flatten().count() < CONNECTIONS_MAX
    }

    fn keep(&mut self, connection: Connection) {
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(connection),
            None => self.slots.push(Some(connection)),
        }
    }
}

/// Connects to a Unix socket; returns [`Errno::AGAIN`] for a full backlog, where std would wait.
fn connect_without_blocking(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
