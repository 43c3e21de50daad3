//! Types of retention policies, holds and garbage collection.

use std::collections::BTreeMap;

use aod_domain::id::RunId;
use aod_domain::retention::{CAPSULES_MAX, Keep, LABELS_MAX, Policy, PolicyName, TENANTS_MAX};
use aod_domain::run::{LABEL_BYTES_MAX, Outcome, REASON_LENGTH_MAX};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::strict::{Fields, Malformed, Result};

/// The body of `PUT /v1/retention/{name}`. Times are strings: `30d`, `12h`, `90m`, `45s`, `forever`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// Tenants of the trees; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_tenants: Vec<String>,
    /// Capsules of the roots; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_capsules: Vec<String>,
    /// Labels that the root must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub for_labels: BTreeMap<String, String>,
    /// Outcomes of the root: `succeeded`, `failed`, `timed_out`, `cancelled`; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_outcomes: Vec<String>,
    /// Time to keep the output of containers after the end of the tree; default: the policy does not apply to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// As `logs`, for inputs, outputs, payloads, and requests and answers of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// As `logs`, for images, packed directories and manifests of capsule versions that are no longer registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capsules: Option<String>,
}

impl SetPolicy {
    /// Reads the body of a request for the policy `name`.
    pub fn read(name: PolicyName, bytes: &[u8]) -> Result<Policy> {
        let mut fields = Fields::parse(bytes)?;
        let policy = Policy {
            name,
            for_tenants: fields.words("for_tenants", TENANTS_MAX),
            for_capsules: fields.words("for_capsules", CAPSULES_MAX),
            for_labels: fields.texts("for_labels", LABELS_MAX, LABEL_BYTES_MAX),
            for_outcomes: read_outcomes(&mut fields),
            logs: fields.word::<Keep>("logs"),
            files: fields.word::<Keep>("files"),
            capsules: fields.word::<Keep>("capsules"),
        };
        fields.finish()?;
        if policy.logs.is_none() && policy.files.is_none() && policy.capsules.is_none() {
            let text = "the policy has no time; expected at least one of logs, files, capsules";
            return Err(Malformed::new(text));
        }
        Ok(policy)
    }
}

fn read_outcomes(fields: &mut Fields) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (index, value) in fields.list("for_outcomes").into_iter().enumerate() {
        let pointer = format!("/for_outcomes/{index}");
        match serde_json::from_value(value.clone()) {
            Ok(outcome) if !outcomes.contains(&outcome) => outcomes.push(outcome),
            Ok(_) => fields.error(pointer, "given twice"),
            Err(_) => {
                let expected = "one of succeeded, failed, timed_out, cancelled";
                fields.wrong(pointer, &value, expected);
            }
        }
    }
    outcomes
}

impl From<&Policy> for SetPolicy {
    fn from(policy: &Policy) -> Self {
        let text = |keep: Option<Keep>| keep.map(|keep| keep.to_string());
        let outcomes = policy.for_outcomes.iter();
        Self {
            for_tenants: policy.for_tenants.iter().map(ToString::to_string).collect(),
            for_capsules: policy
                .for_capsules
                .iter()
                .map(ToString::to_string)
                .collect(),
            for_labels: policy.for_labels.clone(),
            for_outcomes: outcomes
                .map(|outcome| outcome.as_str().to_owned())
                .collect(),
            logs: text(policy.logs),
            files: text(policy.files),
            capsules: text(policy.capsules),
        }
    }
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    pub name: String,
    #[serde(flatten)]
    pub policy: SetPolicy,
}

/// All policies, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    pub items: Vec<PolicyView>,
}

/// The body of `PUT /v1/holds/{run}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetHold {
    /// Reason, shown to people.
    pub reason: String,
}

impl SetHold {
    /// Reads the body.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::parse(bytes)?;
        let reason = fields.required_text("reason");
        if reason.chars().count() > REASON_LENGTH_MAX {
            let text = format!("too long; expected at most {REASON_LENGTH_MAX} characters");
            fields.error("/reason", text);
        }
        fields.finish()?;
        Ok(Self { reason })
    }
}

/// A tree whose artifacts garbage collection keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    /// Root of the tree.
    #[schema(value_type = String)]
    pub run: RunId,
    pub reason: String,
    pub held_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub held_at: Timestamp,
}

