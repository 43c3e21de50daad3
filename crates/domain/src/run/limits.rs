//! Time limits on the parts of a run, in addition to its running time and its deadline.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Launched, Outcome, Run, RunError, later};
use crate::contract::pointer_part;
use crate::error_code::ErrorCode;

/// Maximum of a limit, in seconds: thirty days, the maximum lifetime of a run.
pub const LIMIT_SECONDS_MAX: u32 = 30 * 24 * 60 * 60;

/// Default time to bring image and files to a node, in seconds: an image of 10 GiB at 100 Mbit/s.
pub const PREPARATION_SECONDS_DEFAULT: u32 = 15 * 60;

/// Default time to store outputs and logs, in seconds: 8 GiB, the maximum that a run may write, at 120 Mbit/s.
pub const COLLECTION_SECONDS_DEFAULT: u32 = 10 * 60;

/// The names of the limits in a request, in the order in which they apply.
const NAMES: [&str; 4] = [
    "queue_seconds",
    "preparation_seconds",
    "heartbeat_seconds",
    "collection_seconds",
];

/// Limits on the parts of a run, in seconds. Without a limit, a part is bounded only by the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From the request until a node takes the run for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_seconds: Option<u32>,
    /// From the lease until image and files are on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation_seconds: Option<u32>,
    /// Between two signs of life of the capsule, without the time that it waits for callees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_seconds: Option<u32>,
    /// From the end of the capsule until its outputs and logs are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection_seconds: Option<u32>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the limits of a request; `null` counts as absent.
    ///
    /// # Errors
    /// All mistakes, each with the JSON pointer into `given` and the expected value.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Vec<(String, String)>> {
        let mut limits = Self::default();
        let mut errors = Vec::new();
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let pointer = format!("/{}", pointer_part(name));
            let Some(limit) = limits.get_mut(name) else {
                let message = format!("unknown limit; expected one of {}", NAMES.join(", "));
                errors.push((pointer, message));
                continue;
            };
            let seconds = value.as_u64().and_then(|number| u32::try_from(number).ok());
            *limit = seconds.filter(|seconds| is_possible(*seconds));
            if limit.is_none() {
                let message = format!("expected a whole number from 1 to {LIMIT_SECONDS_MAX}");
                errors.push((pointer, message));
            }
        }
        if errors.is_empty() {
            Ok(limits)
        } else {
            Err(errors)
        }
    }

    /// Whether all limits are within their bounds.
    pub fn are_possible(&self) -> bool {
        let given = [
            self.queue_seconds,
            self.preparation_seconds,
            self.heartbeat_seconds,
            self.collection_seconds,
        ];
        given.into_iter().flatten().all(is_possible)
    }

    /// These limits with defaults for a capsule: defaults are stored as if given.
    #[must_use]
    pub fn resolved(self) -> Self {
        Self {
            preparation_seconds: self
                .preparation_seconds
                .or(Some(PREPARATION_SECONDS_DEFAULT)),
            collection_seconds: self.collection_seconds.or(Some(COLLECTION_SECONDS_DEFAULT)),
            ..self
        }
    }

    pub fn preparation(&self) -> Option<Duration> {
        duration(self.preparation_seconds)
    }

    pub fn heartbeat(&self) -> Option<Duration> {
        duration(self.heartbeat_seconds)
    }

    pub fn collection(&self) -> Option<Duration> {
        duration(self.collection_seconds)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Option<u32>> {
        Some(match name {
            "queue_seconds" => &mut self.queue_seconds,
            "preparation_seconds" => &mut self.preparation_seconds,
            "heartbeat_seconds" => &mut self.heartbeat_seconds,
            "collection_seconds" => &mut self.collection_seconds,
            _ => return None,
        })
    }
}

fn is_possible(seconds: u32) -> bool {
    (1..=LIMIT_SECONDS_MAX).contains(&seconds)
}

fn duration(seconds: Option<u32>) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

/// When a node must have taken a run that was `launched` at `time` for the first time, if the request limits that.
pub fn queued_until(time: Timestamp, launched: &Launched) -> Option<Timestamp> {
    let seconds = launched.limits.queue_seconds?;
    Some(later(time, Duration::from_secs(seconds.into())))
}

impl Run {
    /// Like [`queued_until`].
    pub fn queued_until(&self) -> Option<Timestamp> {
        queued_until(self.launched.time, &self.launched.event)
    }

    /// Why the run ends unstarted, if no node took it in time; the limit does not apply to later attempts.
    pub(super) fn queued_too_long(&self, now: Timestamp) -> Option<(Outcome, RunError)> {
        let until = self.queued_until()?;
        if self.first_taken_at.unwrap_or(now) < until {
            return None;
        }
        let seconds = self.launched.event.limits.queue_seconds?;
        let text = format!("no node took the run within {seconds} s");
        let error = RunError::new(ErrorCode::QueueTimedOut, text);
        Some((Outcome::TimedOut, error))
    }
}
