//! Retention policies of operators, and holds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::PolicyName;
use crate::artifacts::Role;
use crate::chain::Chain;
use crate::digest::Digest;
use crate::event::Recorded;
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::Outcome;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;
use crate::text;

/// Maximum policies of one cluster: each tree is checked against each policy.
pub const POLICIES_MAX: usize = 64;

/// Maximum trees with a hold.
pub const HOLDS_MAX: usize = 10_000;

/// Maximum tenants, capsules and labels that one policy names.
pub const TENANTS_MAX: usize = 64;
pub const CAPSULES_MAX: usize = 64;
pub const LABELS_MAX: usize = 16;

/// Longest time of a policy, in seconds: a hundred years. For longer times, use `forever`.
pub const KEEP_SECONDS_MAX: u64 = 100 * 366 * 24 * 60 * 60;

/// The classes of artifacts that policies distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Output of containers.
    Logs,
    /// Inputs, outputs, payloads, and model requests and answers.
    Files,
    /// Images, packed directories and manifests of capsules.
    Capsules,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Logs, Self::Files, Self::Capsules];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Files => "files",
            Self::Capsules => "capsules",
        }
    }
}

impl From<Role> for Class {
    fn from(role: Role) -> Self {
        match role {
            Role::File => Self::Files,
            Role::Logs => Self::Logs,
            Role::Manifest | Role::Image => Self::Capsules,
        }
    }
}

/// How long artifacts are kept after the end of their tree; as text `30d`, `12h`, `90m`, `45s` or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Up to [`KEEP_SECONDS_MAX`].
    Seconds(u64),
    Forever,
}

/// The units of times in seconds, largest first.
const UNITS: [(char, u64); 4] = [('d', 24 * 60 * 60), ('h', 60 * 60), ('m', 60), ('s', 1)];

impl fmt::Display for Keep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Seconds(seconds) = *self else {
            return formatter.write_str("forever");
        };
        let whole = UNITS.iter().find(|(_, unit)| seconds % unit == 0);
        let (letter, unit) = whole.copied().unwrap_or(('s', 1));
        write!(formatter, "{}{letter}", seconds / unit)
    }
}

/// A text that cannot be a [`Keep`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid time {0:?}; expected a time such as 30d, 12h, 90m or 45s, at most 100 years, or forever"
)]
pub struct MalformedKeep(String);

impl FromStr for Keep {
    type Err = MalformedKeep;

    fn from_str(text: &str) -> Result<Self, MalformedKeep> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let read = || {
            let (letter, unit) = UNITS.iter().find(|(letter, _)| text.ends_with(*letter))?;
            let digits = text.strip_suffix(*letter)?;
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = digits.parse().ok().filter(|_| is_plain)?;
            let seconds = number.checked_mul(*unit)?;
            (seconds <= KEEP_SECONDS_MAX).then_some(Self::Seconds(seconds))
        };
        read().ok_or_else(|| MalformedKeep(text.chars().take(80).collect()))
    }
}

impl Serialize for Keep {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

/// A retention policy. For a class without a time, the policy sets nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub name: PolicyName,
    /// The tenants whose trees the policy matches; all tenants if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_tenants: Vec<Tenant>,
    /// The capsules of the roots that the policy matches; all capsules if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_capsules: Vec<CapsuleName>,
    /// The labels that the root must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub for_labels: BTreeMap<String, String>,
    /// The outcomes of the roots that the policy matches; all outcomes if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_outcomes: Vec<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Keep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Keep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capsules: Option<Keep>,
}

/// The properties of an ended tree that policies match. The former version of a capsule counts as a tree without labels
/// and outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) capsule: &'a CapsuleName,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) outcome: Option<Outcome>,
    pub(super) ended_at: Timestamp,
}

impl Policy {
    pub const fn keep(&self, class: Class) -> Option<Keep> {
        match class {
            Class::Logs => self.logs,
            Class::Files => self.files,
            Class::Capsules => self.capsules,
        }
    }

    fn is_for(&self, facts: &Facts<'_>) -> bool {
        let has = |(name, value): (&String, &String)| facts.labels.get(name) == Some(value);
        (self.for_tenants.is_empty() || self.for_tenants.contains(facts.tenant))
            && (self.for_capsules.is_empty() || self.for_capsules.contains(facts.capsule))
            && self.for_labels.iter().all(has)
            && (self.for_outcomes.is_empty()
                || facts
                    .outcome
                    .is_some_and(|outcome| self.for_outcomes.contains(&outcome)))
    }
}

/// An order that no artifact of a tree is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub reason: String,
    pub held_by: String,
    pub held_at: Timestamp,
}

/// Changes of policies and holds; the latest event of each policy and each tree counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.retention.policy_set.v1")]
    PolicySet {
        policy: Policy,
        requested_by: String,
    },
    #[serde(rename = "dev.aod.retention.policy_removed.v1")]
    PolicyRemoved {
        name: PolicyName,
        requested_by: String,
    },
    /// No artifact that the tree of `run`, a root, names is deleted any more.
    #[serde(rename = "dev.aod.retention.hold_placed.v1")]
    HoldPlaced {
        run: RunId,
        reason: String,
        requested_by: String,
    },
    #[serde(rename = "dev.aod.retention.hold_removed.v1")]
    HoldRemoved { run: RunId, requested_by: String },
}

