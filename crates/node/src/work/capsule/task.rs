//! A task: its steps run as processes of a container that holds.
//!
//! The end of a step is an event, stored after its outputs and the snapshot of the workspace. A node that takes the task
//! over reads the events, restores the last snapshot, and continues with the next step.

mod agent;
mod record;
mod step;

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Run, RunError, STEPS_MAX, Snapshot, StepEnded};
use aod_domain::task::plan::{self, Next, Outcome, Position, Record};
use aod_domain::task::{OUTPUTS_BYTES_MAX, Progress};
use aod_ports::container_runtime::{Container, IoPaths};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::record::Recorder;
use self::step::Done;
use super::processes::Processes;
use crate::attempt::Attempt;
use crate::secrets::redaction::Redaction;

/// A task under way.
pub(super) struct Task {
    progress: Progress,
    /// The run with the steps that have ended.
    run: Run,
    /// The workspace after the last step; none at the beginning.
    snapshot: Option<Snapshot>,
    /// Why the last failed step failed.
    reason: Option<String>,
}

/// Maximum number of steps that run at the same time: the node keeps the end of the output of each.
const PARALLEL_MAX: usize = 16;

/// The end of a task.
#[derive(Debug)]
pub(super) struct TaskEnd {
    pub(super) output: Value,
    pub(super) error: Option<RunError>,
}

/// What a task needs while it runs.
#[derive(Clone, Copy)]
pub(super) struct Sandbox<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) container: &'a dyn Container,
    pub(super) processes: &'a Processes,
    pub(super) paths: &'a IoPaths,
    pub(super) redaction: &'a Redaction,
    /// Start of the attempt, since the boot of the host.
    pub(super) began: Duration,
}

impl Task {
    /// The task as the log has it.
    pub(super) async fn load(attempt: &Attempt, workflow: Digest) -> Result<Self, RunError> {
        record::load(attempt, workflow).await
    }

    pub(super) const fn snapshot(&self) -> Option<Snapshot> {
        self.snapshot
    }

    /// Runs the steps that have not ended. None if this attempt has lost its lease.
    ///
    /// # Errors
    /// A failure of the platform: another attempt continues.
    pub(super) async fn drive(
        &mut self,
        sandbox: Sandbox<'_>,
    ) -> Result<Option<TaskEnd>, RunError> {
        let recorder = Recorder::new(sandbox);
        loop {
            let next = self.progress.next();
            if self.is_too_long(&next) {
                return Ok(Some(self.too_long()));
            }
            let is_stored = match next {
                Next::End(outcome) => return Ok(Some(self.end(outcome))),
                Next::Record(record) => {
                    let done = vec![(record.position.clone(), without_process(&record))];
                    self.store(&recorder, done, None).await?
                }
                Next::Run(run) => {
                    let done = self.run_steps(sandbox, &run).await?;
                    recorder.ensure_disk(&done)?;
                    match recorder.snapshot().await? {
                        Ok(snapshot) => self.store(&recorder, done, Some(snapshot)).await?,
                        Err(text) => return Ok(Some(self.not_stored(&run, &text))),
                    }
                }
            };
            if !is_stored {
                return Ok(None);
            }
        }
    }

    async fn run_steps(
        &self,
        sandbox: Sandbox<'_>,
        run: &plan::Run,
    ) -> Result<Vec<(Position, Done)>, RunError> {
        let first = self.run.steps + 1;
        let permits = &Semaphore::new(PARALLEL_MAX);
        let steps = run.positions.iter().zip(first..);
        let steps = steps.map(|(position, number)| async move {
            // An error: the semaphore is closed, which nothing does.
            let _permit = permits.acquire().await;
            step::run(sandbox, &self.progress, run, position, number).await
        });
        let done = join_all(steps).await;
        let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(run.positions.iter().cloned().zip(done).collect())
    }

