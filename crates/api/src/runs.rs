//! Types of `/v1/runs`.

mod limits;
mod requests;
mod result;

use std::collections::BTreeMap;

use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::Requirements;
use aod_domain::run::{Refused, State};
use aod_domain::subject::Pool;
use aod_domain::tenant::Tenant;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use self::limits::{BudgetView, LimitsView, RetriesView, SpendingView, SpentView};
pub use self::requests::{CancelRun, CreateRun, GivenFile, NewRun, OnDisconnect, Rerun, RerunRun};
pub use self::result::{
    EgressUsageView, ErrorView, LeftOutView, RunResult, TimingsView, UsageView,
};
use crate::files::FileView;

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Execution of a capsule.
    Capsule,
    /// Build of a capsule's image.
    Build,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run waits for admission, for a node, or for its next attempt.
    Queued,
    /// A node has the run and fetches image and files.
    Starting,
    /// The capsule runs, or the node collects its outputs.
    Running,
    /// The capsule waits for a callee.
    Waiting,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl RunState {
    /// All states, in the order in which a run passes through them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Waiting,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    pub const fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::TimedOut | Self::Cancelled
        )
    }
}

impl From<State> for RunState {
    fn from(state: State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Starting => Self::Starting,
            State::Running => Self::Running,
            State::Waiting => Self::Waiting,
            State::Succeeded => Self::Succeeded,
            State::Failed => Self::Failed,
            State::TimedOut => Self::TimedOut,
            State::Cancelled => Self::Cancelled,
        }
    }
}

/// A run in a list or a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    #[schema(value_type = String)]
    pub id: RunId,
    #[schema(value_type = String)]
    pub root: RunId,
    /// Tenant of the run; missing for `default`.
    #[serde(default, skip_serializing_if = "Tenant::is_default")]
    #[schema(value_type = String)]
    pub tenant: Tenant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parent: Option<RunId>,
    pub kind: RunKind,
    pub capsule: String,
    pub state: RunState,
    pub attempts: u32,
    /// Node of the current or last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    pub requested_at: Timestamp,
    /// Start of the current or last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub leased_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    pub requested_by: String,
    /// Cost of models of the run and all runs below it, in US dollars; only in lists, and missing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Error of a failed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

/// One run, as stored in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Pool of nodes.
    #[schema(value_type = String)]
    pub pool: Pool,
    /// Requirements for the node in addition to the pool.
    #[serde(default, skip_serializing_if = "RequirementsView::is_nothing")]
    pub requires: RequirementsView,
    #[schema(value_type = String, format = DateTime)]
    pub deadline: Timestamp,
    /// Maximum running time, without the time spent waiting for callees.
    pub timeout_seconds: u32,
    pub limits: LimitsView,
    /// Time by which a node must have taken the run for the first time, if the run has such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub queued_until: Option<Timestamp>,
    /// Maximum that the tree may spend on models.
    #[serde(default, skip_serializing_if = "BudgetView::is_none")]
    pub budget: BudgetView,
    /// Spending of the run and of all runs below it on models; missing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<SpendingView>,
    /// Maximum retries after failures.
    pub retries: RetriesView,
    /// Retries so far.
    pub failed: RetriesView,
    /// Arguments, with the defaults of the schema.
    #[schema(value_type = Object)]
    pub arguments: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileView>,
    /// Number of lost attempts.
    pub attempts_lost: u32,
    /// Refusals by nodes that could not run it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalView>,
    /// Number of deliveries of the launch, up to the last recorded one.
    #[serde(default)]
    pub deliveries: u64,
    /// The dead letter whose request this run repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub requeued_from: Option<RunId>,
    /// The recorded run that this run repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rerun_of: Option<RunId>,
    /// The recorded run whose result this run reuses; no container was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reused_from: Option<RunId>,
    /// Reason why the run waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The cancel request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// Sequence of the last state event of the run.
    pub sequence: u64,
    /// Fields that are empty because garbage collection deleted their content: `arguments`, `output`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<String>,
    /// Result, if the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
}

/// Requirements of a run for its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequirementsView {
    /// Conditions on attributes: `zone=eu`, `gpu_memory>=24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u16>,
    /// Only if some nodes of the pool are too small for the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl RequirementsView {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&Requirements> for RequirementsView {
    fn from(requirements: &Requirements) -> Self {
        let devices = requirements.devices.iter();
        Self {
            attributes: requirements
                .attributes
                .iter()
                .map(ToString::to_string)
                .collect(),
            devices: devices
                .map(|(name, count)| (name.to_string(), *count))
                .collect(),
            cpu_millis: requirements.size.map(|size| size.cpu_millis),
            memory_bytes: requirements.size.map(|size| size.memory_bytes),
        }
    }
}

/// A node's statement, with its reason, that it cannot run a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    #[schema(value_type = String)]
    pub node: NodeId,
    pub attempt: u32,
    pub code: String,
    pub message: String,
}

impl From<&Refused> for RefusalView {
    fn from(refused: &Refused) -> Self {
        Self {
            node: refused.node,
            attempt: refused.attempt,
            code: refused.error.code.clone(),
            message: refused.error.message.clone(),
        }
    }
}

/// A cancel request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelView {
    pub requested_by: String,
    pub reason: String,
}

/// A page of runs, latest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunPage {
    pub items: Vec<RunSummary>,
    /// Value of `cursor=` for the next page; missing on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Sequence of the log up to which the list is complete.
    pub as_of: u64,
}

/// A run with its callees, in the order of their launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    #[serde(flatten)]
    pub run: RunSummary,
    /// Start and end of the capsule, if the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsView>,
    /// The recorded run whose result this run reuses; no container was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reused_from: Option<RunId>,
    #[schema(no_recursion)]
    pub children: Vec<TreeNode>,
}