impl Event {
    pub fn subject(&self) -> Subject {
        let (id, word) = match self {
            Self::PolicySet { policy, .. } => (policy.name.to_string(), "policy_set"),
            Self::PolicyRemoved { name, .. } => (name.to_string(), "policy_removed"),
            Self::HoldPlaced { run, .. } => (run.token(), "hold_placed"),
            Self::HoldRemoved { run, .. } => (run.token(), "hold_removed"),
        };
        subject::retention_event(&id, word)
    }
}

/// The state of all policies and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub policies: BTreeMap<PolicyName, Policy>,
    /// By root.
    pub holds: BTreeMap<RunId, Hold>,
    pub(super) last: Option<(u64, Digest)>,
}

impl Chain for Retention {
    type Event = Event;
    type Broken = Infallible;

    fn name(&self) -> String {
        "the retention policies and holds".to_owned()
    }

    fn filter(&self) -> String {
        subject::RETENTION.to_owned()
    }

    fn subject(&self, event: &Event) -> Subject {
        event.subject()
    }

    fn about(&self, event: &Event) -> String {
        match event {
            Event::PolicySet { policy, .. } => format!("retention/{}", policy.name),
            Event::PolicyRemoved { name, .. } => format!("retention/{name}"),
            Event::HoldPlaced { run, .. } | Event::HoldRemoved { run, .. } => run.to_string(),
        }
    }

    fn last(&self) -> Option<(u64, Digest)> {
        self.last
    }

    fn apply(&mut self, recorded: Recorded<Event>) -> Result<(), Infallible> {
        self.last = Some((recorded.sequence, recorded.hash));
        match recorded.event {
            Event::PolicySet { policy, .. } => {
                self.policies.insert(policy.name.clone(), policy);
            }
            Event::PolicyRemoved { name, .. } => drop(self.policies.remove(&name)),
            Event::HoldPlaced {
                run,
                reason,
                requested_by,
            } => {
                let hold = Hold {
                    reason,
                    held_by: requested_by,
                    held_at: recorded.time,
                };
                self.holds.insert(run.root(), hold);
            }
            Event::HoldRemoved { run, .. } => drop(self.holds.remove(&run.root())),
        }
        Ok(())
    }
}

/// Why a change of the policies and holds is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("there are {POLICIES_MAX} policies, the maximum: remove one first")]
    TooManyPolicies,
    #[error("{HOLDS_MAX} trees have a hold, the maximum: remove a hold first")]
    TooManyHolds,
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    #[error("the tree of {0} has no hold")]
    UnknownHold(RunId),
}

/// Checks that `event` may be stored next.
///
/// # Errors
/// The [`Rejection`].
pub fn check(retention: &Retention, event: &Event) -> Result<(), Rejection> {
    let Retention {
        policies, holds, ..
    } = retention;
    match event {
        Event::PolicySet { policy, .. } => {
            let is_new = !policies.contains_key(&policy.name);
            refuse_if(is_new && policies.len() >= POLICIES_MAX, || {
                Rejection::TooManyPolicies
            })
        }
        Event::PolicyRemoved { name, .. } => refuse_if(!policies.contains_key(name), || {
            Rejection::UnknownPolicy(name.clone())
        }),
        Event::HoldPlaced { run, .. } => {
            let is_new = !holds.contains_key(&run.root());
            refuse_if(is_new && holds.len() >= HOLDS_MAX, || {
                Rejection::TooManyHolds
            })
        }
        Event::HoldRemoved { run, .. } => refuse_if(!holds.contains_key(&run.root()), || {
            Rejection::UnknownHold(*run)
        }),
    }
}

fn refuse_if(is_refused: bool, rejection: impl FnOnce() -> Rejection) -> Result<(), Rejection> {
    if is_refused { Err(rejection()) } else { Ok(()) }
}

impl Retention {
    /// The sequence of the last change; 0 without one.
    pub fn sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    /// How long artifacts with these facts are kept: the longest time of all matching policies. Without any, artifacts
    /// stay.
    pub(super) fn keep(&self, facts: &Facts<'_>, class: Class) -> Option<Keep> {
        let policies = self.policies.values();
        let stated = policies
            .filter(|policy| policy.is_for(facts))
            .filter_map(|policy| policy.keep(class));
        stated.max()
    }
}

/// Whether artifacts of a tree that ended at `ended_at` still stay at `now`.
pub(super) fn is_kept(keep: Keep, ended_at: Timestamp, now: Timestamp) -> bool {
    match keep {
        Keep::Forever => true,
        Keep::Seconds(seconds) => {
            let seconds = i64::try_from(seconds.min(KEEP_SECONDS_MAX)).unwrap_or(i64::MAX);
            let until = ended_at.saturating_add(SignedDuration::from_secs(seconds));
            until.unwrap_or(Timestamp::MAX) > now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    #[test]
    fn times_round_trip() {
        for (text, seconds) in [
            ("0d", 0),
            ("30d", 30 * DAY),
            ("25h", 25 * 3_600),
            ("90m", 5_400),
            ("45s", 45),
        ] {
            assert_eq!(text.parse(), Ok(Keep::Seconds(seconds)), "{text}");
            assert_eq!(Keep::Seconds(seconds).to_string(), text);
        }
        assert_eq!("forever".parse(), Ok(Keep::Forever));
        assert_eq!(
            "7200s".parse::<Keep>().map(|keep| keep.to_string()),
            Ok("2h".into())
        );
        for text in [
            "",
            "d",
            "30",
            "-1d",
            "+1d",
            "1.5d",
            "1y",
            "99999999999999999999d",
            "40000d",
            "Forever",
        ] {
            assert!(text.parse::<Keep>().is_err(), "{text}");
        }
        assert!(Keep::Forever > Keep::Seconds(KEEP_SECONDS_MAX));
    }
}
