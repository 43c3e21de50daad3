//! The past of trees: as one stood at an event, as its events rebuild it, and beside another one.

use aod_domain::difference::Difference;
use aod_domain::id::RunId;
use aod_domain::run::Phase;
use aod_domain::tree::{Comparison, OneSided, Pair};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::runs::{CancelView, RunSummary, TimingsView};

/// A run with everything that it called, as they stood when the log had come to an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeAt {
    /// The event that was asked for: its sequence in the log.
    pub event: u64,
    /// The last event of the tree that counts: this one, or the one before it.
    pub last: LastEvent,
    pub tree: TreeAtNode,
}

/// An event of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastEvent {
    pub sequence: u64,
    /// `dev.aod.run.launch.v1` and so on.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    #[schema(value_type = String)]
    pub run: RunId,
}

/// A run of a tree as it stood at an event, with its callees in the order of their launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeAtNode {
    #[serde(flatten)]
    pub run: RunSummary,
    pub phase: RunPhase,
    /// The node or the gateway that had its lease, while one had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Leases that had ended without a result.
    pub attempts_lost: u32,
    /// What it waited for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// What it had called and had no answer from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub open_callees: Vec<RunId>,
    /// Who wanted it to end, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// When the capsule started and ended, once the run had its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsView>,
    #[schema(no_recursion)]
    pub children: Vec<Self>,
}

/// Where a run stands by its state events alone, of which the log misses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// It waits for admission.
    Requested,
    /// Nobody has its lease.
    Queued,
    /// Somebody has it.
    Leased,
    /// It has its result.
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

/// A tree as its events rebuild it, compared with what the lists of the answering gateway have of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayView {
    #[schema(value_type = String)]
    pub root: RunId,
    /// Runs of the tree in the log.
    pub runs: usize,
    /// Events that were replayed.
    pub events: usize,
    /// The sequence of the log up to which both were compared.
    pub as_of: u64,
    pub is_equal: bool,
    pub differences: Vec<ReplayDifference>,
    /// Differences beyond those that are told.
    pub left_out: usize,
}

/// A place at which the lists say something else than the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayDifference {
    /// The id of the run, as the lists have it.
    pub run: String,
    /// A JSON pointer into what the lists keep of a run; empty for the run as a whole.
    pub place: String,
    /// What follows from the log; missing where nothing does.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub log: Option<Value>,
    /// What the lists say; missing where they say nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub read_model: Option<Value>,
}

/// In what two trees differ; what is the same in both is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeDifference {
    #[schema(value_type = String)]
    pub left: RunId,
    #[schema(value_type = String)]
    pub right: RunId,
    /// Whether both were given the same, called the same and made the same, however long it took and
    /// whatever it cost.
    pub is_same: bool,
    /// Runs that stand for one another in both.
    pub compared: usize,
    /// Those of them that differ in anything, times and costs included.
    pub runs: Vec<RunDifference>,
    pub only_left: Vec<OneSidedRun>,
    pub only_right: Vec<OneSidedRun>,
    /// Differences beyond those that are told.
    pub left_out: usize,
}

/// In what a run of the left tree and the one that stands for it in the right one differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunDifference {
    /// The way from the root by names of capsules: `survey/chart[2]` is the second `chart` that `survey` called.
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
    /// A JSON pointer: `/arguments/table`, `/files/report.pdf`, `/took_ms`.
    pub place: String,
    /// Missing where only the right one has something.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub left: Option<Value>,
    /// Missing where only the left one has something.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<Object>)]
    pub right: Option<Value>,
}

/// A run, and all below it, that the other tree has nothing for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OneSidedRun {
    pub path: String,
    #[schema(value_type = String)]
    pub run: RunId,
    /// Runs below it.
    pub below: usize,
}

/// `null` is a value here, and not the lack of one.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TreeDifference {
    /// What `comparison` found in the trees of `left` and `right`.
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
