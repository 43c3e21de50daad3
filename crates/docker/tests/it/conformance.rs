//! The conformance suite of the port, which the double also passes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_docker::{Config, RegistryUse};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::{ContainerRuntime, ContainerSpec};
use aod_testkit::container_runtime::{Behaviour, Bench, Recipe, check_all, images};

use crate::fixture::{Fixture, command, docker, lease};
use crate::images::context;

impl Bench for Fixture {
    fn runtime(&self) -> &dyn ContainerRuntime {
        &self.runtime
    }

    fn artifacts(&self) -> &Arc<dyn ArtifactStore> {
        &self.artifacts
    }

    fn image(&self, behaviour: Behaviour) -> String {
        self.image(&[&instruction(behaviour)])
    }

    fn forget(&self, image: &str) {
        docker(&["rmi", "-f", image]);
    }

    fn context(&self, recipe: Recipe) -> PathBuf {
        let rest = match recipe {
            Recipe::Makes(behaviour) => instruction(behaviour),
            Recipe::Fails => {
                "RUN for i in $(busybox seq 30); do echo line $i; done; exit 7".to_owned()
            }
        };
        context(self, &format!("FROM scratch\nADD root.tar /\n{rest}"))
    }

    fn tag(&self, text: &str) -> String {
        format!("aod/{}:{text}", self.cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path(name)
    }

    fn spec(&self, image: &str, left: Duration) -> ContainerSpec {
        ContainerSpec {
            holds: false,
            lease_until: lease(left),
            ..self.spec(image)
        }
    }

    fn ask_from_outside(&self, container: &str) {
        docker(&["kill", "--signal", "TERM", container]);
    }
}

fn instruction(behaviour: Behaviour) -> String {
    let argv = behaviour.argv();
    let argv: Vec<_> = argv.iter().map(String::as_str).collect();
    command(&argv)
}

#[tokio::test]
async fn container_runtime_conforms() {
    check_all(&Fixture::new().await).await;
}

#[tokio::test]
async fn images_conform_without_a_registry() {
    let fixture = Fixture::with(|config| Config {
        registry: RegistryUse::Off,
        ..config
    });
    images::check(&fixture.await).await;
}
