//! Rules of flow control as people see and set them.

use std::collections::BTreeMap;

use aod_domain::flow::{KeyPart, Rate, Rule};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of `PUT /v1/rules/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRule {
    /// The capsules that it is for, by their names; all of them unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capsules: Vec<String>,
    /// The tenants that it is for; all of them unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// What tells runs apart that have room of their own: `tenant`, `capsule`, `requested_by`, `label:NAME`,
    /// `argument:/POINTER`; without any, all share one room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Runs of one key that go at once; with 0 none begins. No bound unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Runs of one key that begin within a time; no bound unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateView>,
    /// Whether the keys share the cluster's slots, each by its weight, whoever asked first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// Weights of keys, from 1 to 1000; of the others 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
}

/// So many runs within so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateView {
    /// From 1 to 1000000.
    pub runs: u32,
    /// From 1 to 3600.
    pub seconds: u32,
}

impl From<Rate> for RateView {
    fn from(Rate { runs, seconds }: Rate) -> Self {
        Self { runs, seconds }
    }
}

/// A rule as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    pub name: String,
    #[serde(flatten)]
    pub rule: SetRule,
    /// Runs that it lets go now, as the answering gateway was told.
    pub going: usize,
    /// Runs that wait for it, among other things.
    pub waiting: usize,
}

impl From<&Rule> for SetRule {
    fn from(rule: &Rule) -> Self {
        Self {
            capsules: rule.capsules.iter().map(ToString::to_string).collect(),
            tenants: rule.tenants.iter().map(ToString::to_string).collect(),
            key: rule.key.iter().map(KeyPart::to_string).collect(),
            concurrency: rule.concurrency_max,
            rate: rule.rate.map(Into::into),
            fair: rule.is_fair,
            weights: rule.weights.clone(),
        }
    }
}

/// All rules, by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    pub items: Vec<RuleView>,
}
