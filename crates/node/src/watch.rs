//! Watches a live container: its output, its limits, its lease; and makes it end when it must.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Exit, Outcome, Run, RunError};
use aod_ports::container_runtime::{Container, ContainerEvent, IoPaths};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::attempt::{Attempt, Finish, stopped};
use crate::calls::{Calls, chain};
use crate::heartbeat::Heartbeat;
use crate::ledger::Seat;
use crate::logs::Logs;
use crate::notes::{Notes, Phase};
use crate::quota;
use crate::run_clock::RunClock;

/// What watches a container.
pub(crate) struct Watch<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) calls: &'a Arc<Calls>,
    pub(crate) notes: &'a Notes,
    pub(crate) paths: &'a IoPaths,
}

/// How a container came to its end.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) end: End,
    /// Why it was made to end, if so.
    pub(crate) stop: Option<Stop>,
    pub(crate) exited_at: Timestamp,
    pub(crate) waited: Duration,
}

/// What is known of the end of a container.
#[derive(Debug)]
pub(crate) enum End {
    /// As the gate tells it.
    Exited {
        exit: Exit,
        out_of_memory: bool,
        asked_from_outside: bool,
    },
    /// The image's command could not be started: why.
    Unusable(String),
    /// The gate could not say.
    Lost,
}

/// Why a container is made to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Cancelled,
    TimedOut,
    HeartbeatMissed,
    DeadlineExceeded,
    DiskQuota { used_bytes: u64 },
}

impl Stop {
    /// What it means for the run.
    pub(crate) fn verdict(&self, run: &Run) -> (Outcome, RunError) {
        let resources = &run.launched.event.resources;
        match self {
            Self::Cancelled => (
                Outcome::Cancelled,
                RunError::new(ErrorCode::Cancelled, "the run was cancelled"),
            ),
            Self::TimedOut => {
                let text = format!(
                    "the capsule ran longer than its {} s",
                    resources.timeout_seconds
                );
                (Outcome::TimedOut, RunError::new(ErrorCode::TimedOut, text))
            }
            Self::HeartbeatMissed => {
                let seconds = run.launched.event.limits.heartbeat_seconds;
                let seconds = seconds.unwrap_or_default();
                let text = format!("the capsule showed no sign of life for {seconds} s");
                let error = RunError::new(ErrorCode::HeartbeatMissed, text);
                (Outcome::TimedOut, error)
            }
            Self::DeadlineExceeded => {
                let text = format!("the run was not done by its deadline {}", run.deadline());
                (
                    Outcome::TimedOut,
                    RunError::new(ErrorCode::DeadlineExceeded, text),
                )
            }
            Self::DiskQuota { used_bytes } => {
                let text = match used_bytes {
                    &u64::MAX => "the capsule made more files than are counted".to_owned(),
                    used_bytes => format!(
                        "the capsule wrote {used_bytes} bytes; its limit is {}",
                        resources.disk_bytes
                    ),
                };
                (Outcome::Failed, RunError::new(ErrorCode::DiskQuota, text))
            }
        }
    }

    /// Whether the capsule gets time to end by itself.
    const fn has_grace(&self) -> bool {
        !matches!(self, Self::DiskQuota { .. })
    }
}

/// How far the end of a container is.
enum Ending {
    /// It may run.
    No,
    /// Its callees are being ended first.
    Callees,
    /// It was asked to end, and will be made to at this time.
    Asked(Instant),
    Killed,
}

impl Ending {
    fn kill_at(&self) -> Option<Instant> {
        match self {
            Self::Asked(at) => Some(*at),
            _ => None,
        }
    }
}

