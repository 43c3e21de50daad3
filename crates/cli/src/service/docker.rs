//! Where Docker is, and what it says of itself.

use std::path::PathBuf;

use aod_docker::service;
use aod_ports::container_runtime::{EngineInfo, RuntimeError};

use crate::failure::Failure;

/// The socket that `unix:///path` names.
pub(crate) fn socket(url: &str) -> Result<PathBuf, Failure> {
    match url.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(
            Failure::usage(format!("--docker {url:?} is no address of a Docker engine")).with_hint(
                "expected a Unix socket of this host, as in unix:///var/run/docker.sock",
            ),
        ),
    }
}

/// Asks the engine what it is.
pub(crate) async fn describe(url: &str) -> Result<EngineInfo, Failure> {
    let socket = socket(url)?;
    service::describe(&socket)
        .await
        .map_err(|error| unusable(url, &error))
}

/// The engine at `url` cannot be used.
pub(crate) fn unusable(url: &str, error: &RuntimeError) -> Failure {
    let failure = Failure::environment(format!("Docker at {url} cannot be used")).because(error);
    failure.with_hint(
        "start it (`systemctl start docker`), and see that you may use it (`docker version`; group docker); \
         `aod doctor` looks closer",
    )
}
