//! The network of a node's host, as far as capsules come by it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection with somebody outside.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Finds hosts and connects to them. Whom a capsule may reach is decided by the caller.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// All addresses of `name` in the order of the system's liking; none if it has none.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Connects to exactly this address: nothing is looked up any more.
    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Connection>>;
}
