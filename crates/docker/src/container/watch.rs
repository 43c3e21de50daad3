//! Watching a container until the engine says that nothing of it runs any more.
//!
//! Two sources, since each alone has been seen to fail: the engine's own wait, begun before the
//! start, so that no end is missed; and a look every few seconds, for a wait that got lost in a
//! restart of the engine.

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

/// Between two looks at a container that runs.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks in a row that may fail before the watch gives up: ten minutes of an engine that answers
/// nothing, twice what upgrading one takes.
const FAILED_LOOKS_MAX: u32 = 120;

/// How long the engine may take to notice that it was the kernel that killed for memory: that
/// message and the exit come by different ways. Source: OpenWhisk waits up to 2 s; never seen above
/// 100 ms here.
const MEMORY_VERDICT_WAIT: Duration = Duration::from_secs(1);

/// Between two looks while waiting for that.
const MEMORY_VERDICT_LOOK_EVERY: Duration = Duration::from_millis(50);

/// 128 and the number of SIGKILL: how an end by force shows in the engine's exit code.
const EXIT_CODE_KILLED: i64 = 137;

/// The engine does not say what has become of a container.
#[derive(Clone, Copy, Debug, Error)]
enum GaveUp {
    #[error("{FAILED_LOOKS_MAX} looks at the container failed in a row")]
    Failed,
    /// An engine that is killed while it starts a container may not know of that when it is back.
    #[error("the engine says that it has not started the container, whose gate has spoken")]
    Forgotten,
}

/// A watch in progress.
#[derive(Debug)]
pub(crate) struct Watch {
    outcome: watch::Receiver<Option<Result<Verdict, GaveUp>>>,
    has_spoken: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Watch {
    /// Begins to watch a container that is created, and about to be started.
    pub(crate) fn begin(engine: Engine, name: String, was_killed: Arc<AtomicBool>) -> Self {
        let (sender, outcome) = watch::channel(None);
        let has_spoken = Arc::<AtomicBool>::default();
        let spoken = Arc::clone(&has_spoken);
        let work = async move {
            let verdict = follow(&engine, &name, &was_killed, &spoken).await;
            if let Err(error) = verdict {
                warn!(container = name, %error, "what has become of a container is not known");
            }
            sender.send_replace(Some(verdict));
        };
        Self {
            outcome,
            has_spoken,
            task: tokio::spawn(work).abort_handle(),
        }
    }

    /// Its gate has spoken: it runs, or has run, whatever the engine says.
    pub(crate) fn heard(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(crate) async fn gone(&self) -> Result<Verdict, RuntimeError> {
        let failed = |error: GaveUp| RuntimeError::Engine {
            action: "waiting for a container's end",
            source: Box::new(error),
        };
        let mut outcome = self.outcome.clone();
        let Ok(outcome) = outcome.wait_for(Option::is_some).await else {
            return Err(failed(GaveUp::Failed));
        };
        outcome.unwrap_or(Err(GaveUp::Failed)).map_err(failed)
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
) -> Result<Verdict, GaveUp> {
    let mut has_run = false;
    let mut failed_looks = 0;
    let mut denied_since = None;
    let mut waited = wait(engine, name).boxed().fuse();
    while failed_looks < FAILED_LOOKS_MAX {
        tokio::select! {
            said = &mut waited => match said {
                // What the wait says is the end, whatever a look at the same moment shows.
                Some(exit_code) => return Ok(judge(engine, name, Some(exit_code), was_killed).await),
                None => tokio::time::sleep(LOOK_EVERY).await,
            },
            () = tokio::time::sleep(LOOK_EVERY) => (),
        }
        match look(engine, name).await {
            Ok(Seen::Runs) => {
                has_run = true;
                failed_looks = 0;
                if waited.is_terminated() {
                    waited = wait(engine, name).boxed().fuse();
                }
            }
            Ok(Seen::NotYet) if has_run => failed_looks += 1,
            Ok(Seen::NotYet) => {
                failed_looks = 0;
                // It may be about to say so: the gate mostly speaks before the start is answered.
                if has_spoken.load(Ordering::Relaxed)
                    && denied_since.get_or_insert_with(Instant::now).elapsed()
                        > engine.timeouts.start
                {
                    return Err(GaveUp::Forgotten);
                }
            }
            Ok(Seen::Ended { exit_code }) => {
                return Ok(judge(engine, name, exit_code, was_killed).await);
            }
            Ok(Seen::Nothing) => return Ok(Verdict::default()),
            Err(_) => failed_looks += 1,
        }
    }
    Err(GaveUp::Failed)
}

/// The exit code once the container has ended; none when the wait itself has failed.
async fn wait(engine: &Engine, name: &str) -> Option<i64> {
    let options = WaitContainerOptions {
        condition: "next-exit".into(),
    };
    let mut answers = engine.docker.wait_container(name, Some(options)).boxed();
    match answers.next().await? {
        Ok(answer) => Some(answer.status_code),
        // The library's way to say that the exit code is not zero.
        Err(DockerError::DockerContainerWaitError { code, .. }) => Some(code),
        Err(_) => None,
    }
}

/// What a look shows.
enum Seen {
    NotYet,
    Runs,
    Ended { exit_code: Option<i64> },
    Nothing,
}

async fn look(engine: &Engine, name: &str) -> Result<Seen, CallError> {
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

/// Whether it was for memory. Only asked when somebody else than us killed, and then again and again.
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
    let look = async {
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
            tokio::time::sleep(MEMORY_VERDICT_LOOK_EVERY).await;
        }
    };
    let out_of_memory = tokio::time::timeout(MEMORY_VERDICT_WAIT, look)
        .await
        .unwrap_or(false);
    Verdict {
        out_of_memory,
        exit_code,
    }
}
