//! The address of the Docker engine, and its properties.

use std::path::PathBuf;

use aod_docker::service;
use aod_ports::container_runtime::{EngineInfo, RuntimeError};

use crate::failure::Failure;

/// The path of the socket in `unix:///path`.
pub(crate) fn socket(url: &str) -> Result<PathBuf, Failure> {
    match url.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(
            Failure::usage(format!("--docker {url:?} is not a Docker address")).with_hint(
                "expected a Unix socket on this host, as in unix:///var/run/docker.sock",
            ),
        ),
    }
}

/// Queries the properties of the engine.
pub(crate) async fn describe(url: &str) -> Result<EngineInfo, Failure> {
    let socket = socket(url)?;
    service::describe(&socket)
        .await
        .map_err(|error| unusable(url, &error))
}

/// The failure for an engine at `url` that cannot be used.
pub(crate) fn unusable(url: &str, error: &RuntimeError) -> Failure {
    let failure = Failure::environment(format!("Docker at {url} cannot be used")).because(error);
    failure.with_hint(
        "start Docker (`systemctl start docker`), and check your permission (`docker version`; group docker); \
         `aod doctor` shows details",
    )
}
