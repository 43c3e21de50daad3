//! The bench of the double, with or without injected faults.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aod_domain::capsule::Resources;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::clock::Clock;
use aod_ports::container_runtime::{ContainerRuntime, ContainerSpec, IoPaths};
use tokio::sync::watch;

use super::{Behaviour, Bench, Recipe};
use crate::engine::{self, Engine};
use crate::events::new_run;

/// A double under test.
pub struct Double<'a> {
    /// The runtime under test: `engine`, or a wrapper around it.
    pub runtime: &'a dyn ContainerRuntime,
    pub engine: &'a Engine,
    /// The clock of its host.
    pub clock: Arc<dyn Clock>,
    /// An empty directory.
    pub directory: &'a Path,
    /// A store for images.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Number of packed directories so far.
    pub contexts: AtomicU32,
}

impl Bench for Double<'_> {
    fn runtime(&self) -> &dyn ContainerRuntime {
        self.runtime
    }

    fn artifacts(&self) -> &Arc<dyn ArtifactStore> {
        &self.artifacts
    }

    fn image(&self, behaviour: Behaviour) -> String {
        let image = format!("{behaviour:?}");
        self.engine.images().add(&image, behaviour.command());
        image
    }

    fn forget(&self, image: &str) {
        self.engine.images().forget(image);
    }

    fn context(&self, recipe: Recipe) -> PathBuf {
        let number = self.contexts.fetch_add(1, Ordering::Relaxed);
        let path = self.path(&format!("context-{number}"));
        let recipe = match recipe {
            Recipe::Makes(behaviour) => engine::Recipe::Makes(behaviour.command()),
            Recipe::Fails => engine::Recipe::Fails {
                lines: (1..=30).map(|number| format!("line {number}")).collect(),
            },
        };
        let bytes = number.to_be_bytes();
        std::fs::write(&path, bytes).expect("a file");
        self.engine.images().teach(&bytes, recipe);
        path
    }

    fn tag(&self, text: &str) -> String {
        format!("aod/test:{text}")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn spec(&self, image: &str, left: Duration) -> ContainerSpec {
        let path = |name: &str| self.directory.join(name);
        let io = path("io");
        ContainerSpec {
            run: new_run(),
            attempt: 1,
            capsule: "test".into(),
            image: image.to_owned(),
            io: IoPaths {
                input_json: io.join("input.json"),
                inputs: io.join("input"),
                outputs: io.join("output"),
                handoff: io.join("handoff"),
                outgoing: io.join("handoff/outgoing"),
                incoming: io.join("handoff/incoming"),
                io,
                workspace: path("workspace"),
                channel: path("channel"),
                volumes: path("volumes"),
            },
            environment: Vec::new(),
            secrets: Vec::new(),
            devices: Vec::new(),
            resources: Resources::default(),
            holds: false,
            lease_until: watch::channel(self.clock.since_boot() + left).1,
        }
    }

    fn ask_from_outside(&self, container: &str) {
        self.engine.ask_from_outside(container);
    }
}
