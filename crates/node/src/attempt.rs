//! One attempt at a run: its lease, and its end. `agent::launch` runs it, and `work` does its work.
//!
//! The lease is a fence: decisions of an attempt count only while the log names it as the holder of the run. When an
//! attempt loses its lease, the node kills its capsule, and the attempt appends nothing more.

pub(crate) mod callees;
pub(crate) mod ending;
pub(crate) mod lease;
pub(crate) mod leftover;
pub(crate) mod refusal;
pub(crate) mod taking;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::run::{
    AttemptFailed, Ended, Holder, Outcome, Refused, Retry, Run, RunError, Timings, Usage,
};
use aod_ports::work_queue::Delivery;
use aod_services::program::spawn;
use tokio_util::sync::CancellationToken;

use self::lease::LeaseKeeper;
use crate::gateways::speaker::Speaker;
use crate::record::logs::Logs;
use crate::secrets::redaction::Redaction;
use crate::shared::Shared;

/// Pause before the redelivery of a launch after a failure of the platform.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Checks per lease time whether the run was cancelled or taken over. A new holder that takes over while the queue
/// still knows this holder relies on these checks.
const CHECKS_PER_LEASE: u32 = 3;

/// How the work of an attempt ended.
pub(crate) enum Finish {
    /// With the run's result.
    Ended(Box<Ended>),
    /// By a failure that the request has a retry for.
    Failed(Box<AttemptFailed>),
    /// This node cannot run it; another node may.
    Refused(Box<Refused>),
    /// By a failure of the platform: another attempt may succeed.
    Lost(RunError),
    /// The lease is lost: the attempt may append nothing.
    Fenced,
}

impl Finish {
    pub(crate) fn ended(ended: Ended) -> Self {
        Self::Ended(Box::new(ended))
    }
}

/// The end of an attempt whose node stops or whose time to drain is over: another node continues immediately.
pub(crate) fn stopped() -> Finish {
    Finish::Lost(RunError::new(
        ErrorCode::NodeLost,
        "the node was stopped or drained",
    ))
}

/// An attempt that has the lease.
pub(crate) struct Attempt {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Run,
    pub(crate) number: u32,
    pub(crate) speaker: Speaker,
    pub(crate) lease: LeaseKeeper,
    pub(crate) cancelled: CancellationToken,
    pub(crate) timings: Timings,
}

impl Attempt {
    /// Waits a lease time for a replaced holder of another message, which may still run. Within that time it learns
    /// that it was replaced, or its lease stays unconfirmed. False if this attempt loses its lease meanwhile.
    pub(crate) async fn await_predecessor(&self, delivery: &Delivery) -> bool {
        match &self.run.replaced {
            Some(Holder::Node { work, .. }) if !work.is_same_message(&delivery.position) => {
                let wait = tokio::time::sleep(self.shared.config.lease);
                self.lease.lost().run_until_cancelled(wait).await.is_some()
            }
            _ => true,
        }
    }

    /// Checks at intervals whether this attempt still holds the run, and whether the run was cancelled.
    pub(crate) fn watch(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let (shared, id, number) = (Arc::clone(&self.shared), self.run.id, self.number);
        let (cancelled, lost) = (self.cancelled.clone(), self.lease.lost());
        spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(shared.config.lease / CHECKS_PER_LEASE).await;
                let Ok(Some(run)) = shared.runs.load(id).await else {
                    continue;
                };
                if !run.holds(number) {
                    lost.cancel();
                    return;
                }
                if run.cancel.is_some() {
                    cancelled.cancel();
                }
            }
        }));
        stop
    }

    /// The result of `work`, unless the attempt ends before: it loses its lease, its node stops, or its run is
    /// cancelled, as `text` says.
    pub(crate) async fn unless_over<T>(
        &self,
        text: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Finish> {
        let lost = self.lease.lost();
        tokio::select! {
            biased;
            () = lost.cancelled() => Err(Finish::Fenced),
            () = self.shared.lifetime.must_return() => Err(stopped()),
            () = self.cancelled.cancelled() => {
                let error = RunError::new(ErrorCode::Cancelled, text);
                Err(Finish::ended(self.ended(Outcome::Cancelled, Some(error))))
            }
            done = work => Ok(done),
        }
    }

    /// The pause before the next attempt if this attempt ends with this error; none if the run ends.
    pub(crate) fn retry_after(&self, outcome: Outcome, error: &RunError) -> Option<Retry> {
        if self.cancelled.is_cancelled() {
            return None;
        }
        let now = self.shared.runs.clock().now();
        self.run.retry_after(outcome, error, now)
    }

    /// The end by `error`: the platform retries its own failures.
    pub(crate) fn failed(&self, error: RunError) -> Finish {
        if error.source == ErrorSource::Platform {
            return Finish::Lost(error);
        }
        Finish::ended(self.ended(Outcome::Failed, Some(error)))
    }

    /// Starts the logs of this attempt, in the file at `path`.
    pub(crate) fn logs(&self, path: &Path, redaction: Redaction) -> Logs {
        let shared = &self.shared;
        Logs::start(
            path,
            self.run.id,
            self.number,
            shared.config.log_bytes_max,
            Arc::clone(&shared.ports.logs),
            Arc::clone(shared.runs.clock()),
            redaction,
        )
    }

    /// An empty result of this attempt.
    pub(crate) fn ended(&self, outcome: Outcome, error: Option<RunError>) -> Ended {
        Ended {
            attempt: self.number,
            outcome,
            output: None,
            files: Vec::new(),
            left_out: None,
            error,
            exit: None,
            children: Vec::new(),
            children_summary: None,
            notes: None,
            logs: None,
            timings: self.timings.clone(),
            usage: Usage::default(),
        }
    }
}
