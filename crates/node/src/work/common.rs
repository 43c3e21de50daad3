//! Common to all kinds of work: limits of time, errors of the engine, and the storing of logs.

use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{LogsSummary, RunError};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::RuntimeError;
use serde_json::json;
use tracing::warn;

use crate::record::logs::Logs;
use aod_services::error::chain;

/// Characters of a log line in the message of a failure; the logs have the whole line.
const LINE_LENGTH_MAX: usize = 400;

/// The result of `work`; none if it takes longer than `limit`.
pub(super) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// The error of the run for a failure of the runtime.
pub(super) fn runtime_error(error: &RuntimeError) -> RunError {
    let code = match error {
        RuntimeError::ImageMissing { .. } => ErrorCode::ImageUnavailable,
        RuntimeError::BuildFailed { .. } => ErrorCode::BuildFailed,
        RuntimeError::ImageRefused { .. } => ErrorCode::ImageUserRefused,
        RuntimeError::Engine { .. } => ErrorCode::RuntimeFailed,
        RuntimeError::Store(_) => ErrorCode::StoreUnavailable,
    };
    RunError::new(code, chain(error))
}

/// `error` with the last lines of the output in its detail, shortened for an event.
pub(super) fn with_last_lines(mut error: RunError, lines: &[String]) -> RunError {
    let shortened = lines
        .iter()
        .map(|line| line.chars().take(LINE_LENGTH_MAX).collect::<String>());
    let lines: Vec<_> = shortened.collect();
    let mut detail = error.detail.take().unwrap_or_else(|| json!({}));
    if let Some(fields) = detail.as_object_mut() {
        fields.insert("last_lines".into(), json!(lines));
    }
    error.detail = Some(detail);
    error
}

/// Stores the logs as an artifact, within `limit`. A failure does not keep the run from ending.
pub(super) async fn store_logs(
    mut logs: Logs,
    artifacts: &dyn ArtifactStore,
    limit: Option<Duration>,
) -> Option<LogsSummary> {
    if let Err(error) = logs.end() {
        warn!(%error, "the node cannot write the logs");
        return None;
    }
    let Some(stored) = within(limit, logs.store(artifacts)).await else {
        warn!("the logs were not stored in time");
        return None;
    };
    stored.unwrap_or_else(|error| {
        warn!(error = %chain(&error), "the node cannot store the logs");
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_beyond_its_limit_is_dropped() {
        const LIMIT: Duration = Duration::from_secs(10);
        let work = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(within(Some(LIMIT), work()).await, None);
        assert_eq!(within(Some(10 * LIMIT), work()).await, Some(()));
        assert_eq!(within(None, work()).await, Some(()));
    }
}
