//! Derives the end of a run from the end of its container, and from its outputs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aod_domain::contract::Contract;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::{AttemptFailed, Ended, Outcome, Payload, Retry, RunError, Usage};
use aod_domain::spending::Spent;
use tokio::time::Instant;
use tracing::warn;

use super::Active;
use super::judgement::Judgement;
use super::start::Started;
use super::task::TaskEnd;
use super::watch::{End, Stop, Watched};
use crate::attempt::Finish;
use crate::files::collect::{Collected, collect};
use crate::files::payload::store_payload;
use crate::shared::ledger::Seat;
use crate::work::common::within;
use aod_services::error::chain;

impl Active<'_> {
    pub(super) async fn finish(
        &mut self,
        started: &Started,
        watched: &Watched,
        seat: &mut Seat,
    ) -> Finish {
        if let Err(error) = self.records.logs.end() {
            warn!(%error, "the end of the output was lost");
        }
        let error = match self.judge(watched, started.container.as_ref()).await {
            Judgement::Fine => None,
            Judgement::Failed(error) => Some(error),
            Judgement::Lost(error) => return Finish::Lost(error),
        };
        let is_fine = error.is_none() && watched.stop.is_none();
        if is_fine && started.task.is_some() && started.task_end.is_none() {
            let text = "the container engine or a user of the host stopped the container";
            return Finish::Lost(RunError::new(ErrorCode::RuntimeFailed, text));
        }
        let contract = is_fine.then_some(&started.contract);
        let contract = contract.filter(|_| started.task.is_none());
        let mut collected = match self.collect(contract).await {
            Ok(collected) => collected,
            Err(error) => return Finish::Lost(error),
        };
        if started.task.is_some() {
            match self.result_of(started.task_end.as_ref()).await {
                Ok(result) => (collected.output, collected.error) = result,
                Err(error) => return Finish::Lost(error),
            }
            collected.own_error = None;
        }
        let mut ended = self.measured(started, watched, &collected).await;
        self.conclude(&mut ended, watched.stop.as_ref(), error, collected);
        if ended.outcome == Outcome::Failed && watched.stop.is_none() && self.had_full_disk() {
            let text = "the capsule failed while the disk of its node was full";
            return Finish::Lost(RunError::new(ErrorCode::RuntimeFailed, text));
        }
        if let Some(failed) = self.to_be_tried_again(&ended) {
            return Finish::Failed(Box::new(failed));
        }
        // A caller ends after its callees, even if it did not wait for them. Callees of a lost or retried attempt
        // continue: the next attempt joins them. They may be waiting for a slot.
        seat.set_waiting(true);
        let end_callees = self.services.channel.calls.end_all("its caller has ended");
        let lost = self.attempt.lease.lost();
        let have_ended = lost.run_until_cancelled(end_callees).await;
        seat.set_waiting(false);
        match have_ended {
            Some(()) => Finish::ended(ended),
            None => Finish::Fenced,
        }
    }

    /// The outputs of the capsule, checked against `contract` if it succeeded.
    async fn collect(&self, contract: Option<&Contract>) -> Result<Collected, RunError> {
        let launched = &self.attempt.run.launched.event;
        let collected = collect(
            self.directory.paths(),
            contract,
            launched.resources.disk_bytes,
            &self.attempt.shared.ports.artifacts,
            &self.records.redaction,
        );
        match within(self.left_to_collect(), collected).await {
            Some(collected) => Ok(collected?),
            None => {
                let seconds = launched.limits.collection_seconds.unwrap_or_default();
                let text = format!("the outputs were not stored within {seconds} s");
                Err(RunError::new(ErrorCode::CollectionTimedOut, text))
            }
        }
    }

    /// The output and the error of a task; nothing if it was ended before its end.
    async fn result_of(
        &self,
        end: Option<&TaskEnd>,
    ) -> Result<(Option<Payload>, Option<RunError>), RunError> {
        let Some(TaskEnd { output, error }) = end else {
            return Ok((None, None));
        };
        let output = self.records.redaction.json(output.clone());
        let artifacts = self.attempt.shared.ports.artifacts.as_ref();
        match store_payload(output, artifacts).await {
            Ok(output) => Ok((Some(output), error.clone())),
            Err(error) => Err(RunError::new(ErrorCode::StoreUnavailable, chain(&error))),
        }
    }

    /// A result with the times and the usage of the attempt.
    async fn measured(&self, started: &Started, watched: &Watched, collected: &Collected) -> Ended {
        let mut ended = self.attempt.ended(Outcome::Succeeded, None);
        if let End::Exited { exit, .. } = watched.end {
            ended.exit = Some(exit);
        }
        ended.timings.started_at = Some(started.at);
        ended.timings.exited_at = Some(watched.exited_at);
        ended.timings.waiting_ms = u64::try_from(watched.waited.as_millis()).unwrap_or(u64::MAX);
        let files = &self.attempt.run.launched.event.files;
        ended.usage = Usage {
            fetched_bytes: self.services.fetched.load(Ordering::Relaxed),
            input_bytes: files.iter().map(|file| file.size_bytes).sum(),
            output_bytes: collected.files.iter().map(|file| file.size_bytes).sum(),
            calls: self.services.channel.calls.count(),
            models: self.models_used().await,
            egress: self.services.channel.egress.close().await,
        };
        ended
    }

    /// Closes the channel; returns the attempt's usage of models.
    async fn models_used(&self) -> Option<Spent> {
        self.services.stop.cancel();
        self.services.channel.models.settled().await
    }

    /// Sets outcome, error, output and files of `ended`.
    fn conclude(
        &self,
        ended: &mut Ended,
        stop: Option<&Stop>,
        error: Option<RunError>,
        collected: Collected,
    ) {
        (ended.outcome, ended.error) = match (stop, error) {
            (Some(stop), _) => {
                let (outcome, error) = stop.verdict(&self.attempt.run);
                (outcome, Some(error))
            }
            (None, Some(error)) => (Outcome::Failed, Some(collected.own_error.unwrap_or(error))),
            (None, None) => match collected.error {
                Some(error) => (Outcome::Failed, Some(self.with_last_lines(error))),
                None => (Outcome::Succeeded, None),
            },
        };
        ended.error = ended
            .error
            .take()
            .map(|error| self.records.redaction.error(error));
        ended.output = collected.output;
        ended.files = collected.files;
        ended.left_out = collected.left_out;
    }

    /// Whether the node's disk was full at any time of this attempt: a failed write is then not the capsule's fault.
    fn had_full_disk(&self) -> bool {
        let shared = &self.attempt.shared;
        shared.host.disks.measure(shared.runs.clock().since_boot());
        shared.host.disks.was_full(self.began)
    }

    /// The remaining time for storing outputs and logs, if limited.
    pub(super) fn left_to_collect(&self) -> Option<Duration> {
        let until = self.collected_by?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The end of this attempt only, if the request has a retry for it.
    fn to_be_tried_again(&self, ended: &Ended) -> Option<AttemptFailed> {
        let error = ended.error.clone()?;
        let Retry { kind, pause } = self.attempt.retry_after(ended.outcome, &error)?;
        Some(AttemptFailed {
            attempt: ended.attempt,
            kind,
            outcome: ended.outcome,
            error,
            exit: ended.exit,
            logs: None,
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        })
    }
}
