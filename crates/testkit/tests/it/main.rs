//! Test servers start, restart on the same address, and leave nothing behind.

use std::net::TcpStream;

use aod_testkit::{NatsConfig, NatsServer, S3Server};

#[test]
fn nats_server_restarts_on_its_port_and_stops_on_drop() {
    let mut server = NatsServer::start(NatsConfig {
        monitoring: true,
        ..NatsConfig::default()
    });
    let address = server.address();
    assert!(server.monitoring_url().is_some());
    server.kill();
    assert!(
        TcpStream::connect(address).is_err(),
        "a killed server does not answer"
    );
    server.restart();
    assert_eq!(server.address(), address);
    server.pause();
    server.resume();
    TcpStream::connect(address).expect("a restarted server answers");
    drop(server);
    assert!(
        TcpStream::connect(address).is_err(),
        "nothing is left behind"
    );
}

#[test]
fn s3_server_restarts_on_its_port_and_stops_on_drop() {
    let mut server = S3Server::start();
    let endpoint = server.endpoint();
    let bucket = server.bucket_directory();
    assert!(bucket.is_dir());
    server.restart();
    assert_eq!(server.endpoint(), endpoint);
    drop(server);
    assert!(!bucket.exists(), "nothing is left behind");
}
