//! Watches a live container: its output, its limits and its lease; ends the container if necessary.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Exit, Outcome, Run, RunError};
use aod_ports::container_runtime::{Container, ContainerEvent, IoPaths};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::heartbeat::Heartbeat;
use super::processes::Processes;
use super::run_clock::RunClock;
use crate::attempt::{Attempt, Finish, stopped};
use crate::calls::Calls;
use crate::files::quota::{self, Excess};
use crate::record::logs::Logs;
use crate::record::notes::{Notes, Phase};
use crate::shared::ledger::Seat;
use aod_services::error::chain;

/// Watches one container.
pub(crate) struct Watch<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) calls: &'a Arc<Calls>,
    pub(crate) notes: &'a Notes,
    pub(crate) paths: &'a IoPaths,
    pub(crate) processes: &'a Processes,
}

/// The end of a watched container.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) end: End,
    /// Why the node ended it, if so.
    pub(crate) stop: Option<Stop>,
    pub(crate) exited_at: Timestamp,
    pub(crate) waited: Duration,
}

/// The reported end of a container.
#[derive(Debug)]
pub(crate) enum End {
    /// Reported by the gate.
    Exited {
        exit: Exit,
        out_of_memory: bool,
        asked_from_outside: bool,
    },
    /// The gate could not start the image's command, with the reason.
    Unusable(String),
    /// The gate did not report.
    Lost,
}

/// Why the node ends a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Cancelled,
    TimedOut,
    HeartbeatMissed,
    DeadlineExceeded,
    DiskQuota(Excess),
}

impl Stop {
    /// The outcome and error of the run.
    pub(crate) fn verdict(&self, run: &Run) -> (Outcome, RunError) {
        let launched = &run.launched.event;
        let (outcome, code, text) = match self {
            Self::Cancelled => {
                let text = "the run was cancelled".to_owned();
                (Outcome::Cancelled, ErrorCode::Cancelled, text)
            }
            Self::TimedOut => {
                let seconds = launched.resources.timeout_seconds;
                let text = format!("the capsule ran longer than its limit of {seconds} s");
                (Outcome::TimedOut, ErrorCode::TimedOut, text)
            }
            Self::HeartbeatMissed => {
                let seconds = launched.limits.heartbeat_seconds.unwrap_or_default();
                let text = format!("the capsule sent no heartbeat for {seconds} s");
                (Outcome::TimedOut, ErrorCode::HeartbeatMissed, text)
            }
            Self::DeadlineExceeded => {
                let text = format!("the run did not end before its deadline {}", run.deadline());
                (Outcome::TimedOut, ErrorCode::DeadlineExceeded, text)
            }
            Self::DiskQuota(excess) => {
                let bytes = launched.resources.disk_bytes;
                let text = format!("{excess}; its limit is {bytes} bytes");
                (Outcome::Failed, ErrorCode::DiskQuota, text)
            }
        };
        (outcome, RunError::new(code, text))
    }

    /// Whether the capsule gets a grace period to end by itself.
    const fn has_grace(&self) -> bool {
        !matches!(self, Self::DiskQuota(_))
    }

    /// Whether the callees end before the capsule. Otherwise they end after it, unless another attempt will join them. A
    /// capsule above its disk limit could write on while its callees end.
    const fn ends_callees_first(&self, is_retried: bool) -> bool {
        self.has_grace() && !is_retried
    }
}

