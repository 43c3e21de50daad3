//! Bodies of requests that start or cancel runs.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use aod_domain::flow::PRIORITY_MAX;
use aod_domain::id::RunId;
use aod_domain::launch::{TIMEOUT_SECONDS_MAX, Terms, Wanted};
use aod_domain::placement::{DEVICE_KINDS_MAX, DEVICES_MAX, REQUIREMENTS_MAX, Requirements};
use aod_domain::run::{
    FileEntry, LABEL_BYTES_MAX, LABELS_MAX, LIMIT_SECONDS_MAX, Limits, REASON_LENGTH_MAX, Retries,
    TOTAL_SECONDS_DEFAULT,
};
use aod_domain::spending::{Budget, Cost};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{BudgetView, LimitsView, RetriesView};
use crate::strict::{Fields, Result};

/// The body of `POST /v1/runs`, or its part `request` if further parts contain files. The name of such a part is the
/// name of the file; arguments refer to the file by this name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRun {
    /// Title, alias or name of a registered capsule.
    pub capsule: String,
    /// Arguments as the capsule's schema requires; at most 16 MiB of JSON.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    /// Files that the caller uploaded with `POST /v1/files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GivenFile>,
    /// Labels for finding the run, `NAME: VALUE`: at most 32, names and values of at most 256 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Pool of nodes; default: the pool of the capsule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Attributes that the node must have in addition to those that the capsule requires: `zone=eu`,
    /// `gpu_memory>=24`, `ssd`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
    /// Number of devices by name, for the exclusive use of the run. If the capsule requires more of a device, the run
    /// gets that number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u16>,
    /// Maximum running time, without the time spent waiting for callees; default: that of the capsule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Maximum retries after failures; default: none.
    #[serde(default, skip_serializing_if = "RetriesView::is_none")]
    pub retries: RetriesView,
    /// Limits for the phases of the run.
    #[serde(default, skip_serializing_if = "LimitsView::is_none")]
    pub limits: LimitsView,
    /// Maximum that the run and its callees may spend on models; default: no limit.
    #[serde(default, skip_serializing_if = "BudgetView::is_none")]
    pub budget: BudgetView,
    /// Maximum time from the request to the end of the run, including the time in the queue; default: a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// Priority among runs that wait for admission, from -100 to 100, highest first; default: 0. Callees inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// What happens to the run if the caller disconnects while it waits with `Prefer: wait`.
    #[serde(default, skip_serializing_if = "OnDisconnect::is_default")]
    pub on_disconnect: OnDisconnect,
}

/// The body of `POST /v1/runs/{run}/rerun`; optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunRun {
    /// Changed arguments by name; null removes an argument.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    /// Uploaded files; a file with a recorded name replaces the recorded file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GivenFile>,
    /// A recorded run of the tree. The rerun recomputes it, the runs above it and the runs below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Recompute all runs of the tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

/// What happens to a run if the waiting caller disconnects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// The run continues; a repeated request with the same `Idempotency-Key` joins it.
    #[default]
    Detach,
    /// The gateway cancels the run and its callees.
    Cancel,
}

impl OnDisconnect {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenFile {
    /// Name by which arguments refer to the file.
    pub name: String,
    /// `aod:file/<digest>`, as returned by `POST /v1/files`.
    pub file: String,
}

/// The body of `POST /v1/runs/{id}/cancel`; optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {
    /// Reason, shown to people.
    #[serde(default)]
    pub reason: String,
}

/// A valid request for a new run.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub wanted: Wanted,
    pub terms: Terms,
}

impl NewRun {
    /// A run of a capsule with these arguments and files, and defaults for the rest.
    pub fn of(target: String, arguments: Map<String, Value>, files: Vec<FileEntry>) -> Self {
        Self {
            wanted: Wanted {
                target,
                arguments,
                files,
                pool: None,
                requirements: Requirements::default(),
                timeout_seconds: None,
                retries: Retries::default(),
                limits: Limits::default(),
                budget: Budget::default(),
            },
            terms: Terms {
                labels: BTreeMap::new(),
                deadline_seconds: TOTAL_SECONDS_DEFAULT,
                priority: 0,
                is_cancelled_on_disconnect: false,
            },
        }
    }
}

