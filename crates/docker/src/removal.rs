//! Removes containers in the background, a few concurrently, with a limited number of attempts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_ports::container_runtime::RuntimeError;
use bollard::query_parameters::RemoveContainerOptions;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::engine::{CallError, Engine};

/// Maximum number of concurrent removals. Starts, which are more urgent, use the same engine.
const REMOVALS_MAX: usize = 2;

/// Attempts before a pause of [`QUARANTINE`].
const TRIES_MAX: u32 = 5;

/// The pause after the first failed attempt; doubled after each further one: 3 s in all.
const PAUSE_FIRST: Duration = Duration::from_millis(200);

/// The pause before the next removal of a container that could not be removed: a process that cannot be
/// killed usually waits for a disk.
const QUARANTINE: Duration = Duration::from_secs(300);

const ACTION: &str = "removing a container";

/// The last removal failed less than [`QUARANTINE`] ago.
#[derive(Debug, Error)]
#[error("the last removal failed less than {} s ago", QUARANTINE.as_secs())]
struct Quarantined;

/// Why an attempt has failed.
#[derive(Debug, Error)]
enum TryError {
    /// The engine works on an earlier removal.
    #[error("an earlier removal of the container is still in progress")]
    StillThere,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl TryError {
    /// Whether the engine is unavailable; the container may then be removable.
    fn is_engine_away(&self) -> bool {
        matches!(self, Self::Call(CallError::Unreachable(_)))
    }
}

/// Removes containers.
#[derive(Clone, Debug)]
pub(crate) struct Remover {
    engine: Engine,
    permits: Arc<Semaphore>,
    quarantine: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Remover {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            permits: Arc::new(Semaphore::new(REMOVALS_MAX)),
            quarantine: Arc::default(),
        }
    }

    /// Kills and removes a container with its volumes; a missing container is fine. Continues to the
    /// end even if the caller does not wait.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        if self.is_quarantined(name) {
            return Err(RuntimeError::Engine {
                action: ACTION,
                source: Box::new(Quarantined),
            });
        }
        let remover = self.clone();
        let name = name.to_owned();
        let work = tokio::spawn(async move {
            let permit = remover.permits.acquire().await;
            let outcome = remover.try_often(&name).await;
            drop(permit);
            outcome
        });
        match work.await {
            Ok(outcome) => outcome,
            Err(error) => Err(RuntimeError::Engine {
                action: ACTION,
                source: Box::new(error),
            }),
        }
    }

    /// The containers that could not be removed.
    pub(crate) fn quarantined(&self) -> Vec<String> {
        let quarantine = self
            .quarantine
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        quarantine.keys().cloned().collect()
    }

    fn is_quarantined(&self, name: &str) -> bool {
        let quarantine = self
            .quarantine
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        quarantine
            .get(name)
            .is_some_and(|until| Instant::now() < *until)
    }

    async fn try_often(&self, name: &str) -> Result<(), RuntimeError> {
        let mut pause = PAUSE_FIRST;
        for attempt in 1.. {
            let error = match self.try_once(name).await {
                Ok(()) => {
                    self.quarantine
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(name);
                    return Ok(());
                }
                Err(error) => error,
            };
            if attempt == TRIES_MAX {
                if !error.is_engine_away() {
                    self.leave_alone(name, &error);
                }
                return Err(RuntimeError::Engine {
                    action: ACTION,
                    source: Box::new(error),
                });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last attempt ends the loop")
    }

    fn leave_alone(&self, name: &str, error: &TryError) {
        warn!(container = name, error = %error, "a container cannot be removed; the node tries again after a pause");
        let until = Instant::now() + QUARANTINE;
        let mut quarantine = self
            .quarantine
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        quarantine.insert(name.to_owned(), until);
    }

    async fn try_once(&self, name: &str) -> Result<(), TryError> {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            link: false,
        };
        let removal = self.engine.docker.remove_container(name, Some(options));
        match self.engine.call(self.engine.timeouts.remove, removal).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_status(404) => Ok(()),
            Err(error @ (CallError::TimedOut { .. } | CallError::Unreachable(_))) => {
                Err(error.into())
            }
            Err(error) => match self.engine.inspect(name).await? {
                None => Ok(()),
                // An earlier removal is in progress.
                Some(_) if error.is_status(409) => Err(TryError::StillThere),
                Some(_) => Err(error.into()),
            },
        }
    }
}