    /// Stores the ends of steps one after the other. False if this attempt has lost its lease.
    async fn store(
        &mut self,
        recorder: &Recorder<'_>,
        done: Vec<(Position, Done)>,
        snapshot: Option<Snapshot>,
    ) -> Result<bool, RunError> {
        let count = done.len();
        for (index, (position, done)) in done.into_iter().enumerate() {
            let done = self.within_bounds(done);
            let outputs = recorder.redacted(&done.outputs);
            let is_last = index + 1 == count;
            let error = done.error.map(|error| recorder.error(error));
            if let Some(error) = &error {
                self.reason = Some(error.message.clone());
            }
            let step = StepEnded {
                attempt: recorder.attempt(),
                number: self.run.steps + 1,
                position: position.clone(),
                ending: done.ending,
                outputs: recorder.outputs(&outputs).await?,
                snapshot: snapshot.filter(|_| is_last),
                exit: done.exit,
                error,
                started_at: done.started_at,
                ended_at: done.ended_at.unwrap_or_else(|| recorder.now()),
            };
            let Some(run) = recorder.append(&self.run, step).await else {
                return Ok(false);
            };
            self.run = run;
            self.progress.record(position, done.ending, outputs);
        }
        self.snapshot = snapshot.or(self.snapshot);
        Ok(true)
    }

    /// A step whose outputs exceed those of a task has none, and has failed.
    fn within_bounds(&self, done: Done) -> Done {
        if self.progress.has_room_for(&done.outputs) {
            return done;
        }
        let text = format!("all outputs of the task exceed {OUTPUTS_BYTES_MAX} bytes");
        Done {
            started_at: done.started_at,
            ended_at: done.ended_at,
            ..step::failed(BTreeMap::new(), done.exit, text)
        }
    }

    fn is_too_long(&self, next: &Next) -> bool {
        let more = match next {
            Next::End(_) => 0,
            Next::Record(_) => 1,
            Next::Run(run) => run.positions.len(),
        };
        self.run.steps as usize + more > STEPS_MAX as usize
    }

    fn end(&self, outcome: Outcome) -> TaskEnd {
        let failed = self.progress.failed();
        let failed: Vec<String> = failed
            .iter()
            .map(|position| format!("\"{position}\""))
            .collect();
        let (status, error) = match outcome {
            Outcome::Succeeded => ("completed", None),
            Outcome::Partial => {
                let steps = if failed.len() == 1 { "step" } else { "steps" };
                let text = format!("{} {steps} failed: {}", failed.len(), failed.join(", "));
                ("partial", Some(RunError::new(ErrorCode::TaskPartial, text)))
            }
            Outcome::Failed => {
                let reason = self.reason.as_ref().map(|reason| format!(": {reason}"));
                let text = format!(
                    "step {} failed{}",
                    failed.join(", "),
                    reason.unwrap_or_default()
                );
                ("failed", Some(RunError::new(ErrorCode::StepFailed, text)))
            }
        };
        self.with_status(status, error)
    }

    fn not_stored(&self, run: &plan::Run, reason: &str) -> TaskEnd {
        let steps: Vec<String> = run
            .positions
            .iter()
            .map(|step| format!("\"{step}\""))
            .collect();
        let text = format!(
            "the workspace after step {} cannot be stored: {reason}",
            steps.join(", ")
        );
        self.with_status("failed", Some(RunError::new(ErrorCode::StepFailed, text)))
    }

    fn too_long(&self) -> TaskEnd {
        let text =
            format!("the task would have more than {STEPS_MAX} executions of steps, the maximum");
        self.with_status("failed", Some(RunError::new(ErrorCode::TaskTooLong, text)))
    }

    fn with_status(&self, status: &str, error: Option<RunError>) -> TaskEnd {
        let output = json!({"status": status, "outputs": self.progress.results()});
        TaskEnd { output, error }
    }
}

/// The end of a step that needs no process.
fn without_process(record: &Record) -> Done {
    let outputs = record.repeated.map(|repeated| {
        BTreeMap::from([
            ("iterations".to_owned(), repeated.iterations.to_string()),
            (
                "condition_met".to_owned(),
                repeated.is_condition_met.to_string(),
            ),
        ])
    });
    Done {
        ending: record.ending,
        error: record
            .repeated
            .filter(|repeated| !repeated.is_condition_met)
            .map(|repeated| {
                let text = format!(
                    "its condition was not met after {} iterations",
                    repeated.iterations
                );
                RunError::new(ErrorCode::StepFailed, text)
            }),
        outputs: outputs.unwrap_or_default(),
        exit: None,
        started_at: None,
        ended_at: None,
    }
}
