//! Ports of which one side has no tests of its own: they pass the suites of the others.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use aod_ports::clock::SystemClock;
use aod_testkit::container_runtime::{Double, check_all};
use aod_tests::simulated::runtime;

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
    check_all(&bench).await;
}
