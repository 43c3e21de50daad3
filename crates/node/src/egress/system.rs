//! The host's own network.

use std::io;
use std::net::{IpAddr, SocketAddr};

use aod_ports::network::{Connection, Network};
use async_trait::async_trait;
use tokio::net::{TcpStream, lookup_host};

/// The system's name resolution, and plain TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNetwork;

#[async_trait]
impl Network for SystemNetwork {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(address).await?;
        // A public address of the host itself would reach the services of the host.
        if stream.local_addr()?.ip() == address.ip() {
            let text = "this is an address of the node's own host";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn own_host_is_unreachable_by_any_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let error = SystemNetwork.connect(address).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
