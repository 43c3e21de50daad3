//! The registry of this process, and whether the engine reaches it.

use std::path::Path;
use std::sync::Arc;

use aod_ports::artifact_store::ArtifactStore;
use aod_registry::Registry;
use tokio::sync::OnceCell;
use tracing::{debug, warn};

use crate::config::RegistryUse;
use crate::engine::{CallError, Engine};
use crate::image::transfer::credentials;

/// The registry, if this process can listen on a loopback address.
#[derive(Debug)]
pub(crate) struct Loopback {
    registry: Option<Registry>,
    is_reached: OnceCell<bool>,
}

impl Loopback {
    pub(crate) async fn open(registry: &RegistryUse) -> Self {
        Self {
            registry: match registry {
                RegistryUse::Off => None,
                RegistryUse::Loopback(port) => open(port.as_deref()).await,
            },
            is_reached: OnceCell::new(),
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
        let asked = async || match is_reached(engine, registry, artifacts).await {
            Some(is_reached) => Ok(is_reached),
            None => Err(()),
        };
        let is_reached = self.is_reached.get_or_try_init(asked).await;
        is_reached
            .is_ok_and(|is_reached| *is_reached)
            .then_some(registry)
    }
}

/// Asks the engine for a manifest that does not exist, and looks whether this registry got the request; none if the
/// engine does not answer.
async fn is_reached(
    engine: &Engine,
    registry: &Registry,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Option<bool> {
    let transfer = registry.push(artifacts);
    let name = format!("{}:{}", transfer.repository(), transfer.tag());
    let asked = engine
        .docker
        .inspect_registry_image(&name, Some(credentials(&transfer)));
    let answer = engine.query(asked).await;
    let is_reached = transfer.was_used();
    match answer {
        Ok(_) | Err(CallError::Answered { .. }) if !is_reached => {
            warn!("the engine does not reach this node's loopback address; images move as a whole");
        }
        Err(error @ (CallError::TimedOut { .. } | CallError::Unreachable(_))) if !is_reached => {
            debug!(%error, "the engine did not say whether it reaches the registry");
            return None;
        }
        _ => (),
    }
    Some(is_reached)
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
