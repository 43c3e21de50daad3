//! Dead-lettering: a run loses its maximum number of attempts, or its launch is delivered again and again without a
//! lease.
//!
//! The broker counts every delivery, including those that a busy node returned properly, so its count only raises a
//! suspicion. The proof is deliveries that a node with free capacity began on and stored before anything else. A launch
//! that kills its nodes leaves these events behind.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ATTEMPTS_LOST_MAX, Ended, Outcome, Phase, Run, RunError, WorkPosition};
use crate::error_code::{ErrorCode, ErrorSource};

/// Deliveries in a row without a lease after which a launch is dead-lettered.
pub const DELIVERIES_MAX: u64 = DELIVERIES_UNCOUNTED + DELIVERIES_COUNTED_MAX as u64;

/// Deliveries in a row without a lease that are still normal: nodes without free capacity return launches, and the
/// broker restarts. They cost no event.
pub const DELIVERIES_UNCOUNTED: u64 = 45;

/// Further deliveries that a node began on without a lease: the maximum number of lost attempts.
pub const DELIVERIES_COUNTED_MAX: u32 = ATTEMPTS_LOST_MAX;

/// Why a run is dead-lettered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterReason {
    /// All attempts ended without a result.
    AttemptsLost,
    /// All deliveries ended without a lease.
    NotLeased,
}

impl DeadLetterReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsLost => "attempts_lost",
            Self::NotLeased => "not_leased",
        }
    }
}

/// The deliveries of a launch, according to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// The last delivery in the log.
    pub last: Option<WorkPosition>,
    /// The last delivery that led to a lease.
    pub leased: Option<WorkPosition>,
    /// Later deliveries that a node began on and stored.
    pub counted: u32,
}

impl Deliveries {
    pub(super) fn count(&mut self, work: WorkPosition) {
        self.last = Some(work);
        self.counted += 1;
    }

    /// A lease was granted, by `work` or to a gateway. A lease beyond the last allowed one only ends the run.
    pub(super) fn lease(&mut self, work: Option<WorkPosition>) {
        if let Some(work) = work {
            self.last = Some(work);
            self.leased = Some(work);
        }
        if self.counted <= DELIVERIES_COUNTED_MAX {
            self.counted = 0;
        }
    }
}

impl Run {
    /// Whether a node that begins on `work` must first store the delivery.
    pub fn is_suspected(&self, work: &WorkPosition) -> bool {
        let leased = self
            .deliveries
            .leased
            .filter(|leased| leased.is_same_message(work));
        let since = work
            .delivery
            .saturating_sub(leased.map_or(0, |leased| leased.delivery));
        matches!(self.phase, Phase::Queued) && since > DELIVERIES_UNCOUNTED
    }

    /// Why the run is dead-lettered, if it is.
    pub fn dead_letter(&self) -> Option<DeadLetterReason> {
        if self.attempts_lost >= ATTEMPTS_LOST_MAX {
            return Some(DeadLetterReason::AttemptsLost);
        }
        let is_undeliverable = self.deliveries.counted > DELIVERIES_COUNTED_MAX;
        is_undeliverable.then_some(DeadLetterReason::NotLeased)
    }

    /// The error of a run that is dead-lettered for `reason`.
    pub(super) fn dead_letter_error(&self, reason: DeadLetterReason) -> RunError {
        let deliveries = self.deliveries.last.map_or(0, |last| last.delivery);
        let mut text = match reason {
            DeadLetterReason::AttemptsLost => {
                format!("{} attempts ended without a result", self.attempts_lost)
            }
            DeadLetterReason::NotLeased => {
                format!(
                    "the launch was delivered {deliveries} times, and the last delivery led to no attempt"
                )
            }
        };
        if let Some(error) = &self.last_loss {
            let _ = write!(text, "; the last: {} ({})", error.message, error.code);
        }
        let detail = json!({
            "reason": reason, "attempts_lost": self.attempts_lost, "deliveries": deliveries,
            "last_error": self.last_loss.as_ref().map(|error| json!({"code": error.code, "message": error.message})),
        });
        RunError::new(ErrorCode::DeadLetter, text)
            .with_detail(detail)
            .bounded()
    }
}

impl Ended {
    /// Why the run was dead-lettered, if this is the end of a dead letter.
    pub fn dead_letter(&self) -> Option<DeadLetterReason> {
        let error = self.error.as_ref()?;
        (self.outcome == Outcome::Failed).then(|| error.dead_letter())?
    }
}

impl RunError {
    /// Why a run that ended with this error was dead-lettered; capsules choose their own codes.
    fn dead_letter(&self) -> Option<DeadLetterReason> {
        let is_ours = self.source == ErrorSource::Platform;
        if !is_ours || self.code != ErrorCode::DeadLetter.as_str() {
            return None;
        }
        let reason = self.detail.as_ref()?.get("reason")?;
        DeadLetterReason::deserialize(reason).ok()
    }

    /// The error of an attempt whose lease another attempt took over.
    pub fn replaced() -> Self {
        let text = "the holder reported no progress for the lease time";
        Self::new(ErrorCode::NodeLost, text)
    }
}
