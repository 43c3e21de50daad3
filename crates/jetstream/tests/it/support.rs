//! A server and a broker on it: what all tests begin with.

use std::time::Duration;

use aod_jetstream::{Broker, Config, StreamLimits};
use aod_testkit::{NatsConfig, NatsServer};

/// Lease time of the tests' queue.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn config(server: &NatsServer) -> Config {
    Config {
        lease_seconds: u32::try_from(LEASE.as_secs()).unwrap(),
        ..Config::new(server.url(), "test")
    }
}

pub(crate) async fn start() -> (NatsServer, Broker) {
    let server = NatsServer::start(NatsConfig::default());
    let broker = connect(&server).await;
    (server, broker)
}

pub(crate) async fn connect(server: &NatsServer) -> Broker {
    Broker::connect(config(server))
        .await
        .expect("a broker on a fresh server")
}

/// Small enough to be filled by a test.
pub(crate) fn small() -> StreamLimits {
    StreamLimits {
        events_bytes_max: 64 * 1024,
        ..StreamLimits::default()
    }
}
