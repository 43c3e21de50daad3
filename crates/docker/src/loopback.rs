//! The registry of this process, and whether the engine reaches it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_ports::artifact_store::ArtifactStore;
use aod_registry::Registry;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::config::RegistryUse;
use crate::engine::Engine;
use crate::image::transfer::credentials;

/// Maximum time of the question; the engine and the registry are on this host.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// After this time, the node asks an engine again that did not reach the registry.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// The registry, if this process can listen on a loopback address.
#[derive(Debug)]
pub(crate) struct Loopback {
    registry: Option<Registry>,
    known: Mutex<Option<Known>>,
}

/// The last answer to the question whether the engine reaches the registry.
#[derive(Clone, Copy, Debug)]
struct Known {
    is_reached: bool,
    since: Instant,
}

impl Known {
    fn is_current(self) -> bool {
        self.is_reached || self.since.elapsed() < ASK_AGAIN
    }
}

impl Loopback {
    pub(crate) async fn open(registry: &RegistryUse) -> Self {
        Self {
            registry: match registry {
                RegistryUse::Off => None,
                RegistryUse::Loopback(port) => open(port.as_deref()).await,
            },
            known: Mutex::default(),
        }
    }

    /// The registry, if the engine reaches it. A rootless engine, or one on another host or outside of this
    /// process's container, has another loopback address; a stranger may listen there, who must get no image.
    pub(crate) async fn registry(
        &self,
        engine: &Engine,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Option<&Registry> {
        let registry = self.registry.as_ref()?;
        let mut known = self.known.lock().await;
        let answer = match known.filter(|known| known.is_current()) {
            Some(answer) => answer,
            None => *known.insert(Known {
                is_reached: is_reached(engine, registry, artifacts).await,
                since: Instant::now(),
            }),
        };
        answer.is_reached.then_some(registry)
    }
}

/// Asks the engine for a manifest that does not exist, and looks whether this registry got the request. The answer says
/// nothing about the health of the engine, so it does not count for the breaker.
async fn is_reached(
    engine: &Engine,
    registry: &Registry,
    artifacts: &Arc<dyn ArtifactStore>,
) -> bool {
    let transfer = registry.push(artifacts);
    let name = format!("{}:{}", transfer.repository(), transfer.tag());
    let asked = engine
        .docker
        .inspect_registry_image(&name, Some(credentials(&transfer)));
    let answer = tokio::time::timeout(ANSWER_MAX, asked).await;
    let is_reached = transfer.was_used();
    if !is_reached {
        let error = match answer {
            Ok(answer) => answer.err().map(|error| error.to_string()),
            Err(elapsed) => Some(elapsed.to_string()),
        };
        warn!(
            ?error,
            "the engine does not reach this node's loopback address; images move as a whole"
        );
    }
    is_reached
}

/// The registry on its last port, which the file contains; none if this process cannot listen.
async fn open(port_file: Option<&Path>) -> Option<Registry> {
    let port = port_file.and_then(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    let registry = match Registry::serve(port).await {
        Ok(registry) => registry,
        Err(error) => {
            warn!(%error, "no registry for this host's engine; images move as a whole");
            return None;
        }
    };
    if let Some(path) = port_file
        && port != Some(registry.port())
        && let Err(error) = std::fs::write(path, registry.port().to_string())
    {
        warn!(%error, path = %path.display(), "the port of the registry was not written");
    }
    Some(registry)
}
