//! Retries: kinds of failures, maximum numbers, and pauses.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Outcome, Run, RunError};
use crate::contract::pointer_part;
use crate::digest::Hasher;
use crate::error_code::{ErrorCode, ErrorSource};

/// Maximum retries of each kind that a request may set: with the longest pause more than an hour.
pub const RETRIES_MAX: u32 = 20;

/// The pause before the first retry; it doubles with each retry, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(300);

/// Maximum retries of a failed run, by the kind of failure. In addition, AOD retries failures of the platform, up to
/// [`super::ATTEMPTS_LOST_MAX`]; a cancel and the deadline are final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// After failures of the capsule.
    #[serde(default)]
    pub capsule: u32,
    /// After the capsule exceeded its running time, or sent no sign of life.
    #[serde(default)]
    pub time: u32,
}

impl Retries {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the retries of a request.
    ///
    /// # Errors
    /// All mistakes, each with the JSON pointer into `given` and the expected value.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Vec<(String, String)>> {
        let mut retries = Self::default();
        let mut errors = Vec::new();
        for (name, value) in given {
            let kind = match name.as_str() {
                "capsule" => FailureKind::Capsule,
                "time" => FailureKind::Time,
                _ => {
                    let message = "unknown kind of failure; expected capsule or time";
                    errors.push((format!("/{}", pointer_part(name)), message.to_owned()));
                    continue;
                }
            };
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            match number.filter(|number| *number <= RETRIES_MAX) {
                Some(number) => *retries.get_mut(kind) = number,
                None => {
                    let message = format!("expected a whole number from 0 to {RETRIES_MAX}");
                    errors.push((format!("/{name}"), message));
                }
            }
        }
        if errors.is_empty() {
            Ok(retries)
        } else {
            Err(errors)
        }
    }

    fn get(self, kind: FailureKind) -> u32 {
        match kind {
            FailureKind::Capsule => self.capsule,
            FailureKind::Time => self.time,
        }
    }

    fn get_mut(&mut self, kind: FailureKind) -> &mut u32 {
        match kind {
            FailureKind::Capsule => &mut self.capsule,
            FailureKind::Time => &mut self.time,
        }
    }
}

/// Kinds of failures that a request can have retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The capsule failed.
    Capsule,
    /// The capsule exceeded its running time, or sent no sign of life.
    Time,
}

/// Another attempt, after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub kind: FailureKind,
    pub pause: Duration,
}

impl FailureKind {
    fn of(outcome: Outcome, error: &RunError) -> Option<Self> {
        match outcome {
            Outcome::TimedOut if is_of_running(&error.code) => Some(Self::Time),
            // For its own errors, the capsule reports whether a retry can help.
            Outcome::Failed if error.source == ErrorSource::Capsule => {
                (is_ours(&error.code) || error.retryable).then_some(Self::Capsule)
            }
            _ => None,
        }
    }
}

/// Whether a running capsule was ended for its time. Runs that waited too long in the queue, or passed their deadline,
/// are not retried.
fn is_of_running(code: &str) -> bool {
    [ErrorCode::TimedOut, ErrorCode::HeartbeatMissed]
        .iter()
        .any(|known| known.as_str() == code)
}

/// Whether AOD reports this failure of a capsule, not the capsule itself.
fn is_ours(code: &str) -> bool {
    ErrorCode::ALL.iter().any(|known| {
        let is_told_by_capsules = *known == ErrorCode::CapsuleError;
        known.as_str() == code && known.source() == ErrorSource::Capsule && !is_told_by_capsules
    })
}

/// The pause after `failed` earlier pauses; `hasher` has what tells those apart that fail at the same time.
pub fn pause_after(failed: u32, hasher: Hasher) -> Duration {
    let longest = PAUSE_FIRST
        .saturating_mul(1 << failed.min(16))
        .min(PAUSE_LONGEST);
    let draw = hasher.finish().as_bytes()[0];
    longest / 2 + longest / 2 * u32::from(draw) / u32::from(u8::MAX)
}

impl Run {
    /// The pause before a retry, if the attempt ends like this `now`; none if this is the end of the run: no retry is
    /// left, the run is to be cancelled, or its deadline would come first.
    pub fn retry_after(
        &self,
        outcome: Outcome,
        error: &RunError,
        now: jiff::Timestamp,
    ) -> Option<Retry> {
        let kind = FailureKind::of(outcome, error)?;
        if !self.has_retry(kind) || self.cancel.is_some() {
            return None;
        }
        let pause = self.pause();
        (now + pause < self.deadline()).then_some(Retry { kind, pause })
    }

    /// Half to the whole of a doubling pause. The run and its attempt determine the point in between, so that runs that
    /// failed together return at different times.
    fn pause(&self) -> Duration {
        let failed = self.failed.capsule + self.failed.time;
        let mut hasher = Hasher::new();
        hasher.field(self.id.token().as_bytes());
        hasher.field(&self.attempts.to_be_bytes());
        pause_after(failed, hasher)
    }

    /// Whether the request allows another attempt after one more failure of this kind.
    pub(super) fn has_retry(&self, kind: FailureKind) -> bool {
        self.failed.get(kind) < self.launched.event.retries.get(kind)
    }

    /// Counts the failure of an attempt.
    pub(super) fn count_failure(&mut self, kind: FailureKind) {
        *self.failed.get_mut(kind) += 1;
    }
}
