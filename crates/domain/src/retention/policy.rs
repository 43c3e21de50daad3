//! What operators lay down about keeping, and what they hold.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::PolicyName;
use crate::artifacts::Role;
use crate::event::Recorded;
use crate::id::RunId;
use crate::manifest::CapsuleName;
use crate::run::Outcome;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;
use crate::text;

/// Policies of one cluster: each is looked at for each tree.
pub const POLICIES_MAX: usize = 64;

/// Trees that are held at one time.
pub const HOLDS_MAX: usize = 10_000;

/// Tenants, capsules and labels that one policy names.
pub const TENANTS_MAX: usize = 64;
pub const CAPSULES_MAX: usize = 64;
pub const LABELS_MAX: usize = 16;

/// Longest time that a policy can state, in seconds: a hundred years. What is longer is for ever.
pub const KEEP_SECONDS_MAX: u64 = 100 * 366 * 24 * 60 * 60;

/// Characters of the reason of a hold.
pub const REASON_LENGTH_MAX: usize = 1_000;

/// What policies tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// What containers wrote.
    Logs,
    /// Inputs, outputs, payloads, and what was said to models.
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

/// How long something is kept after the end of its tree; as text `30d`, `12h`, `90m`, `45s` or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Up to [`KEEP_SECONDS_MAX`].
    Seconds(u64),
    Forever,
}

/// The units of times, with their seconds, the largest first.
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
#[error("{0:?} is no time like 30d, 12h, 90m, 45s or forever, of a hundred years at the most")]
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

/// What an operator lays down about the trees that it is for. Where it states no time for a class, it says
/// nothing about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub name: PolicyName,
    /// The tenants whose trees it is for; all of them if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_tenants: Vec<Tenant>,
    /// The capsules of the roots that it is for; all of them if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_capsules: Vec<CapsuleName>,
    /// The labels that the root must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub for_labels: BTreeMap<String, String>,
    /// How the root must have ended; in any way if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_outcomes: Vec<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Keep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Keep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capsules: Option<Keep>,
}

/// What policies look at in a tree that has ended. Of a capsule that was registered anew, its former version
/// is as a tree without labels and outcome.
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

/// A tree that is not to be touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub reason: String,
    pub held_by: String,
    pub held_at: Timestamp,
}

/// What operators did about keeping; the latest about each policy and each tree counts.
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
    /// Nothing that the tree of `run`, a root, names goes any more.
    #[serde(rename = "dev.aod.retention.held.v1")]
    Held {
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
            Self::Held { run, .. } => (run.token(), "held"),
            Self::HoldRemoved { run, .. } => (run.token(), "hold_removed"),
        };
        subject::retention_event(&id, word)
    }

    /// What it is about, for its envelope.
    pub fn about(&self) -> String {
        match self {
            Self::PolicySet { policy, .. } => format!("retention/{}", policy.name),
            Self::PolicyRemoved { name, .. } => format!("retention/{name}"),
            Self::Held { run, .. } | Self::HoldRemoved { run, .. } => run.to_string(),
        }
    }
}

/// What all events about keeping add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub policies: BTreeMap<PolicyName, Policy>,
    /// By their roots.
    pub holds: BTreeMap<RunId, Hold>,
    /// The last of the events.
    pub last: u64,
}

impl Retention {
    /// Takes an event in; events come in the order of the log.
    pub fn apply(&mut self, recorded: Recorded<Event>) {
        self.last = recorded.sequence;
        match recorded.event {
            Event::PolicySet { policy, .. } => {
                self.policies.insert(policy.name.clone(), policy);
            }
            Event::PolicyRemoved { name, .. } => drop(self.policies.remove(&name)),
            Event::Held {
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
    }

    /// How long what has these facts is kept: of all policies that are for it and state a time, the longest
    /// counts. None without any: then it stays.
    pub(super) fn keep(&self, facts: &Facts<'_>, class: Class) -> Option<Keep> {
        let policies = self.policies.values();
        let stated = policies
            .filter(|policy| policy.is_for(facts))
            .filter_map(|policy| policy.keep(class));
        stated.max()
    }
}

/// Whether what ended at `ended_at` is kept so long that it stays at `now`.
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
