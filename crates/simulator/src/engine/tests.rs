//! The double with its faults switched off passes the conformance suite of the real engine.

use std::sync::atomic::AtomicU32;

use aod_testkit::container_runtime::{Double, check_all};

use super::*;
use crate::broker::Broker;
use crate::clock::HostClock;
use crate::link::Link;
use crate::store::{Objects, SimulatedStore};

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
        artifacts: Arc::new(SimulatedStore {
            objects: Objects::new(&world),
            broker: Broker::new(&world, Duration::from_secs(5)),
            link: Link::new(&world, "store", &Switch::new(), &Switch::new()),
            directory: directory.path().to_owned(),
        }),
        contexts: AtomicU32::new(0),
    };
    check_all(&bench).await;
}
