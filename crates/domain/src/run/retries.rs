//! Which failures are tried again, how often, and after what pause.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Outcome, Run, RunError};
use crate::contract::pointer_part;
use crate::digest::Hasher;
use crate::error_code::{ErrorCode, ErrorSource};

/// Most retries that a request may ask for, for each kind: with the longest pause more than an hour.
pub const RETRIES_MAX: u32 = 20;

/// The pause before the first retry; each further one is twice as long, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(300);

/// How often a failed run is tried again, by the kind of the failure. What the platform fails is
/// tried again beside this, up to [`super::ATTEMPTS_LOST_MAX`]; a cancel and the deadline are final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// After failures of the capsule.
    #[serde(default)]
    pub capsule: u32,
    /// After running longer than it may, or showing no sign of life.
    #[serde(default)]
    pub time: u32,
}

impl Retries {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Reads what a request says.
    ///
    /// # Errors
    /// All that is wrong, as JSON pointers into `given` and what was expected there.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Vec<(String, String)>> {
        let mut retries = Self::default();
        let mut errors = Vec::new();
        for (name, value) in given {
            let kind = match name.as_str() {
                "capsule" => FailureKind::Capsule,
                "time" => FailureKind::Time,
                _ => {
                    let message = "no such kind of failures; there are capsule, time";
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

/// Kinds of failures that may be tried again because the request says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The capsule failed.
    Capsule,
    /// It ran longer than it may, or showed no sign of life.
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
            // Of an error of its own the capsule says whether another try is of use.
            Outcome::Failed if error.source == ErrorSource::Capsule => {
                (is_ours(&error.code) || error.retryable).then_some(Self::Capsule)
            }
            _ => None,
        }
    }
}

/// Whether a capsule that ran was ended for its time. What was queued too long, or is past its
/// deadline, is not tried again.
fn is_of_running(code: &str) -> bool {
    [ErrorCode::TimedOut, ErrorCode::HeartbeatMissed]
        .iter()
        .any(|known| known.as_str() == code)
}

/// Whether we say of capsules that they failed like this, not they themselves.
fn is_ours(code: &str) -> bool {
    ErrorCode::ALL.iter().any(|known| {
        let is_told_by_capsules = *known == ErrorCode::CapsuleError;
        known.as_str() == code && known.source() == ErrorSource::Capsule && !is_told_by_capsules
    })
}

impl Run {
    /// After which pause the run is tried again if its attempt ends like this `now`; none if this is
    /// its end: it may not be, it is to be cancelled, or its deadline would come first.
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

    /// Half to the whole of a pause that doubles. Where between is drawn from the run and its attempt,
    /// so that many which failed together come back apart.
    fn pause(&self) -> Duration {
        let failed = self.failed.capsule + self.failed.time;
        let longest = PAUSE_FIRST
            .saturating_mul(1 << failed.min(16))
            .min(PAUSE_LONGEST);
        let mut hasher = Hasher::new();
        hasher.field(self.id.token().as_bytes());
        hasher.field(&self.attempts.to_be_bytes());
        let draw = hasher.finish().as_bytes()[0];
        longest / 2 + longest / 2 * u32::from(draw) / u32::from(u8::MAX)
    }

    /// Whether the request wants another attempt after one more failure of this kind.
    pub(super) fn has_retry(&self, kind: FailureKind) -> bool {
        self.failed.get(kind) < self.launched.event.retries.get(kind)
    }

    /// Counts the failure of an attempt.
    pub(super) fn count_failure(&mut self, kind: FailureKind) {
        *self.failed.get_mut(kind) += 1;
    }
}
