//! When a run is given up: it lost as many attempts as it may, or its launch was delivered again and
//! again and never came to a lease.
//!
//! The broker counts every delivery, also those that a busy node gave back in good order. So its count
//! raises a suspicion only; what is proof are deliveries that a node with room began on, each written
//! down before anything else was done with it. A launch that kills its nodes leaves these behind.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ATTEMPTS_LOST_MAX, Ended, Outcome, Phase, Run, RunError, WorkPosition};
use crate::error_code::{ErrorCode, ErrorSource};

/// Deliveries in a row without a lease after which a launch is given up. Source: the settled points
/// of the design.
pub const DELIVERIES_MAX: u64 = DELIVERIES_UNCOUNTED + DELIVERIES_COUNTED_MAX as u64;

/// Deliveries in a row without a lease that are nobody's concern yet: nodes without room give launches
/// back, the broker restarts. They cost no event.
pub const DELIVERIES_UNCOUNTED: u64 = 45;

/// Deliveries after those that a node began on, and that came to no lease: as many as attempts may be
/// lost.
pub const DELIVERIES_COUNTED_MAX: u32 = ATTEMPTS_LOST_MAX;

/// Why a run was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterReason {
    /// Attempt after attempt ended without a result.
    AttemptsLost,
    /// Delivery after delivery came to no lease.
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

/// What the log tells of the deliveries of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// The last that the log has heard of.
    pub last: Option<WorkPosition>,
    /// The last that came to a lease.
    pub leased: Option<WorkPosition>,
    /// Those that a node began on since then and wrote down.
    pub counted: u32,
}

impl Deliveries {
    pub(super) fn count(&mut self, work: WorkPosition) {
        self.last = Some(work);
        self.counted += 1;
    }

    /// A lease was granted, by `work` or to a gateway. More than the last that is allowed is only
    /// leased to be ended.
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
    /// Whether a node that begins on `work` writes that down first.
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

    /// Why the run is given up, if it is.
    pub fn dead_letter(&self) -> Option<DeadLetterReason> {
        if self.attempts_lost >= ATTEMPTS_LOST_MAX {
            return Some(DeadLetterReason::AttemptsLost);
        }
        let is_undeliverable = self.deliveries.counted > DELIVERIES_COUNTED_MAX;
        is_undeliverable.then_some(DeadLetterReason::NotLeased)
    }

    /// What a run that is given up for `reason` ends with.
    pub(super) fn dead_letter_error(&self, reason: DeadLetterReason) -> RunError {
        let deliveries = self.deliveries.last.map_or(0, |last| last.delivery);
        let mut text = match reason {
            DeadLetterReason::AttemptsLost => {
                format!("{} attempts ended without a result", self.attempts_lost)
            }
            DeadLetterReason::NotLeased => {
                format!("{deliveries} deliveries of the launch, and the last came to no attempt")
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
    /// Why the run was given up, if this is the end of one that was.
    pub fn dead_letter(&self) -> Option<DeadLetterReason> {
        let error = self.error.as_ref()?;
        (self.outcome == Outcome::Failed).then(|| error.dead_letter())?
    }
}

impl RunError {
    /// Why the run was given up that ended with this; capsules choose codes of their own.
    fn dead_letter(&self) -> Option<DeadLetterReason> {
        let is_ours = self.source == ErrorSource::Platform;
        if !is_ours || self.code != ErrorCode::DeadLetter.as_str() {
            return None;
        }
        let reason = self.detail.as_ref()?.get("reason")?;
        DeadLetterReason::deserialize(reason).ok()
    }

    /// What became of an attempt whose lease another one took over.
    pub fn replaced() -> Self {
        let text = "nothing was heard of its holder for the lease time";
        Self::new(ErrorCode::NodeLost, text)
    }
}
