//! Runs one execution of a step, with its retries and its time limit.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::digest::Hasher;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Exit, RunError, pause_after};
use aod_domain::task::plan::{self, Ending, Position};
use aod_domain::task::{Command, Kind, Outputs, Progress, Step};
use aod_ports::container_runtime::{ProcessSpec, RuntimeError};
use aod_services::error::chain;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tracing::warn;

use super::Sandbox;
use crate::work::capsule::processes::{End, Ended};

/// Bytes that are kept of each output of a command. Source: the workflow contract.
const COMMAND_OUTPUT_BYTES: usize = 100_000;

/// Tries of one step have numbers of processes of their own.
const TRIES_MAX: u32 = 1_000;

/// An execution that has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ending: Ending,
    pub(super) outputs: Outputs,
    pub(super) exit: Option<Exit>,
    pub(super) error: Option<RunError>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
}

/// Runs the execution of a step; `number` is the number of its end.
///
/// # Errors
/// Failures of the platform.
pub(super) async fn run(
    sandbox: Sandbox<'_>,
    progress: &Progress,
    run: &plan::Run,
    position: &Position,
    number: u32,
) -> Result<Done, RunError> {
    let Some(step) = progress.step(&position.step) else {
        let text = format!("the workflow has no step {position}");
        return Err(RunError::new(ErrorCode::Internal, text));
    };
    let clock = sandbox.attempt.shared.runs.clock();
    let started_at = clock.now();
    let retries = step.limits.retries.unwrap_or(0).min(TRIES_MAX - 1);
    let mut failed = 0;
    let mut done = loop {
        let execution = Execution {
            sandbox,
            progress,
            run,
            step,
            name: position.to_string().into(),
            process: number * TRIES_MAX + failed,
        };
        let done = execution.try_once().await?;
        if done.ending == Ending::Succeeded || failed == retries {
            break done;
        }
        tokio::time::sleep(pause(sandbox, position, failed)).await;
        failed += 1;
    };
    done.started_at = Some(started_at);
    done.ended_at = Some(clock.now());
    Ok(done)
}

fn pause(sandbox: Sandbox<'_>, position: &Position, failed: u32) -> Duration {
    let mut hasher = Hasher::new();
    hasher.field(sandbox.attempt.run.id.token().as_bytes());
    hasher.field(position.to_string().as_bytes());
    hasher.field(&failed.to_be_bytes());
    pause_after(failed, hasher)
}

/// A try of an execution.
pub(super) struct Execution<'a> {
    pub(super) sandbox: Sandbox<'a>,
    pub(super) progress: &'a Progress,
    pub(super) run: &'a plan::Run,
    step: &'a Step,
    name: Arc<str>,
    /// The number of its process.
    pub(super) process: u32,
}

