//! History of trees: state at an event, comparison of a replay with the read model, difference of two trees.

use aod_domain::difference::Difference;
use aod_domain::id::RunId;
use aod_domain::run::Phase;
use aod_domain::tree::{Comparison, OneSided, Pair};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::runs::{CancelView, RunSummary, TimingsView};

/// A tree of runs in its state at an event of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeAt {
    /// Sequence of the requested event in the log.
    pub event: u64,
    /// The last event of the tree up to the requested event.
    pub last: LastEvent,
    pub tree: TreeAtNode,
}

/// An event of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastEvent {
    pub sequence: u64,
    /// CloudEvents type, for example `dev.aod.run.launched.v1`.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    #[schema(value_type = String)]
    pub run: RunId,
}

/// A run in its state at an event, with its callees in the order of their launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeAtNode {
    #[serde(flatten)]
    pub run: RunSummary,
    pub phase: RunPhase,
    /// The node or gateway that held the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Attempts that had been lost.
    pub attempts_lost: u32,
    /// Reason why the run waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Callees that had not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub open_callees: Vec<RunId>,
    /// The cancel request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// Start and end of the capsule, if the run had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsView>,
    #[schema(no_recursion)]
    pub children: Vec<Self>,
}

/// Phase of a run according to its state events alone; none of these events can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// The run waits for admission.
    Requested,
    /// No node or gateway holds the lease.
    Queued,
    /// A node or gateway holds the lease.
    Leased,
    /// The run has a result.
    Ended,
}

impl From<&Phase> for RunPhase {
    fn from(phase: &Phase) -> Self {
        match phase {
            Phase::Requested => Self::Requested,
            Phase::Queued => Self::Queued,
            Phase::Leased(_) => Self::Leased,
            Phase::Ended(_) => Self::Ended,
        }
    }
}

/// Comparison of a tree, as computed from its events, with the read model of the gateway that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayView {
    #[schema(value_type = String)]
    pub root: RunId,
    /// Runs of the tree in the log.
    pub runs: usize,
    /// Replayed events.
    pub events: usize,
    /// Sequence of the log at which both were compared.
    pub as_of: u64,
    pub is_equal: bool,
    pub differences: Vec<ReplayDifference>,
    /// Number of differences that are not listed.
    pub left_out: usize,
}

/// A place at which the read model differs from the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayDifference {
    /// The id of the run in the read model.
    pub run: String,
    /// JSON pointer into the record of the run; empty for the whole run.
    pub place: String,
    /// Value according to the log; missing if the log has no value.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub log: Option<Value>,
    /// Value in the read model; missing if the read model has no value.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub read_model: Option<Value>,
}

/// Differences of two trees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeDifference {
    #[schema(value_type = String)]
    pub left: RunId,
    #[schema(value_type = String)]
    pub right: RunId,
    /// Whether both trees have the same arguments, files, calls and results. Times and costs may differ.
    pub is_same: bool,
    /// Number of pairs of corresponding runs.
    pub compared: usize,
    /// Pairs that differ in anything, including times and costs.
    pub runs: Vec<RunDifference>,
    pub only_left: Vec<OneSidedRun>,
    pub only_right: Vec<OneSidedRun>,
    /// Number of differences that are not listed.
    pub left_out: usize,
}

/// Differences of a run of the left tree and the corresponding run of the right tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunDifference {
    /// Path from the root by capsule names: `survey/chart[2]` is the second `chart` that `survey` called.
    pub path: String,
    #[schema(value_type = String)]
    pub left: RunId,
    #[schema(value_type = String)]
    pub right: RunId,
    /// Arguments, capsules, outcomes, outputs and files.
    pub differences: Vec<PlaceDifference>,
    /// Times and costs.
    pub measures: Vec<PlaceDifference>,
}

/// A place at which two runs differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlaceDifference {
    /// JSON pointer: `/arguments/table`, `/files/report.pdf`, `/took_ms`.
    pub place: String,
    /// Value of the left run; missing if only the right run has one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub left: Option<Value>,
    /// Value of the right run; missing if only the left run has one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub right: Option<Value>,
}

/// A run, with all runs below it, that has no corresponding run in the other tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OneSidedRun {
    pub path: String,
    #[schema(value_type = String)]
    pub run: RunId,
    /// Number of runs below it.
    pub below: usize,
}

/// `null` is a value here, not a missing value.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TreeDifference {
    /// The result of `comparison` for the trees of `left` and `right`.
    pub fn new(left: RunId, right: RunId, comparison: Comparison) -> Self {
        let is_same = comparison.is_same();
        let one_sided = |list: Vec<OneSided>| list.into_iter().map(OneSidedRun::from).collect();
        Self {
            left,
            right,
            is_same,
            compared: comparison.compared,
            runs: comparison
                .pairs
                .into_iter()
                .map(RunDifference::from)
                .collect(),
            only_left: one_sided(comparison.only_left),
            only_right: one_sided(comparison.only_right),
            left_out: comparison.left_out,
        }
    }
}

impl From<Pair> for RunDifference {
    fn from(pair: Pair) -> Self {
        let places = |list: Vec<Difference>| list.into_iter().map(PlaceDifference::from).collect();
        Self {
            path: pair.path,
            left: pair.left,
            right: pair.right,
            differences: places(pair.differences),
            measures: places(pair.measures),
        }
    }
}

impl From<Difference> for PlaceDifference {
    fn from(difference: Difference) -> Self {
        let Difference { place, left, right } = difference;
        Self { place, left, right }
    }
}

impl From<OneSided> for OneSidedRun {
    fn from(one_sided: OneSided) -> Self {
        let OneSided { path, run, below } = one_sided;
        Self { path, run, below }
    }
}
