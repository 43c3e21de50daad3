//! From a specification to a container whose command runs: create, start, greet the gate, send go.
//!
//! The engine may execute a call that it reports as failed, or answer too late. So run and attempt
//! determine the container's name, every launch has its own mark, and after each failure the launcher
//! inspects the container by name: it uses a container with its mark, and removes older containers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aod_gate::protocol::{Go, ToGate};
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::container_runtime::{ContainerSpec, RuntimeError};
use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::{CreateContainerOptions, StartContainerOptions};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::config::Config;
use crate::container::DockerContainer;
use crate::container::watch::Watch;
use crate::creation::{self, refused};
use crate::description::ensure_answering;
use crate::engine::{CallError, Engine};
use crate::gate::{GateError, GateListener, Greeted};
use crate::image::Images;
use crate::names::{LABEL_LAUNCH, container_name, look_name};
use crate::removal::Remover;
use crate::volumes;

/// Attempts to create a container: one, one after the removal of an older container, and one for a lost
/// answer.
const CREATE_TRIES_MAX: u32 = 3;

/// Why a launch failed.
#[derive(Debug, Error)]
enum LaunchError {
    #[error(
        "a container with this name exists, but does not belong to this node; remove or rename the container"
    )]
    Foreign,
    #[error("after {CREATE_TRIES_MAX} attempts, a container of this name still exists")]
    Contended,
    #[error("the gate did not connect within {seconds} s after the start; its log: {log:?}")]
    Silent { seconds: u64, log: String },
    #[error(
        "the container ended with exit code {exit_code} before its gate connected; its log: {log:?}"
    )]
    Ended { exit_code: String, log: String },
    #[error("the gate failed; its log: {log:?}")]
    Gate { log: String, source: GateError },
}

/// Launches containers, a bounded number concurrently.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) config: Arc<Config>,
    pub(crate) engine: Engine,
    pub(crate) images: Arc<Images>,
    pub(crate) remover: Remover,
    pub(crate) permits: Arc<Semaphore>,
}

impl Launcher {
    /// Creates and starts a container. After a failure, nothing of it is left.
    pub(crate) async fn launch(self, spec: ContainerSpec) -> Result<DockerContainer, RuntimeError> {
        ensure_answering(&self.engine)?;
        let image = self.images.facts(&self.engine, &spec.image).await?;
        // Held until the engine confirms the removal of a failed container: a hanging engine gets no more
        // work.
        let _permit = self.permits.acquire().await;
        let mark = Uuid::now_v7().to_string();
        let volumes = volumes::paths(&image)?;
        let creation = creation::plan(&self.config, &spec, &image, &volumes, &mark)?;
        let look = look_name(self.config.owner());
        let of_image = (spec.image.as_str(), &*image);
        volumes::make(&self.engine, &look, of_image, &volumes, &spec.io.volumes).await?;
        let listener =
            GateListener::bind(&spec.io.channel).map_err(|error| RuntimeError::Engine {
                action: "opening the gate's socket",
                source: Box::new(error),
            })?;
        let name = container_name(self.config.owner(), spec.run, spec.attempt);
        let launched = Box::pin(async {
            let id = self
                .create(&name, &mark, creation.body, &spec.image)
                .await?;
            let lease_until = spec.lease_until.clone();
            self.start(name.clone(), id, listener, creation.go, lease_until)
                .await
        });
        let outcome = launched.await;
        if outcome.is_err() {
            self.clean_up(&name, &mark).await;
        }
        outcome
    }

    /// Removes only the container of this launch. [`Remover`] logs a failure, and the reconciler
    /// tries again.
    async fn clean_up(&self, name: &str, mark: &str) {
        if let Ok(Some(found)) = self.engine.inspect(name).await
            && label(&found, LABEL_LAUNCH) == Some(mark)
        {
            let _ = self.remover.remove(name).await;
        }
    }

    /// Returns the engine's id of the container.
    async fn create(
        &self,
        name: &str,
        mark: &str,
        body: ContainerCreateBody,
        image: &str,
    ) -> Result<String, RuntimeError> {
        let action = "creating a container";
        let fail = |error| RuntimeError::Engine {
            action,
            source: Box::new(error),
        };
        for _ in 0..CREATE_TRIES_MAX {
            let options = CreateContainerOptions {
                name: Some(name.to_owned()),
                ..Default::default()
            };
            let call = self
                .engine
                .docker
                .create_container(Some(options), body.clone());
            let error = match self.engine.call(self.engine.timeouts.create, call).await {
                Ok(created) => return Ok(created.id),
                Err(error) if error.is_status(404) => {
                    self.images.forget(image);
                    return Err(RuntimeError::ImageMissing {
                        image: image.to_owned(),
                    });
                }
                Err(error) => error,
            };
            let is_final = matches!(error, CallError::Answered { status, .. } if status != 409);
            match self
                .engine
                .inspect(name)
                .await
                .map_err(|error| error.during(action))?
            {
                Some(found) if label(&found, LABEL_LAUNCH) == Some(mark) => {
                    return Ok(found.id.unwrap_or_else(|| name.to_owned()));
                }
                _ if is_final => return Err(error.during(action)),
                Some(found)
                    if labels(&found).is_some_and(|found| self.config.owner().owns(found)) =>
                {
                    self.remover.remove(name).await?;
                }
                Some(_) => return Err(fail(LaunchError::Foreign)),
                None => (),
            }
        }
        Err(fail(LaunchError::Contended))
    }

