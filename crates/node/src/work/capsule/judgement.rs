//! Judges how a container ended: by its capsule, or by a failure of the platform.

use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Exit, RunError};
use aod_ports::container_runtime::{Container, Verdict};
use serde_json::json;
use tracing::warn;

use super::Active;
use super::watch::{End, Watched};
use crate::work::common::with_last_lines;
use aod_services::error::chain;

/// How long the node waits for the engine's verdict on a container whose gate did not report.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a container ended.
pub(super) enum Judgement {
    /// It ended without a failure, or the node ended it.
    Fine,
    Failed(RunError),
    /// The platform failed.
    Lost(RunError),
}

impl Active<'_> {
    pub(super) async fn judge(&self, watched: &Watched, container: &dyn Container) -> Judgement {
        if watched.stop.is_some() {
            return Judgement::Fine;
        }
        match &watched.end {
            End::Exited { exit, .. } if exit.code == Some(0) => Judgement::Fine,
            End::Exited { out_of_memory, .. } if *out_of_memory => self.out_of_memory(),
            // A killed engine also ends its containers, when it restarts. The capsule's reaction does not matter.
            End::Exited {
                asked_from_outside, ..
            } if *asked_from_outside => {
                lost("the container engine or a user of the host stopped the container")
            }
            End::Exited { exit, .. } => Judgement::Failed(self.bad_exit(*exit)),
            End::Unusable(text) => {
                Judgement::Failed(RunError::new(ErrorCode::CommandUnusable, text.clone()))
            }
            End::Lost => match self.verdict(container).await {
                Some(verdict) if verdict.out_of_memory => self.out_of_memory(),
                verdict => {
                    let code = verdict.unwrap_or_default().exit_code_text();
                    let mut text =
                        format!("the container ended without a report; its exit code is {code}");
                    let complaints = container.complaints().await;
                    if !complaints.is_empty() {
                        text = format!(
                            "{text}; AOD's program in the container printed: {complaints:?}"
                        );
                    }
                    lost(&text)
                }
            },
        }
    }

    fn bad_exit(&self, exit: Exit) -> RunError {
        let text = match (exit.code, exit.signal) {
            (Some(code), _) => format!("the capsule ended with exit code {code}"),
            (None, Some(signal)) => format!("the capsule was ended by signal {signal}"),
            (None, None) => "the capsule ended in an unknown way".to_owned(),
        };
        let error = RunError::new(ErrorCode::CapsuleExit, text);
        self.with_last_lines(error.with_detail(json!(exit)))
    }

    async fn verdict(&self, container: &dyn Container) -> Option<Verdict> {
        let verdict = tokio::time::timeout(VERDICT_TIMEOUT, container.gone()).await;
        verdict
            .ok()?
            .inspect_err(|error| warn!(error = %chain(error), "the engine did not report how the container ended"))
            .ok()
    }

    fn out_of_memory(&self) -> Judgement {
        let limit = self.attempt.run.launched.event.resources.memory_bytes;
        let text = format!("the capsule needed more than its {limit} bytes of memory");
        Judgement::Failed(self.with_last_lines(RunError::new(ErrorCode::OutOfMemory, text)))
    }

    /// `error` with the last lines of the capsule's output.
    pub(super) fn with_last_lines(&self, error: RunError) -> RunError {
        with_last_lines(error, &self.records.logs.last_lines())
    }
}

fn lost(text: &str) -> Judgement {
    Judgement::Lost(RunError::new(ErrorCode::RuntimeFailed, text))
}
