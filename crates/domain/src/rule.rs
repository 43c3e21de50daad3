//! Flow-control rules: the settings of an operator for matching runs.

mod admission;
mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::admission::{Admission, Held, PRIORITY_MAX};
pub use self::rules::{Rejection, Rules, check};
use crate::digest::Digest;
use crate::name::{CapsuleName, RuleName};
use crate::subject::{self, Subject};
use crate::tenant::Tenant;
use crate::text;

/// Maximum rules of one cluster: each request is checked against each rule.
pub const RULES_MAX: usize = 64;

/// Maximum concurrency, and maximum starts within the period of a rate, for one key.
pub const RUNS_MAX: u32 = 1_000_000;

/// Longest period of a rate, in seconds: a gateway that starts to admit reads the log back that far.
pub const RATE_SECONDS_MAX: u32 = 60 * 60;

/// Largest weight of a share.
pub const WEIGHT_MAX: u32 = 1_000;

/// Maximum parts of one key, weights of one rule, and capsules and tenants that one rule names.
pub const PARTS_MAX: usize = 4;
pub const WEIGHTS_MAX: usize = 1_000;
pub const CAPSULES_MAX: usize = 64;
pub const TENANTS_MAX: usize = 64;

/// Longest text of a key, in bytes; a longer text is replaced by its hash.
const KEY_BYTES_MAX: usize = 160;

/// A part of a request; each of its values has its own bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyPart {
    /// The name of the capsule.
    Capsule,
    /// The tenant of the run.
    Tenant,
    /// The principal that requested the root.
    RequestedBy,
    /// The value of a label of the root.
    Label(String),
    /// The value that a JSON pointer finds in the arguments.
    Argument(String),
}

impl fmt::Display for KeyPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capsule => formatter.write_str("capsule"),
            Self::Tenant => formatter.write_str("tenant"),
            Self::RequestedBy => formatter.write_str("requested_by"),
            Self::Label(name) => write!(formatter, "label:{name}"),
            Self::Argument(pointer) => write!(formatter, "argument:{pointer}"),
        }
    }
}

/// A text that cannot be a [`KeyPart`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown key part {0:?}; expected capsule, tenant, requested_by, label:NAME or argument:/POINTER"
)]
pub struct MalformedKeyPart(String);

impl FromStr for KeyPart {
    type Err = MalformedKeyPart;

    fn from_str(text: &str) -> Result<Self, MalformedKeyPart> {
        let malformed = || MalformedKeyPart(text.chars().take(80).collect());
        match text.split_once(':') {
            None if text == "capsule" => Ok(Self::Capsule),
            None if text == "tenant" => Ok(Self::Tenant),
            None if text == "requested_by" => Ok(Self::RequestedBy),
            Some(("label", name)) if !name.is_empty() => Ok(Self::Label(name.into())),
            Some(("argument", pointer)) if pointer.starts_with('/') => {
                Ok(Self::Argument(pointer.into()))
            }
            _ => Err(malformed()),
        }
    }
}

impl Serialize for KeyPart {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyPart {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

/// A maximum of `runs` starts within `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// From 1 to [`RUNS_MAX`].
    pub runs: u32,
    /// From 1 to [`RATE_SECONDS_MAX`].
    pub seconds: u32,
}

/// A flow-control rule. Runs that match it wait for admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub name: RuleName,
    /// The capsules that the rule matches; all capsules if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capsules: Vec<CapsuleName>,
    /// The tenants that the rule matches; all tenants if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// The parts of a request whose values have their own buckets; without any, all matching runs share one bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyPart>,
    /// Maximum concurrent runs for each key, from 0, which blocks all runs, to [`RUNS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_max: Option<u32>,
    /// Maximum starts for each key within a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Whether the keys share the cluster's slots by weight, regardless of the order of the requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_fair: bool,
    /// The weights of keys, from 1 to [`WEIGHT_MAX`]; other keys have weight 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
}

/// The bucket of one value of a rule's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleKey {
    pub rule: RuleName,
    /// The values of the key's parts, separated by commas; empty if the rule has no key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl fmt::Display for RuleKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(formatter, "{}", self.rule),
            key => write!(formatter, "{} for {key}", self.rule),
        }
    }
}

/// The properties of a request that rules match.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub capsule: &'a CapsuleName,
    pub tenant: &'a Tenant,
    /// The principal that requested the root.
    pub requested_by: &'a str,
    /// The labels of the root.
    pub labels: &'a BTreeMap<String, String>,
    pub arguments: &'a Value,
}

impl Rule {
    /// The bucket of this rule that a request with `facts` needs; none if the rule does not match.
    pub fn bucket(&self, facts: &Facts<'_>) -> Option<RuleKey> {
        let is_for_capsule = self.capsules.is_empty() || self.capsules.contains(facts.capsule);
        let is_for_tenant = self.tenants.is_empty() || self.tenants.contains(facts.tenant);
        if !is_for_capsule || !is_for_tenant {
            return None;
        }
        let values: Vec<String> = self.key.iter().map(|part| value(part, facts)).collect();
        let text = values.join(",");
        let key = if text.len() <= KEY_BYTES_MAX {
            text
        } else {
            Digest::of(&text).to_string()
        };
        let rule = self.name.clone();
        Some(RuleKey { rule, key })
    }

    /// Whether callees wait for the rule too: shares apply only to roots, since callees go first.
    pub(super) fn is_for_callees(&self) -> bool {
        self.concurrency_max.is_some() || self.rate.is_some()
    }

    pub(super) fn weight(&self, key: &str) -> u64 {
        self.weights.get(key).copied().unwrap_or(1).max(1).into()
    }
}

fn value(part: &KeyPart, facts: &Facts<'_>) -> String {
    match part {
        KeyPart::Capsule => facts.capsule.to_string(),
        KeyPart::Tenant => facts.tenant.to_string(),
        KeyPart::RequestedBy => facts.requested_by.to_owned(),
        KeyPart::Label(name) => facts.labels.get(name).cloned().unwrap_or_default(),
        KeyPart::Argument(pointer) => match facts.arguments.pointer(pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        },
    }
}

/// Changes of rules; the latest event of each name counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    #[serde(rename = "dev.aod.rule.set.v1")]
    Set { rule: Rule, requested_by: String },
    #[serde(rename = "dev.aod.rule.removed.v1")]
    Removed {
        name: RuleName,
        requested_by: String,
    },
}

impl Event {
    pub fn name(&self) -> &RuleName {
        match self {
            Self::Set { rule, .. } => &rule.name,
            Self::Removed { name, .. } => name,
        }
    }

    pub fn subject(&self) -> Subject {
        let word = match self {
            Self::Set { .. } => "set",
            Self::Removed { .. } => "removed",
        };
        subject::rule_event(self.name(), word)
    }
}
