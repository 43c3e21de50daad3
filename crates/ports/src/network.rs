//! The network of a node's host, as used for capsules.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to an external host.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Resolves hosts and connects to them. The caller decides which hosts a capsule may reach.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// All addresses of `name` in the system's order of preference; possibly none.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Connects to exactly this address, without a lookup.
    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Connection>>;
}