impl Watch<'_> {
    /// Returns when nothing runs in the container any more. When the lease is lost or the node is
    /// stopped the container is killed, and the answer is how the attempt ends.
    pub(crate) async fn run(
        self,
        container: &mut dyn Container,
        logs: &mut Logs,
        seat: &mut Seat,
    ) -> Result<Watched, Finish> {
        let (attempt, run) = (self.attempt, &self.attempt.run);
        let resources = &run.launched.event.resources;
        let mut events = container.events();
        let mut clock = RunClock::start(Duration::from_secs(resources.timeout_seconds.into()));
        let silence_max = run.launched.event.limits.heartbeat();
        let mut heartbeat = Heartbeat::start(silence_max, self.calls.served());
        let mut waiting = told_from_zero(self.calls.waiting());
        let mut renewals = attempt.lease.renewals();
        let lost = attempt.lease.lost();
        let mut quota = pin!(quota::exceeded(
            self.paths.io.clone(),
            self.paths.workspace.clone(),
            resources.disk_bytes,
            attempt.shared.config.disk_look,
        ));
        let mut hand_back = pin!(attempt.shared.must_hand_back());
        let mut deadline = pin!(tokio::time::sleep(self.until_deadline()));
        let mut end_callees = pin!(self.calls.end_all("its caller is being ended"));
        let (mut stop, mut ending) = (None, Ending::No);
        let end = loop {
            let mut asked = None;
            let kill_at = ending.kill_at();
            // Events come last: endless output must not keep limits from being looked at.
            tokio::select! {
                biased;
                () = lost.cancelled() => return Err(self.give_up(container, Finish::Fenced).await),
                () = &mut hand_back => {
                    return Err(self.give_up(container, stopped()).await);
                }
                Ok(()) = waiting.changed() => {
                    let is_waiting = *waiting.borrow_and_update() > 0;
                    seat.set_waiting(is_waiting);
                    clock.set_waiting(is_waiting);
                    heartbeat.set_waiting(is_waiting);
                    self.notes.tell(if is_waiting { Phase::Waiting(self.calls.open_callee()) } else { Phase::Resumed });
                }
                Ok(()) = renewals.changed() => self.renew(container).await,
                () = attempt.cancelled.cancelled(), if stop.is_none() => asked = Some(Stop::Cancelled),
                () = clock.expired(), if stop.is_none() => asked = Some(Stop::TimedOut),
                () = &mut deadline, if stop.is_none() => asked = Some(Stop::DeadlineExceeded),
                used_bytes = &mut quota, if stop.is_none() => asked = Some(Stop::DiskQuota { used_bytes }),
                () = &mut end_callees, if matches!(ending, Ending::Callees) => {
                    ending = self.ask(container, stop.as_ref()).await;
                }
                () = sleep_until(kill_at), if kill_at.is_some() => {
                    self.kill(container).await;
                    ending = Ending::Killed;
                }
                event = events.next() => if let Some(end) = self.heed(event, logs, &mut heartbeat) {
                    break end;
                },
                // After what shows life: where this node itself was held up, both are there.
                () = heartbeat.missed(), if stop.is_none() => asked = Some(Stop::HeartbeatMissed),
            }
            if let Some(reason) = asked {
                debug!(?reason, "ending the capsule");
                ending = self.begin_ending(container, &reason).await;
                stop = Some(reason);
            }
        };
        let (exited_at, waited) = (attempt.shared.runs.clock().now(), clock.waited());
        seat.set_waiting(false);
        Ok(Watched {
            end,
            stop,
            exited_at,
            waited,
        })
    }

    /// How the container ended, if `event` says so.
    fn heed(
        &self,
        event: Option<ContainerEvent>,
        logs: &mut Logs,
        heartbeat: &mut Heartbeat,
    ) -> Option<End> {
        heartbeat.beat();
        match event {
            Some(ContainerEvent::Started) => self.notes.tell(Phase::Running),
            Some(ContainerEvent::Wrote { output, bytes }) => {
                if let Err(error) = logs.write(output, &bytes) {
                    warn!(%error, "output is lost");
                }
            }
            Some(ContainerEvent::Exited {
                exit,
                out_of_memory,
                asked_from_outside,
            }) => {
                return Some(End::Exited {
                    exit,
                    out_of_memory,
                    asked_from_outside,
                });
            }
            Some(ContainerEvent::Unusable(text)) => return Some(End::Unusable(text)),
            Some(ContainerEvent::Lost) | None => return Some(End::Lost),
        }
        None
    }

    async fn renew(&self, container: &dyn Container) {
        let left = self.attempt.lease.remaining().as_millis();
        if let Err(error) = container
            .renew(u64::try_from(left).unwrap_or(u64::MAX))
            .await
        {
            debug!(error = %chain(&error), "the gate was not told of a renewal");
        }
    }

    fn until_deadline(&self) -> Duration {
        let now = self.attempt.shared.runs.clock().now();
        self.attempt
            .run
            .deadline()
            .duration_since(now)
            .try_into()
            .unwrap_or(Duration::ZERO)
    }

    /// Callees end first, but for those that another attempt will join.
    async fn begin_ending(&self, container: &dyn Container, reason: &Stop) -> Ending {
        let (outcome, error) = reason.verdict(&self.attempt.run);
        match self.attempt.retry_after(outcome, &error) {
            Some(_) => self.ask(container, Some(reason)).await,
            None => Ending::Callees,
        }
    }

    async fn ask(&self, container: &dyn Container, stop: Option<&Stop>) -> Ending {
        if stop.is_some_and(|stop| !stop.has_grace()) {
            self.kill(container).await;
            return Ending::Killed;
        }
        if let Err(error) = container.terminate().await {
            debug!(error = %chain(&error), "the capsule was not asked to end");
        }
        Ending::Asked(Instant::now() + self.attempt.shared.config.grace)
    }

    async fn give_up(&self, container: &dyn Container, finish: Finish) -> Finish {
        self.kill(container).await;
        finish
    }

    async fn kill(&self, container: &dyn Container) {
        if let Err(error) = container.kill().await {
            warn!(container = container.name(), error = %chain(&error), "a container was not killed");
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What is more than nothing already comes as a change: a capsule may call before its start is known to
/// have succeeded.
fn told_from_zero(mut counted: Receiver<usize>) -> Receiver<usize> {
    if *counted.borrow() > 0 {
        counted.mark_changed();
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_from_before_the_watch_is_told() {
        let open = tokio::sync::watch::Sender::new(0);
        assert!(!told_from_zero(open.subscribe()).has_changed().unwrap());
        open.send_replace(1);
        assert!(told_from_zero(open.subscribe()).has_changed().unwrap());
    }
}
