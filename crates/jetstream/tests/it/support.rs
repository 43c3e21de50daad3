//! A server and a broker connection for all tests.

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

/// Limits that a test can fill.
pub(crate) fn small() -> StreamLimits {
    StreamLimits {
        events_bytes_max: 64 * 1024,
        ..StreamLimits::default()
    }
}
