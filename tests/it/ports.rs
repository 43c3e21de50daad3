//! Ports of which one side has no tests of its own: they pass the suites of the others.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use aod_node::HttpGateways;
use aod_ports::clock::SystemClock;
use aod_testkit::container_runtime::Double;
use aod_testkit::{clock, container_runtime, gateways};
use aod_tests::simulated::runtime;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

#[tokio::test(flavor = "multi_thread")]
async fn the_double_of_the_container_runtime_conforms_in_real_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = runtime([]);
    let bench = Double {
        runtime: &*engine,
        engine: &engine,
        clock: Arc::new(SystemClock),
        directory: directory.path(),
        contexts: AtomicU32::new(0),
    };
    container_runtime::check_all(&bench).await;
}

#[tokio::test]
async fn the_clock_of_the_host_conforms() {
    clock::check_all(&SystemClock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_the_gateways_conforms_over_real_connections() {
    let server = gateways::Server::default();
    // A runtime of its own ends with all connections, as a program does.
    let program = Runtime::new().expect("a runtime");
    let listening = program.spawn(TcpListener::bind("127.0.0.1:0")).await;
    let listener = listening.expect("a task").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = server.router();
    program.spawn(async move { axum::serve(listener, router).await });
    let transport = HttpGateways::new().expect("a client");
    let stop = || program.shutdown_background();
    gateways::check_all(&transport, &server, &url, stop).await;
}
