//! How long artifacts are kept, what is held, and what was collected, as people see and set it.

use std::collections::BTreeMap;

use aod_domain::id::RunId;
use aod_domain::retention::{Keep, Policy};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// The body of `PUT /v1/retention/{name}`. Times are texts: `30d`, `12h`, `90m`, `45s`, `forever`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The tenants whose trees it is for; all of them unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_tenants: Vec<String>,
    /// The capsules of the roots whose trees it is for; all of them unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_capsules: Vec<String>,
    /// The labels that the root must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub for_labels: BTreeMap<String, String>,
    /// How the root must have ended: `succeeded`, `failed`, `timed_out`, `cancelled`; in any way unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_outcomes: Vec<String>,
    /// How long what containers wrote is kept after the end of the tree; unless given it says nothing about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// As `logs`: inputs, outputs, payloads, and what was said to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// As `logs`: images, packed directories and manifests of capsules that are not registered so any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capsules: Option<String>,
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

/// A policy as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    pub name: String,
    #[serde(flatten)]
    pub policy: SetPolicy,
}

/// All policies, by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    pub items: Vec<PolicyView>,
}

/// The body of `PUT /v1/holds/{run}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetHold {
    /// Why, for people.
    pub reason: String,
}

/// A tree of which nothing is collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    /// Its root.
    #[schema(value_type = String)]
    pub run: RunId,
    pub reason: String,
    pub held_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub held_at: Timestamp,
}

/// All trees that are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldList {
    pub items: Vec<HoldView>,
}

/// The body of `POST /v1/gc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// Tell what would go, and leave it.
    #[serde(default)]
    pub dry_run: bool,
}

/// Artifacts of one kind: how many, and how large together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactCount {
    /// Of what goes `logs`, `files`, `capsules`, and `unnamed` for what nothing names. Of what stays why:
    /// `archive`, `held`, `registered`, `live`, `unknown`, `policy`, `no_policy`, `young`.
    pub kind: String,
    pub artifacts: u64,
    pub size_bytes: u64,
}

/// What was collected, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collection {
    pub dry_run: bool,
    pub collected: Vec<ArtifactCount>,
    pub kept: Vec<ArtifactCount>,
    /// Artifacts that were to go and could not be removed; the next time finds them again.
    pub failed: u64,
    /// Why the first of them could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The log was read up to this event.
    pub as_of: u64,
}

/// One line of the answer to `POST /v1/gc`, JSON each: how far it is, again and again, then what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectionLine {
    /// Artifacts were found in the store, events read, artifacts removed.
    Progress {
        found: u64,
        events: u64,
        removed: u64,
    },
    Ended(Collection),
    /// It broke off; what was collected until then is gone, and the log says so.
    Problem(Problem),
}
