//! Watches a container until the engine reports its end.
//!
//! Two sources, because each of them alone has failed in practice: the engine's own wait, begun before
//! the start, so that it misses no end; and a check every few seconds, because a restart of the engine
//! may lose the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aod_ports::container_runtime::{RuntimeError, Verdict};
use bollard::errors::Error as DockerError;
use bollard::models::{ContainerState, ContainerStateStatusEnum};
use bollard::query_parameters::WaitContainerOptions;
use futures::future::FusedFuture as _;
use futures::{FutureExt as _, StreamExt as _};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::warn;

use crate::engine::{CallError, Engine};

/// Interval of the checks of a running container.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Consecutive failed checks before the watch ends: ten minutes without an answer of the engine, twice
/// the time of an upgrade.
const FAILED_CHECKS_MAX: u32 = 120;

/// Maximum time for the engine to notice that the kernel killed for memory: the engine learns of this and
/// of the exit separately. Source: OpenWhisk waits up to 2 s; never above 100 ms in our tests.
const MEMORY_VERDICT_WAIT: Duration = Duration::from_secs(1);

/// Interval of the checks during this wait.
const MEMORY_VERDICT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// 128 and the number of SIGKILL: the engine's exit code after a kill.
const EXIT_CODE_KILLED: i64 = 137;

/// The engine does not report the end of a container.
#[derive(Clone, Copy, Debug, Error)]
enum WatchError {
    #[error("{FAILED_CHECKS_MAX} consecutive checks of the container failed")]
    Failed,
    /// An engine that is killed during a start may forget the start.
    #[error("the engine reports that the container never started, but its gate has connected")]
    Forgotten,
}

/// A watch in progress.
#[derive(Debug)]
pub(crate) struct Watch {
    outcome: watch::Receiver<Option<Result<Verdict, WatchError>>>,
    has_spoken: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Watch {
    /// Begins to watch a created container, before its start.
    pub(crate) fn begin(engine: Engine, name: String, was_killed: Arc<AtomicBool>) -> Self {
        let (sender, outcome) = watch::channel(None);
        let has_spoken = Arc::<AtomicBool>::default();
        let spoken = Arc::clone(&has_spoken);
        let work = async move {
            let verdict = follow(&engine, &name, &was_killed, &spoken).await;
            if let Err(error) = verdict {
                warn!(container = name, %error, "the state of a container is unknown");
            }
            sender.send_replace(Some(verdict));
        };
        Self {
            outcome,
            has_spoken,
            task: tokio::spawn(work).abort_handle(),
        }
    }

    /// Records that the gate has connected: the container runs, or has run.
    pub(crate) fn heard(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(crate) async fn gone(&self) -> Result<Verdict, RuntimeError> {
        let failed = |error: WatchError| RuntimeError::Engine {
            action: "waiting for a container's end",
            source: Box::new(error),
        };
        let mut outcome = self.outcome.clone();
        let Ok(outcome) = outcome.wait_for(Option::is_some).await else {
            return Err(failed(WatchError::Failed));
        };
        outcome.unwrap_or(Err(WatchError::Failed)).map_err(failed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    engine: &Engine,
    name: &str,
    was_killed: &AtomicBool,
    has_spoken: &AtomicBool,
) -> Result<Verdict, WatchError> {
    let mut has_run = false;
    let mut failed_checks = 0;
    let mut denied_since = None;
    let mut waited = wait(engine, name).boxed().fuse();
    while failed_checks < FAILED_CHECKS_MAX {
        tokio::select! {
            said = &mut waited => match said {
                // The wait's report of the end has precedence over a check at the same moment.
                Some(exit_code) => return Ok(judge(engine, name, Some(exit_code), was_killed).await),
                None => tokio::time::sleep(CHECK_INTERVAL).await,
            },
            () = tokio::time::sleep(CHECK_INTERVAL) => (),
        }
        match check(engine, name).await {
            Ok(Seen::Runs) => {
                has_run = true;
                failed_checks = 0;
                if waited.is_terminated() {
                    waited = wait(engine, name).boxed().fuse();
                }
            }
            Ok(Seen::NotYet) if has_run => failed_checks += 1,
            Ok(Seen::NotYet) => {
                failed_checks = 0;
                // The engine may report the start soon: the gate usually connects before that.
                if has_spoken.load(Ordering::Relaxed)
                    && denied_since.get_or_insert_with(Instant::now).elapsed()
                        > engine.timeouts.start
                {
                    return Err(WatchError::Forgotten);
                }
            }
            Ok(Seen::Ended { exit_code }) => {
                return Ok(judge(engine, name, exit_code, was_killed).await);
            }
            Ok(Seen::Nothing) => return Ok(Verdict::default()),
            Err(_) => failed_checks += 1,
        }
    }
    Err(WatchError::Failed)
}

/// The exit code after the container's end; none if the wait itself fails.
async fn wait(engine: &Engine, name: &str) -> Option<i64> {
    let options = WaitContainerOptions {
        condition: "next-exit".into(),
    };
    let mut answers = engine.docker.wait_container(name, Some(options)).boxed();
    match answers.next().await? {
        Ok(answer) => Some(answer.status_code),
        // The library's result for an exit code other than zero.
        Err(DockerError::DockerContainerWaitError { code, .. }) => Some(code),
        Err(_) => None,
    }
}

/// The result of a check.
enum Seen {
    NotYet,
    Runs,
    Ended { exit_code: Option<i64> },
    Nothing,
}

async fn check(engine: &Engine, name: &str) -> Result<Seen, CallError> {
    let Some(container) = engine.inspect(name).await? else {
        return Ok(Seen::Nothing);
    };
    let state = container.state.unwrap_or_default();
    Ok(match state.status {
        Some(ContainerStateStatusEnum::CREATED) => Seen::NotYet,
        Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD) => Seen::Ended {
            exit_code: state.exit_code,
        },
        _ if is_running(&state) => Seen::Runs,
        _ => Seen::NotYet,
    })
}

fn is_running(state: &ContainerState) -> bool {
    state.running == Some(true)
}

/// Polls whether the kernel killed for memory. Only after a kill that is not by this node.
async fn judge(
    engine: &Engine,
    name: &str,
    exit_code: Option<i64>,
    was_killed: &AtomicBool,
) -> Verdict {
    let is_suspicious = exit_code == Some(EXIT_CODE_KILLED) && !was_killed.load(Ordering::Relaxed);
    if !is_suspicious {
        return Verdict {
            out_of_memory: false,
            exit_code,
        };
    }
    let poll = async {
        loop {
            let state = engine
                .inspect(name)
                .await
                .ok()
                .flatten()
                .and_then(|found| found.state);
            if state.and_then(|state| state.oom_killed) == Some(true) {
                return true;
            }
            tokio::time::sleep(MEMORY_VERDICT_CHECK_INTERVAL).await;
        }
    };
    let out_of_memory = tokio::time::timeout(MEMORY_VERDICT_WAIT, poll)
        .await
        .unwrap_or(false);
    Verdict {
        out_of_memory,
        exit_code,
    }
}