impl Execution<'_> {
    async fn try_once(&self) -> Result<Done, RunError> {
        match &self.step.kind {
            Kind::Command(command) => self.command(command).await,
            Kind::Agent(agent) => self.agent(agent).await,
            Kind::Capsule { .. } | Kind::Loop(_) | Kind::Parallel(_) | Kind::Conditional { .. } => {
                let text = format!("step \"{}\" has no process", self.name);
                Err(RunError::new(ErrorCode::Internal, text))
            }
        }
    }

    async fn command(&self, command: &Command) -> Result<Done, RunError> {
        let argv = match self.progress.argv(command, self.run) {
            Ok(argv) => argv,
            Err(unfilled) => return Ok(failed(Outputs::new(), None, unfilled.to_string())),
        };
        let ended = self.process(argv, Vec::new(), None, COMMAND_OUTPUT_BYTES);
        let (ended, is_late) = match ended.await? {
            Ok(ended) => ended,
            Err(text) => return Ok(failed(Outputs::new(), None, text)),
        };
        let mut outputs = Outputs::new();
        outputs.insert("stdout".to_owned(), ended.stdout.into_text());
        outputs.insert("stderr".to_owned(), ended.stderr.into_text());
        let (exit, text) = self.judge(ended.end, is_late);
        if let Some(code) = exit.and_then(shell_code) {
            outputs.insert("exit_code".to_owned(), code.to_string());
        }
        let may_fail = command.may_fail && !is_late;
        let has_succeeded = text.is_none() || may_fail;
        outputs.insert("success".to_owned(), has_succeeded.to_string());
        match text {
            Some(text) if !may_fail => Ok(failed(outputs, exit, text)),
            _ => Ok(succeeded(outputs, exit)),
        }
    }

    /// The end of a process, and why that is a failure, if it is.
    fn judge(&self, end: End, is_late: bool) -> (Option<Exit>, Option<String>) {
        let late = self.late(is_late);
        match end {
            End::Unusable(text) => (None, Some(late.unwrap_or(text))),
            End::Exited {
                exit,
                out_of_memory,
                ..
            } => {
                let memory = out_of_memory.then(|| "the memory of the task ran out".to_owned());
                let text = match (exit.code, exit.signal) {
                    (Some(0), _) => None,
                    (Some(code), _) => Some(format!("exit code {code}")),
                    (None, Some(signal)) => Some(format!("ended by signal {signal}")),
                    (None, None) => Some("neither exit code nor signal".to_owned()),
                };
                (
                    Some(exit),
                    late.or(memory.filter(|_| text.is_some())).or(text),
                )
            }
        }
    }

    /// Why it failed if it was ended for its time.
    pub(super) fn late(&self, is_late: bool) -> Option<String> {
        let seconds = self.progress.workflow().timeout(self.step).as_secs();
        is_late.then(|| format!("longer than the limit of {seconds} s"))
    }

    /// Runs a process to its end, and ends it when its time is over; then true. An inner error: it cannot start.
    pub(super) async fn process(
        &self,
        argv: Vec<String>,
        environment: Vec<(String, String)>,
        stdin: Option<String>,
        kept_bytes: usize,
    ) -> Result<Result<(Ended, bool), String>, RunError> {
        let Sandbox {
            container,
            processes,
            ..
        } = self.sandbox;
        let spec = ProcessSpec {
            number: self.process,
            argv,
            environment,
            stdin,
        };
        let started = processes
            .start(container, spec, Arc::clone(&self.name), kept_bytes)
            .await;
        let mut end = match started {
            Ok(end) => end,
            Err(RuntimeError::ImageRefused { message }) => return Ok(Err(message)),
            // The watch sees the end of the container.
            Err(error) => return Err(RunError::new(ErrorCode::RuntimeFailed, chain(&error))),
        };
        let limit = self.progress.workflow().timeout(self.step);
        let ended = tokio::time::timeout(limit, &mut end).await;
        let is_late = ended.is_err();
        let ended = match ended {
            Ok(ended) => ended,
            Err(_) => self.end(end).await,
        };
        match ended {
            Ok(ended) if ended.was_asked_from_outside() => {
                let text = "the container engine or a user of the host stopped the container";
                Err(RunError::new(ErrorCode::RuntimeFailed, text))
            }
            Ok(ended) => Ok(Ok((ended, is_late))),
            Err(_) => {
                let text = "the container ended before its processes";
                Err(RunError::new(ErrorCode::RuntimeFailed, text))
            }
        }
    }

    /// Asks the process to end, and kills it after the grace period.
    async fn end(
        &self,
        mut end: oneshot::Receiver<Ended>,
    ) -> Result<Ended, oneshot::error::RecvError> {
        for is_forced in [false, true] {
            let container = self.sandbox.container;
            if let Err(error) = container.end_process(self.process, is_forced).await {
                warn!(error = %chain(&error), "a process was not ended");
            }
            let grace = self.sandbox.attempt.shared.config.grace;
            if !is_forced && let Ok(ended) = tokio::time::timeout(grace, &mut end).await {
                return ended;
            }
        }
        end.await
    }
}

/// The exit code as a shell reports it: 128 and the number of a signal.
fn shell_code(exit: Exit) -> Option<i32> {
    exit.code.or_else(|| exit.signal.map(|signal| 128 + signal))
}

pub(super) fn succeeded(outputs: Outputs, exit: Option<Exit>) -> Done {
    Done {
        ending: Ending::Succeeded,
        outputs,
        exit,
        error: None,
        started_at: None,
        ended_at: None,
    }
}

pub(super) fn failed(outputs: Outputs, exit: Option<Exit>, text: String) -> Done {
    Done {
        ending: Ending::Failed,
        outputs,
        exit,
        error: Some(RunError::new(ErrorCode::StepFailed, text)),
        started_at: None,
        ended_at: None,
    }
}
