//! The double passes the conformance suite of the real stores.

use aod_testkit::artifacts;

use super::*;
use crate::link::Switch;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn artifact_store_double_passes_conformance_suite() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::new(0, false);
    world.calm();
    let store = SimulatedStore {
        objects: Objects::new(&world),
        broker: Broker::new(&world, Duration::from_secs(5)),
        link: Link::new(&world, "store", &Switch::new(), &Switch::new()),
        directory: directory.path().to_owned(),
    };
    artifacts::check_all(&store).await;
}
