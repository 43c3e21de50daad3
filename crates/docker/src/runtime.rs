//! The adapter.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::capsule::Image;
use aod_domain::digest::Digest;
use aod_domain::node::ObservedContainer;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::{
    Container, ContainerRuntime, ContainerSpec, EngineInfo, ImageBuild, ImagePush, NamedImage,
    ObservedImage, RuntimeError,
};
use async_trait::async_trait;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::ListContainersOptions;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc};

use crate::coalesce::Coalesce;
use crate::config::Config;
use crate::creation::HOSTS;
use crate::description;
use crate::engine::Engine;
use crate::exchange;
use crate::image::build::Build;
use crate::image::saved::Compressed;
use crate::image::transfer::Mover;
use crate::image::{self, Images};
use crate::launch::Launcher;
use crate::loopback::Loopback;
use crate::names::{self, LABEL_CLUSTER, Owner};
use crate::removal::Remover;

pub use crate::description::UnsupportedEngine;

/// File name of the gate in its directory.
const GATE: &str = "aod-gate";

/// A container that is not of this node; the adapter never touches it.
#[derive(Debug, Error)]
#[error("{name} is not a container of this node")]
struct NotOurs {
    name: String,
}

/// The Docker engine of this host, with the images of one cluster and the containers of one node.
#[derive(Debug)]
pub struct DockerRuntime {
    config: Arc<Config>,
    engine: Engine,
    launcher: Launcher,
    remover: Remover,
    builds: Coalesce<String>,
    fetches: Coalesce<()>,
    loopback: Loopback,
    compressed: Compressed,
}

impl DockerRuntime {
    /// Connects to the engine and checks that its kind is supported.
    ///
    /// # Errors
    /// [`RuntimeError::Engine`]; its source is [`UnsupportedEngine`] if the kind is not supported.
    pub async fn connect(config: Config) -> Result<Self, RuntimeError> {
        let local = |action| {
            move |error: io::Error| RuntimeError::Engine {
                action,
                source: Box::new(error),
            }
        };
        std::fs::metadata(config.gate_directory.join(GATE))
            .map_err(local("checking the gate's program"))?;
        write_hosts(&config.hosts_file).map_err(local("writing the capsules' hosts file"))?;
        let engine = Engine::connect(&config.endpoint, config.timeouts)
            .map_err(|error| error.during("connecting to the engine"))?;
        description::describe(&engine).await?;
        let config = Arc::new(config);
        let remover = Remover::new(engine.clone());
        let launcher = Launcher {
            config: Arc::clone(&config),
            engine: engine.clone(),
            images: Arc::new(Images::default()),
            remover: remover.clone(),
            permits: Arc::new(Semaphore::new(config.launch_concurrency.max(1))),
        };
        let loopback = Loopback::open(&config.registry).await;
        Ok(Self {
            config,
            engine,
            launcher,
            remover,
            builds: Coalesce::default(),
            fetches: Coalesce::default(),
            loopback,
            compressed: Compressed::default(),
        })
    }

    const fn mover<'a>(&'a self, artifacts: &'a Arc<dyn ArtifactStore>) -> Mover<'a> {
        Mover {
            engine: &self.engine,
            loopback: &self.loopback,
            compressed: &self.compressed,
            artifacts,
        }
    }

    /// The id of the image with this tag, if it exists.
    pub async fn image_of_tag(&self, tag: &str) -> Result<Option<String>, RuntimeError> {
        let inspected = image::inspect(&self.engine, tag).await;
        inspected
            .map(|found| found.and_then(|image| image.id))
            .map_err(|error| error.during("inspecting a tag"))
    }
}

/// Writes the `/etc/hosts` of every container, by rename, because running containers have the old file
/// open.
fn write_hosts(path: &Path) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|bytes| bytes == HOSTS.as_bytes()) {
        return Ok(());
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&new, HOSTS)?;
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    std::fs::rename(&new, path)
}

