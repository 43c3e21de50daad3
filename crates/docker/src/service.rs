//! A program of AOD in a container that is not a capsule: the broker of a host without one. The
//! container uses the host's network and the user of this process; its name identifies it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aod_ports::container_runtime::{EngineInfo, RuntimeError};
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptions,
    StartContainerOptions, StopContainerOptions,
};
use futures::StreamExt as _;
use tokio::time::timeout;

use crate::config::Timeouts;
use crate::description;
use crate::engine::{CallError, Engine};

/// Maximum time for the program to end after SIGTERM, in seconds.
const STOP_SECONDS_MAX: u16 = 15;

/// Lines of output that an error quotes.
const LOG_LINES_QUOTED: &str = "20";

/// The label of such containers; its value is their directory.
const LABEL_SERVICE: &str = "dev.aod.service";

/// Describes the engine at `endpoint`.
pub async fn describe(endpoint: &Path) -> Result<EngineInfo, RuntimeError> {
    description::describe(&connect(endpoint)?).await
}

fn connect(endpoint: &Path) -> Result<Engine, RuntimeError> {
    Engine::connect(endpoint, Timeouts::default())
        .map_err(|error| error.during("connecting to the engine"))
}

/// A program in a container.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Name of the container; replaces an earlier service of this name.
    pub name: String,
    /// Name of the image with its tag; pulled if it is missing.
    pub image: String,
    pub arguments: Vec<String>,
    /// The only directory of the host in the container, at the same path, writable.
    pub directory: PathBuf,
}

/// A started service. It continues after a drop; [`Service::stop`] ends it.
#[derive(Debug)]
pub struct Service {
    engine: Engine,
    name: String,
}

impl Service {
    /// Starts the service and replaces the container of an earlier start.
    pub async fn start(endpoint: &Path, spec: ServiceSpec) -> Result<Self, RuntimeError> {
        let service = Self {
            engine: connect(endpoint)?,
            name: spec.name.clone(),
        };
        service.stop().await?;
        let engine = &service.engine;
        let created = match service.create(&spec).await {
            Err(error) if error.is_status(404) => {
                let pulled = pull(engine, &spec.image).await;
                pulled.map_err(|error| error.during("pulling the image of a service"))?;
                service.create(&spec).await
            }
            created => created,
        };
        created.map_err(|error| error.during("creating a service"))?;
        let start = engine
            .docker
            .start_container(&service.name, None::<StartContainerOptions>);
        if let Err(error) = engine.call(engine.timeouts.start, start).await {
            // The error of the start matters more.
            let _ = service.stop().await;
            return Err(error.during("starting a service"));
        }
        Ok(service)
    }

    /// The service of this name, which an earlier process may have started.
    pub fn find(endpoint: &Path, name: &str) -> Result<Self, RuntimeError> {
        Ok(Self {
            engine: connect(endpoint)?,
            name: name.to_owned(),
        })
    }

    async fn create(&self, spec: &ServiceSpec) -> Result<(), CallError> {
        let options = CreateContainerOptions {
            name: Some(self.name.clone()),
            ..Default::default()
        };
        let create = self
            .engine
            .docker
            .create_container(Some(options), body(spec));
        self.engine
            .call(self.engine.timeouts.create, create)
            .await
            .map(drop)
    }

    /// Whether the program runs.
    pub async fn is_running(&self) -> Result<bool, RuntimeError> {
        let found = self
            .engine
            .inspect(&self.name)
            .await
            .map_err(|error| error.during("inspecting a service"))?;
        Ok(found
            .and_then(|container| container.state?.running)
            .unwrap_or(false))
    }

    /// The last lines of output, for error messages.
    pub async fn last_words(&self) -> String {
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail(LOG_LINES_QUOTED)
            .build();
        let lines = self.engine.docker.logs(&self.name, Some(options));
        let lines = lines
            .filter_map(async |line| line.ok())
            .map(|line| line.to_string())
            .collect::<Vec<_>>();
        timeout(self.engine.timeouts.query, lines)
            .await
            .unwrap_or_default()
            .concat()
    }

    /// Ends the program with SIGTERM, after a time with SIGKILL, and removes the container. A missing
    /// container is fine; a container that is not a service of AOD stays and is an error.
    pub async fn stop(&self) -> Result<(), RuntimeError> {
        let action = "stopping a service";
        let found = self
            .engine
            .inspect(&self.name)
            .await
            .map_err(|error| error.during(action))?;
        let Some(found) = found else { return Ok(()) };
        let labels = found
            .config
            .and_then(|config| config.labels)
            .unwrap_or_default();
        if !labels.contains_key(LABEL_SERVICE) {
            let message = format!("{} is a container of another program; rename it", self.name);
            return Err(CallError::Answered {
                status: 409,
                message,
            }
            .during(action));
        }
        let options = StopContainerOptions {
            t: Some(STOP_SECONDS_MAX.into()),
            signal: None,
        };
        let limit = Duration::from_secs(STOP_SECONDS_MAX.into()) + self.engine.timeouts.query;
        // The forced removal also covers a failed stop.
        let _ = self
            .engine
            .call(
                limit,
                self.engine.docker.stop_container(&self.name, Some(options)),
            )
            .await;
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            link: false,
        };
        let removal = self
            .engine
            .docker
            .remove_container(&self.name, Some(options));
        match self.engine.call(self.engine.timeouts.remove, removal).await {
            Err(error) if !error.is_status(404) => Err(error.during(action)),
            _ => Ok(()),
        }
    }
}

/// Pulls an image from its registry.
async fn pull(engine: &Engine, image: &str) -> Result<(), CallError> {
    let options = CreateImageOptionsBuilder::default()
        .from_image(image)
        .build();
    let mut progress = engine.docker.create_image(Some(options), None, None);
    while engine
        .next(engine.timeouts.stream, &mut progress)
        .await?
        .is_some()
    {}
    Ok(())
}

fn body(spec: &ServiceSpec) -> ContainerCreateBody {
    let directory = spec.directory.to_string_lossy().into_owned();
    let user = format!(
        "{}:{}",
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        cmd: Some(spec.arguments.clone()),
        user: Some(user),
        labels: Some([(LABEL_SERVICE.to_owned(), directory.clone())].into()),
        host_config: Some(HostConfig {
            // The program listens only on this host's loopback.
            network_mode: Some("host".into()),
            mounts: Some(vec![Mount {
                target: Some(directory.clone()),
                source: Some(directory),
                typ: Some(MountType::BIND),
                ..Mount::default()
            }]),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(vec!["no-new-privileges:true".into()]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}
