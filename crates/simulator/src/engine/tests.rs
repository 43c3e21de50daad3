//! The double with its faults switched off passes the conformance suite of the real engine.

use std::sync::atomic::AtomicU32;

use aod_testkit::container_runtime::{Double, check_all};

use super::*;
use crate::clock::HostClock;

#[tokio::test(start_paused = true)]
async fn container_runtime_double_passes_conformance_suite() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::new(0, false);
    world.calm();
    let clock: Arc<dyn Clock> = Arc::new(HostClock::new(&world));
    let engine = Engine::new(&world, "engine", Arc::clone(&clock), &Alive::default());
    let bench = Double {
        runtime: &engine,
        engine: &engine.double,
        clock,
        directory: directory.path(),
        contexts: AtomicU32::new(0),
    };
    check_all(&bench).await;
}
