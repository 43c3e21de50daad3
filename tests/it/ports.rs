//! Implementations of ports in crates without tests of their own: they pass the conformance suites here.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use aod_artifacts::CacheConfig;
use aod_node::HttpGateways;
use aod_ports::clock::SystemClock;
use aod_testkit::container_runtime::Double;
use aod_testkit::{clock, container_runtime, gateways};
use aod_tests::simulated::runtime;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

#[tokio::test(flavor = "multi_thread")]
async fn container_runtime_double_passes_conformance_suite_in_real_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = runtime([]);
    let url = format!("file://{}", directory.path().join("artifacts").display());
    let cache = CacheConfig {
        directory: directory.path().join("cache"),
        bytes_max: 1,
    };
    let bench = Double {
        runtime: &*engine,
        engine: &engine,
        clock: Arc::new(SystemClock),
        directory: directory.path(),
        artifacts: aod_artifacts::open(&url, &cache).expect("a local store"),
        contexts: AtomicU32::new(0),
    };
    container_runtime::check_all(&bench).await;
}

#[tokio::test]
async fn host_clock_passes_conformance_suite() {
    clock::check_all(&SystemClock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_transport_passes_conformance_suite() {
    let server = gateways::Server::default();
    // A separate runtime ends with all its connections, like a program.
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
