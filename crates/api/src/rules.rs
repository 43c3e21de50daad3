//! Types of `/v1/rules`: flow-control rules.

use std::collections::BTreeMap;

use aod_domain::flow::{
    CAPSULES_MAX, KeyPart, PARTS_MAX, RATE_SECONDS_MAX, RUNS_MAX, Rate, Rule, RuleName,
    TENANTS_MAX, WEIGHT_MAX, WEIGHTS_MAX,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::strict::{Fields, Result};

/// The body of `PUT /v1/rules/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRule {
    /// Capsules to which the rule applies; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capsules: Vec<String>,
    /// Tenants to which the rule applies; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Parts of a request whose values select the bucket: `tenant`, `capsule`, `requested_by`, `label:NAME`,
    /// `argument:/POINTER`; without a key, all runs share one bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Maximum number of concurrent runs in each bucket; 0 admits no run. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Maximum number of runs in each bucket that start within a period; default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateView>,
    /// Whether the buckets share the cluster's slots by their weights, regardless of the order of requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// Weights by the key of a bucket, from 1 to 1000; default: 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
}

impl SetRule {
    /// Reads the body of a request for the rule `name`.
    pub fn read(name: RuleName, bytes: &[u8]) -> Result<Rule> {
        let mut fields = Fields::parse(bytes)?;
        let rule = Rule {
            name,
            capsules: fields.words("capsules", CAPSULES_MAX),
            tenants: fields.words("tenants", TENANTS_MAX),
            key: fields.words("key", PARTS_MAX),
            concurrency_max: fields.number("concurrency", 0..=RUNS_MAX),
            rate: fields.part("rate", RateView::read).flatten(),
            is_fair: fields.flag("fair"),
            weights: fields.numbers("weights", WEIGHTS_MAX, &(1..=WEIGHT_MAX)),
        };
        if rule.is_fair && rule.key.is_empty() {
            fields.error("/key", "missing; `fair` needs a key with at least one part");
        }
        if !rule.is_fair && !rule.weights.is_empty() {
            fields.error("/weights", "weights require `fair`");
        }
        fields.finish()?;
        Ok(rule)
    }
}

/// Number of runs within a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateView {
    /// From 1 to 1000000.
    pub runs: u32,
    /// From 1 to 3600.
    pub seconds: u32,
}

impl RateView {
    fn read(fields: &mut Fields) -> Option<Rate> {
        let runs = fields.required_number("runs", 1..=RUNS_MAX);
        let seconds = fields.required_number("seconds", 1..=RATE_SECONDS_MAX);
        Some(Rate {
            runs: runs?,
            seconds: seconds?,
        })
    }
}

impl From<Rate> for RateView {
    fn from(Rate { runs, seconds }: Rate) -> Self {
        Self { runs, seconds }
    }
}

/// A rule with its current counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    pub name: String,
    #[serde(flatten)]
    pub rule: SetRule,
    /// Runs that the rule has admitted and that have not ended, as known to the gateway that answers.
    pub going: usize,
    /// Runs that wait for the rule, possibly also for other rules.
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

/// All rules, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    pub items: Vec<RuleView>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value) -> Result<Rule> {
        let name = "a".parse().expect("a name");
        SetRule::read(name, body.to_string().as_bytes())
    }

    #[test]
    fn rule_is_read_as_it_is_shown() {
        let body = json!({
            "capsules": ["survey"],
            "tenants": ["acme"],
            "key": ["tenant", "label:team"],
            "concurrency": 3,
            "rate": {"runs": 10, "seconds": 60},
            "fair": true,
            "weights": {"acme": 5},
        });
        let rule = read(&body).expect("a rule");
        assert_eq!(
            serde_json::to_value(SetRule::from(&rule)).expect("plain data"),
            body
        );
    }

    #[test]
    fn all_problems_of_a_rule_are_reported() {
        let body = json!({
            "capsules": ["A b"],
            "tenants": [7],
            "key": ["nothing"],
            "concurrency": RUNS_MAX + 1,
            "rate": {"runs": 0, "minutes": 1},
            "weights": {"acme": WEIGHT_MAX + 1, "other": 1},
        });
        let errors = read(&body).expect_err("problems").errors;
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = [
            "/capsules/0",
            "/tenants/0",
            "/key/0",
            "/concurrency",
            "/rate/runs",
            "/rate/seconds",
            "/rate/minutes",
            "/weights/acme",
            "/weights",
        ];
        assert_eq!(pointers, expected, "{errors:?}");
    }

    #[test]
    fn fair_shares_need_a_key() {
        assert!(read(&json!({"fair": true})).is_err());
        assert!(read(&json!({"fair": true, "key": ["tenant"]})).is_ok());
    }
}