/// The progress of ending a container.
enum Ending {
    /// The capsule may run.
    No,
    /// The node ends its callees first.
    Callees,
    /// The capsule got SIGTERM, and gets SIGKILL at this time.
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
    /// Returns when nothing runs in the container any more. If the lease is lost or the node stops, kills the container
    /// and returns the end of the attempt.
    pub(crate) async fn run(
        self,
        container: &dyn Container,
        mut events: BoxStream<'static, ContainerEvent>,
        logs: &mut Logs,
        seat: &mut Seat,
    ) -> Result<Watched, Finish> {
        let (attempt, run) = (self.attempt, &self.attempt.run);
        let resources = &run.launched.event.resources;
        let mut clock = RunClock::start(Duration::from_secs(resources.timeout_seconds.into()));
        let silence_max = run.launched.event.limits.heartbeat();
        let mut heartbeat = Heartbeat::start(silence_max, self.calls.activity.served());
        let mut waiting = notified_from_zero(self.calls.activity.waiting());
        let mut renewals = attempt.lease.renewals();
        let lost = attempt.lease.lost();
        let mut quota = pin!(quota::exceeded(
            self.paths,
            container,
            resources.disk_bytes,
            attempt.shared.config.disk_look,
        ));
        let mut must_return = pin!(attempt.shared.lifetime.must_return());
        let mut deadline = pin!(tokio::time::sleep(self.until_deadline()));
        let mut end_callees = pin!(self.calls.end_all("its caller is ending"));
        let (mut stop, mut ending) = (None, Ending::No);
        let end = loop {
            let mut asked = None;
            let kill_at = ending.kill_at();
            // Events come last: endless output must not delay the checks of limits.
            tokio::select! {
                biased;
                () = lost.cancelled() => return Err(self.abandon(container, Finish::Fenced).await),
                () = &mut must_return => return Err(self.abandon(container, stopped()).await),
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
                excess = &mut quota, if stop.is_none() => asked = Some(Stop::DiskQuota(excess)),
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
                // After the signs of life: if this node itself was delayed, both are ready.
                () = heartbeat.missed(), if stop.is_none() => asked = Some(Stop::HeartbeatMissed),
            }
            if let Some(reason) = asked {
                debug!(?reason, "the node ends the capsule");
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

    /// Handles `event`; returns the end of the container if it reports one.
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
                    warn!(%error, "a part of the output was lost");
                }
            }
            Some(ContainerEvent::Process(number, event)) => {
                self.processes.heed(number, event, logs);
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
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        if let Err(error) = container.renew(left).await {
            debug!(error = %chain(&error), "the gate did not get a renewal of the lease");
        }
    }

    fn until_deadline(&self) -> Duration {
        let now = self.attempt.shared.runs.clock().now();
        let left = self.attempt.run.deadline().duration_since(now);
        left.try_into().unwrap_or(Duration::ZERO)
    }

    /// Ends the callees or the capsule.
    async fn begin_ending(&self, container: &dyn Container, reason: &Stop) -> Ending {
        let (outcome, error) = reason.verdict(&self.attempt.run);
        let is_retried = self.attempt.retry_after(outcome, &error).is_some();
        if reason.ends_callees_first(is_retried) {
            Ending::Callees
        } else {
            self.ask(container, Some(reason)).await
        }
    }

    async fn ask(&self, container: &dyn Container, stop: Option<&Stop>) -> Ending {
        if stop.is_some_and(|stop| !stop.has_grace()) {
            self.kill(container).await;
            return Ending::Killed;
        }
        if let Err(error) = container.terminate().await {
            debug!(error = %chain(&error), "the capsule did not get SIGTERM");
        }
        Ending::Asked(Instant::now() + self.attempt.shared.config.grace)
    }

    async fn abandon(&self, container: &dyn Container, finish: Finish) -> Finish {
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

/// Reports an initial count above zero as a change: a capsule may call before the engine confirms its start.
fn notified_from_zero(mut counted: Receiver<usize>) -> Receiver<usize> {
    if *counted.borrow() > 0 {
        counted.mark_changed();
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capsule_above_its_disk_limit_does_not_wait_for_its_callees() {
        let excess = Stop::DiskQuota(Excess::Bytes(1 << 34));
        assert!(!excess.ends_callees_first(false) && !excess.has_grace());
        for other in [Stop::Cancelled, Stop::TimedOut, Stop::HeartbeatMissed] {
            assert!(other.ends_callees_first(false), "{other:?}");
            assert!(!other.ends_callees_first(true), "{other:?}");
        }
    }

    #[test]
    fn call_before_the_watch_is_reported_as_a_change() {
        let open = tokio::sync::watch::Sender::new(0);
        assert!(!notified_from_zero(open.subscribe()).has_changed().unwrap());
        open.send_replace(1);
        assert!(notified_from_zero(open.subscribe()).has_changed().unwrap());
    }
}