#[async_trait]
impl ContainerRuntime for DockerRuntime {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        let mut info = description::describe(&self.engine).await?;
        let stuck = self.remover.quarantined();
        if !stuck.is_empty() {
            info.warnings.push(format!(
                "containers that cannot be removed: {}",
                stuck.join(", ")
            ));
        }
        Ok(info)
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        image::has(&self.engine, image)
            .await
            .map_err(|error| error.during("inspecting an image"))
    }

    async fn named_image(&self, reference: &str) -> Result<Option<NamedImage>, RuntimeError> {
        image::named(&self.engine, reference)
            .await
            .map_err(|error| error.during("inspecting an image"))
    }

    async fn pull_image(
        &self,
        reference: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<(), RuntimeError> {
        let registries = self.config.registries.as_deref();
        exchange::pull_for_node(&self.engine, registries, reference, &progress).await
    }

    async fn build_image(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError> {
        // The same directory on other base images is another build.
        let dockerfile = build.dockerfile.as_deref().unwrap_or_default();
        let key = format!("{} {}", build.tag, Digest::of(dockerfile));
        let build = Build {
            labels: HashMap::from([(LABEL_CLUSTER.to_owned(), self.config.cluster.clone())]),
            image: build,
            limits: self.config.build,
            look: names::look_name(self.config.owner()),
            registries: self.config.registries.as_deref(),
        };
        let work = Box::pin(image::build::build(&self.engine, build));
        self.builds.run(&key, work).await
    }

    async fn store_image(&self, push: ImagePush<'_>) -> Result<Image, RuntimeError> {
        self.mover(push.artifacts)
            .store(push.image, push.progress)
            .await
    }

    async fn fetch_image(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        let fetched = AtomicU64::new(0);
        let work = async {
            let bytes = self.mover(artifacts).fetch(image).await?;
            fetched.store(bytes, Ordering::Relaxed);
            Ok(())
        };
        // An older registration may have the same image as an archive.
        let key = format!("{} {:?}", image.config_digest, image.artifacts().first());
        self.fetches.run(&key, Box::pin(work)).await?;
        Ok(fetched.into_inner())
    }

    async fn fetch_base(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        self.mover(artifacts).fetch_base(image).await
    }

    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError> {
        image::garbage::list(&self.engine, &self.config.cluster)
            .await
            .map_err(|error| error.during("listing images"))
    }

    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError> {
        let removed = image::garbage::remove(&self.engine, &self.config.cluster, image)
            .await
            .map_err(|error| error.during("removing an image"))?;
        if removed {
            self.launcher.images.forget(image);
        }
        Ok(removed)
    }

    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError> {
        // A separate task: a dropped call leaves no incomplete container.
        let launch = tokio::spawn(self.launcher.clone().launch(spec));
        match launch.await {
            Ok(launched) => Ok(Box::new(launched?)),
            Err(error) => Err(RuntimeError::Engine {
                action: "starting a container",
                source: Box::new(error),
            }),
        }
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        let owner = self.config.owner();
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), owner.filters())])),
            ..ListContainersOptions::default()
        };
        let call = self.engine.docker.list_containers(Some(options));
        let containers = self
            .engine
            .query(call)
            .await
            .map_err(|error| error.during("listing containers"))?;
        Ok(containers
            .iter()
            .filter_map(|found| observed(owner, found))
            .collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        if !name.starts_with(&names::prefix(self.config.owner())) {
            let source = Box::new(NotOurs {
                name: name.to_owned(),
            });
            return Err(RuntimeError::Engine {
                action: "removing a container",
                source,
            });
        }
        self.remover.remove(name).await
    }
}

fn observed(owner: Owner<'_>, container: &ContainerSummary) -> Option<ObservedContainer> {
    let name = container.names.as_ref()?.first()?.trim_start_matches('/');
    let is_running = matches!(
        container.state,
        Some(
            ContainerSummaryStateEnum::RUNNING
                | ContainerSummaryStateEnum::PAUSED
                | ContainerSummaryStateEnum::RESTARTING
        )
    );
    names::observed(owner, name, container.labels.as_ref()?, is_running)
}