/// All trees with a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldList {
    pub items: Vec<HoldView>,
}

/// The body of `POST /v1/gc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// Report what garbage collection would delete, and delete nothing.
    #[serde(default)]
    pub dry_run: bool,
}

impl Collect {
    /// Reads an optional body.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::parse_optional(bytes)?;
        let dry_run = fields.flag("dry_run");
        fields.finish()?;
        Ok(Self { dry_run })
    }
}

/// Number and total size of the artifacts of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactCount {
    /// Kind of deleted artifacts: `logs`, `files`, `capsules`, `unnamed` (no event names them). Reason for keeping
    /// artifacts: `archive`, `held`, `registered`, `live`, `unknown`, `policy`, `no_policy`, `young`.
    pub kind: String,
    pub artifacts: u64,
    pub size_bytes: u64,
}

/// What a registered capsule occupies in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapsuleStorage {
    pub tenant: String,
    pub capsule: String,
    /// Size of its image, package and manifests. Parts that it shares with other capsules count in full.
    pub size_bytes: u64,
    /// Size of what only this capsule needs: after `aod capsule rm`, garbage collection may delete it.
    pub own_bytes: u64,
}

/// Result of a garbage collection; with `dry_run`, nothing was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collection {
    pub dry_run: bool,
    pub deleted: Vec<ArtifactCount>,
    pub kept: Vec<ArtifactCount>,
    /// What registered capsules occupy; those that occupy most come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capsules: Vec<CapsuleStorage>,
    /// Artifacts that the gateway could not delete; the next garbage collection tries again.
    pub failed: u64,
    /// Error of the first of these artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Sequence of the last event that the gateway read.
    pub as_of: u64,
}

/// A line of JSON in the answer to `POST /v1/gc`: progress, repeatedly, then the result or a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectionLine {
    /// Artifacts found in the store, events read, artifacts deleted.
    Progress {
        found: u64,
        events: u64,
        removed: u64,
    },
    Ended(Collection),
    /// The garbage collection stopped. Artifacts that it deleted before are recorded in the log.
    Problem(Problem),
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value) -> Result<Policy> {
        let name = "a".parse().expect("a name");
        SetPolicy::read(name, body.to_string().as_bytes())
    }

    #[test]
    fn policy_is_read_as_it_is_shown() {
        let body = json!({
            "for_tenants": ["acme"],
            "for_capsules": ["survey"],
            "for_labels": {"team": "birds"},
            "for_outcomes": ["failed", "timed_out"],
            "logs": "30d",
            "files": "forever",
        });
        let policy = read(&body).expect("a policy");
        assert_eq!(
            serde_json::to_value(SetPolicy::from(&policy)).expect("plain data"),
            body
        );
    }

    #[test]
    fn all_problems_of_a_policy_are_reported() {
        let body = json!({
            "for_tenants": ["A b"],
            "for_labels": {"team": "x".repeat(LABEL_BYTES_MAX + 1)},
            "for_outcomes": ["failed", "failed", "lost"],
            "logs": "soon",
            "files": 7,
        });
        let errors = read(&body).expect_err("problems").errors;
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = [
            "/for_tenants/0",
            "/for_labels/team",
            "/for_outcomes/1",
            "/for_outcomes/2",
            "/logs",
            "/files",
        ];
        assert_eq!(pointers, expected, "{errors:?}");
    }

    #[test]
    fn policy_without_a_time_is_rejected() {
        assert!(read(&json!({"for_tenants": ["acme"]})).is_err());
    }

    #[test]
    fn hold_needs_a_reason_of_bounded_length() {
        let read = |reason: &str| SetHold::read(json!({"reason": reason}).to_string().as_bytes());
        assert!(read("an audit").is_ok());
        assert!(read(&"x".repeat(REASON_LENGTH_MAX)).is_ok());
        assert!(read(&"x".repeat(REASON_LENGTH_MAX + 1)).is_err());
        assert!(read("").is_err());
    }

    #[test]
    fn collection_without_a_body_deletes() {
        assert!(!Collect::read(b"").expect("a request").dry_run);
        let dry = Collect::read(br#"{"dry_run": true}"#).expect("a request");
        assert!(dry.dry_run);
        assert!(Collect::read(br#"{"dryrun": true}"#).is_err());
    }
}
