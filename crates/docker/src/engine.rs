//! Calls to the engine: each with a time limit, each failure with what was tried.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_ports::container_runtime::RuntimeError;
use bollard::errors::Error as DockerError;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::InspectContainerOptions;
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::{Stream, StreamExt as _};
use thiserror::Error;
use tokio::time::Instant;

use crate::breaker::Breaker;
use crate::config::Timeouts;

/// The limit that the library has for its own: far above ours, which are the ones that count.
const LIBRARY_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// A call that has failed, sorted by what is known about it.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No answer in time: it may have happened nevertheless.
    #[error("no answer within {} ms", limit.as_millis())]
    TimedOut { limit: Duration },
    /// The engine said no, or failed; it may have happened nevertheless.
    #[error("{message} (status {status})")]
    Answered { status: u16, message: String },
    /// The connection failed, at the beginning or half-way.
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

/// What stands for a status when a failure is reported within a stream that began well.
pub(crate) const STATUS_IN_STREAM: u16 = 200;

/// The connection to an engine, shared by all that talk to it.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) docker: Docker,
    pub(crate) timeouts: Timeouts,
    pub(crate) breaker: Arc<Breaker>,
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
        })
    }

    /// Waits for the answer to a call that does something, at most for `limit`.
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

    /// Waits for the answer to a question. That it comes says nothing about calls that do something:
    /// an engine that hangs often still answers these.
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

    /// The next piece of a stream, or none at its end.
    pub(crate) async fn next<T>(
        &self,
        limit: Duration,
        stream: &mut (impl Stream<Item = Result<T, DockerError>> + Unpin),
    ) -> Result<Option<T>, CallError> {
        self.call(limit, async { stream.next().await.transpose() })
            .await
    }

    /// What the engine knows of a container; none if there is none of that name.
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