impl GivenFile {
    /// Takes the list `files`; each file has its index in it. The receiver finds the files.
    pub fn read_all(fields: &mut Fields) -> Vec<(usize, Self)> {
        fields.parts("files", |file| Self {
            name: file.required_text("name"),
            file: file.required_text("file"),
        })
    }
}

impl CreateRun {
    /// Reads the body, from which [`GivenFile::read_all`] has taken the list of `files`.
    pub fn read(mut fields: Fields, files: Vec<FileEntry>) -> Result<NewRun> {
        let run = NewRun {
            wanted: Wanted {
                target: fields.required_text("capsule"),
                arguments: fields.object("arguments").unwrap_or_default(),
                files,
                pool: fields.word("pool"),
                requirements: Requirements {
                    attributes: fields
                        .words("require", REQUIREMENTS_MAX)
                        .into_iter()
                        .collect(),
                    devices: fields.numbers("devices", DEVICE_KINDS_MAX, &(1..=DEVICES_MAX)),
                    size: None,
                },
                timeout_seconds: fields.number("timeout_seconds", 1..=TIMEOUT_SECONDS_MAX),
                retries: fields.domain("retries", Retries::read),
                limits: fields.domain("limits", Limits::read),
                budget: fields.part("budget", read_budget).unwrap_or_default(),
            },
            terms: Terms {
                labels: fields.texts("labels", LABELS_MAX, LABEL_BYTES_MAX),
                deadline_seconds: fields
                    .number("deadline_seconds", 1..=LIMIT_SECONDS_MAX)
                    .unwrap_or(TOTAL_SECONDS_DEFAULT),
                priority: fields
                    .number("priority", -PRIORITY_MAX..=PRIORITY_MAX)
                    .unwrap_or_default(),
                is_cancelled_on_disconnect: read_on_disconnect(&mut fields) == OnDisconnect::Cancel,
            },
        };
        fields.finish()?;
        Ok(run)
    }
}

fn read_budget(fields: &mut Fields) -> Budget {
    let tokens = fields.take("tokens");
    let cost = fields.take("cost_usd");
    let budget = Budget {
        tokens_max: tokens.as_ref().and_then(Value::as_u64),
        cost_max: cost
            .as_ref()
            .and_then(Value::as_f64)
            .and_then(Cost::from_dollars),
    };
    if let (Some(tokens), None) = (&tokens, budget.tokens_max) {
        fields.wrong("/tokens", tokens, "a whole number");
    }
    if let (Some(cost), None) = (&cost, budget.cost_max) {
        fields.wrong("/cost_usd", cost, "dollars from 0 to 1000000");
    }
    budget
}

fn read_on_disconnect(fields: &mut Fields) -> OnDisconnect {
    let given = fields.take("on_disconnect");
    match given.as_ref().map(Value::as_str) {
        None | Some(Some("detach")) => (),
        Some(Some("cancel")) => return OnDisconnect::Cancel,
        Some(_) => {
            let given = given.unwrap_or_default();
            fields.wrong("/on_disconnect", &given, "detach or cancel");
        }
    }
    OnDisconnect::Detach
}

/// A valid request for a rerun.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerun {
    pub arguments: Map<String, Value>,
    pub from: Option<RunId>,
    pub is_fresh: bool,
}

impl RerunRun {
    /// Reads the body, from which [`GivenFile::read_all`] has taken the list of `files`.
    pub fn read(mut fields: Fields) -> Result<Rerun> {
        let rerun = Rerun {
            arguments: fields.object("arguments").unwrap_or_default(),
            from: fields.word("from"),
            is_fresh: fields.flag("fresh"),
        };
        if rerun.from.is_some() && rerun.is_fresh {
            fields.error("/from", "expected either `from` or `fresh`, not both");
        }
        fields.finish()?;
        Ok(rerun)
    }
}

impl CancelRun {
    /// Reads an optional body. A long reason is shortened.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::parse_optional(bytes)?;
        let reason = fields.text("reason").unwrap_or_default();
        fields.finish()?;
        Ok(Self {
            reason: reason.chars().take(REASON_LENGTH_MAX).collect(),
        })
    }
}