    async fn start(
        &self,
        name: String,
        id: String,
        listener: GateListener,
        mut go: Go,
        lease_until: watch::Receiver<Duration>,
    ) -> Result<DockerContainer, RuntimeError> {
        let was_killed = Arc::new(AtomicBool::new(false));
        let watch = Watch::begin(self.engine.clone(), id.clone(), Arc::clone(&was_killed));
        let (greeted, uid) = self.await_gate(&id, listener, &watch).await?;
        watch.heard();
        creation::ensure_user(self.config.capsule_user, uid)?;
        let left = lease_until
            .borrow()
            .saturating_sub(SystemClock.since_boot());
        go.lease_milliseconds = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let (gate, events) = match greeted.begin(ToGate::Go(go)).await {
            Ok(begun) => begun,
            Err(GateError::Encode(error)) => return Err(refused(&error.to_string())),
            Err(error) => return Err(self.gate_failed(&id, error).await),
        };
        let engine = self.engine.clone();
        Ok(DockerContainer {
            engine,
            name,
            id,
            gate,
            events: Some(events),
            watch,
            was_killed,
        })
    }

    /// Starts the container and waits for its gate, which usually connects before the engine reports
    /// the start.
    async fn await_gate(
        &self,
        name: &str,
        listener: GateListener,
        watch: &Watch,
    ) -> Result<(Greeted, u32), RuntimeError> {
        // A separate task: an engine may undo a start if the connection closes.
        let mut starting = tokio::spawn(start_call(self.engine.clone(), name.to_owned()));
        let mut greeting = std::pin::pin!(listener.accept());
        let mut has_started = false;
        let limit = self.engine.timeouts.gate;
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.engine.timeouts.start + limit));
        let error = loop {
            tokio::select! {
                biased;
                greeted = &mut greeting => match greeted {
                    Ok(greeted) => return Ok(greeted),
                    Err(error) => return Err(self.gate_failed(name, error).await),
                },
                started = &mut starting, if !has_started => {
                    has_started = true;
                    if let Ok(Err(error)) = started {
                        self.ensure_started(name, error).await?;
                    }
                    deadline.as_mut().reset(tokio::time::Instant::now() + limit);
                }
                verdict = watch.gone(), if has_started => break LaunchError::Ended {
                    exit_code: verdict?.exit_code_text(),
                    log: self.engine.gate_log(name).await,
                },
                () = &mut deadline => break LaunchError::Silent {
                    seconds: limit.as_secs(),
                    log: self.engine.gate_log(name).await,
                },
            }
        };
        Err(RuntimeError::Engine {
            action: "starting a container",
            source: Box::new(error),
        })
    }

    /// Handles an error or a missing answer of the start: accepts a container that runs or has run.
    async fn ensure_started(&self, name: &str, error: CallError) -> Result<(), RuntimeError> {
        let action = "starting a container";
        let found = self
            .engine
            .inspect(name)
            .await
            .map_err(|error| error.during(action))?;
        let state = found.and_then(|found| found.state).unwrap_or_default();
        // Source: a container that never ran has Go's zero time here.
        let has_run = state.started_at.is_some_and(|at| !at.starts_with("0001-"));
        if state.running == Some(true) || has_run && state.exit_code == Some(0) {
            return Ok(());
        }
        Err(sort_start_error(error).unwrap_or_else(|error| error.during(action)))
    }

    async fn gate_failed(&self, name: &str, error: GateError) -> RuntimeError {
        let log = self.engine.gate_log(name).await;
        let source = Box::new(LaunchError::Gate { log, source: error });
        RuntimeError::Engine {
            action: "the connection with a gate",
            source,
        }
    }
}

async fn start_call(engine: Engine, name: String) -> Result<(), CallError> {
    let call = engine
        .docker
        .start_container(&name, None::<StartContainerOptions>);
    engine.call(engine.timeouts.start, call).await
}

fn labels(container: &ContainerInspectResponse) -> Option<&HashMap<String, String>> {
    container.config.as_ref()?.labels.as_ref()
}

fn label<'a>(container: &'a ContainerInspectResponse, name: &str) -> Option<&'a str> {
    labels(container)?.get(name).map(String::as_str)
}

/// Recognizes errors of the image, which its author must fix.
fn sort_start_error(error: CallError) -> Result<RuntimeError, CallError> {
    // Sources: moby `daemon/oci_linux.go` and runc `libcontainer/user` for users; runc `rootfs_linux.go`
    // for paths where the image has a file or a link at a mount point.
    const REFUSALS: [&str; 4] = [
        "unable to find user",
        "unable to find group",
        "no matching entries in passwd file",
        "not a directory",
    ];
    match error {
        CallError::Answered { message, .. }
            if REFUSALS.iter().any(|refusal| message.contains(refusal)) =>
        {
            Ok(refused(&message))
        }
        other => Err(other),
    }
}
