//! Calls to the engine: each with a time limit; each failure names the action.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_ports::container_runtime::RuntimeError;
use bollard::errors::Error as DockerError;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{InspectContainerOptions, LogsOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::{Stream, StreamExt as _};
use thiserror::Error;
use tokio::time::Instant;

use crate::breaker::Breaker;
use crate::config::Timeouts;
use crate::text::beginning;

/// The library's own limit: far above the limits of this adapter.
const LIBRARY_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// Maximum part of the gate's log that an error quotes, in bytes.
const GATE_LOG_SIZE_BYTES_MAX: usize = 2_048;

/// A failed call, by its cause.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No answer in time: the engine may have executed the call.
    #[error("the engine did not respond within {} ms", limit.as_millis())]
    TimedOut { limit: Duration },
    /// The engine answered with an error; it may have executed the call.
    #[error("{message} (status {status})")]
    Answered { status: u16, message: String },
    /// The connection failed, before or during the call.
    #[error("the engine cannot be reached")]
    Unreachable(#[source] DockerError),
}

impl CallError {
    pub(crate) fn is_status(&self, expected: u16) -> bool {
        matches!(self, Self::Answered { status, .. } if *status == expected)
    }

    pub(crate) fn during(self, action: &'static str) -> RuntimeError {
        RuntimeError::Engine {
            action,
            source: Box::new(self),
        }
    }
}

impl From<DockerError> for CallError {
    fn from(error: DockerError) -> Self {
        match error {
            DockerError::DockerResponseServerError {
                status_code,
                message,
            } => Self::Answered {
                status: status_code,
                message,
            },
            DockerError::DockerStreamError { error } => Self::Answered {
                status: STATUS_IN_STREAM,
                message: error,
            },
            other => Self::Unreachable(other),
        }
    }
}

/// The status of a failure that the engine reports within a stream.
pub(crate) const STATUS_IN_STREAM: u16 = 200;

/// The shared connection to an engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) docker: Docker,
    pub(crate) timeouts: Timeouts,
    pub(crate) breaker: Arc<Breaker>,
    /// Held by who looks at an image: [`crate::image::look`].
    pub(crate) look: Arc<tokio::sync::Mutex<()>>,
}

impl Engine {
    pub(crate) fn connect(endpoint: &Path, timeouts: Timeouts) -> Result<Self, CallError> {
        let endpoint = endpoint.to_string_lossy();
        let docker =
            Docker::connect_with_unix(&endpoint, LIBRARY_TIMEOUT_SECONDS, API_DEFAULT_VERSION)?;
        Ok(Self {
            docker,
            timeouts,
            breaker: Arc::default(),
            look: Arc::default(),
        })
    }

    /// Waits for the answer to a call that changes something, at most for `limit`.
    pub(crate) async fn call<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T, CallError> {
        let answer = self.limited(limit, call).await;
        if matches!(answer, Ok(_) | Err(CallError::Answered { .. })) {
            self.breaker.answered();
        }
        answer
    }

    /// Waits for the answer to a query. A hanging engine often still answers queries, so an answer does not
    /// reset the breaker.
    pub(crate) async fn query<T>(
        &self,
        call: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T, CallError> {
        self.limited(self.timeouts.query, call).await
    }

    async fn limited<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T, CallError> {
        let Ok(answer) = tokio::time::timeout(limit, call).await else {
            self.breaker.timed_out(Instant::now());
            return Err(CallError::TimedOut { limit });
        };
        Ok(answer?)
    }

    /// The next chunk of a stream, or none at its end.
    pub(crate) async fn next<T>(
        &self,
        limit: Duration,
        stream: &mut (impl Stream<Item = Result<T, DockerError>> + Unpin),
    ) -> Result<Option<T>, CallError> {
        self.call(limit, async { stream.next().await.transpose() })
            .await
    }

    /// The gate's own log, for error messages.
    pub(crate) async fn gate_log(&self, container: &str) -> String {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            ..LogsOptions::default()
        };
        let mut pieces = self.docker.logs(container, Some(options)).boxed();
        let mut log = String::new();
        while log.len() < GATE_LOG_SIZE_BYTES_MAX {
            let next = self.next(self.timeouts.query, &mut pieces).await;
            let Ok(Some(piece)) = next else { break };
            log.push_str(&piece.to_string());
        }
        beginning(&log, GATE_LOG_SIZE_BYTES_MAX).to_owned()
    }

    /// The container of this name, if it exists.
    pub(crate) async fn inspect(
        &self,
        name: &str,
    ) -> Result<Option<ContainerInspectResponse>, CallError> {
        let call = self
            .docker
            .inspect_container(name, None::<InspectContainerOptions>);
        match self.query(call).await {
            Ok(container) => Ok(Some(container)),
            Err(error) if error.is_status(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
