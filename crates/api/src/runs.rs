//! Runs as people see them.

use std::collections::BTreeMap;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorSource;
use aod_domain::id::{NodeId, RunId};
use aod_domain::placement::Requirements;
use aod_domain::run::{Exit, Limits, Outcome, Refused, Retries, RunError};
use aod_domain::spending::{Budget, Cost, Spent};
use aod_domain::subject::Label;
use aod_domain::tenant::Tenant;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::files::FileView;

/// The body of `POST /v1/runs`, or its part `request` when files come along in further parts:
/// the name of such a part is the name of the file, as arguments refer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRun {
    /// Title, alias or name of a registered capsule.
    pub capsule: String,
    /// What the capsule's schema takes, at most 256 KiB of JSON.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    /// Files that were uploaded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GivenFile>,
    /// Words of the caller's own, to find the run by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Which nodes may take the run; the capsule's own label unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What its node must have besides what the capsule requires itself: `zone=eu`, `gpu_memory>=24`, `ssd`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
    /// So many devices of a kind, which the run has alone; at least as many as the capsule requires itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u16>,
    /// Running time at the most, waiting for callees not counted; the capsule's own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// How often it is tried again when it fails; never unless given.
    #[serde(default, skip_serializing_if = "RetriesView::is_none")]
    pub retries: RetriesView,
    /// How long the parts of the run may take.
    #[serde(default, skip_serializing_if = "LimitsView::is_none")]
    pub limits: LimitsView,
    /// What the run and all that it calls may spend on models; no limit unless given.
    #[serde(default, skip_serializing_if = "BudgetView::is_none")]
    pub budget: BudgetView,
    /// Time until the end at the most, queueing included; a day unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// Who goes first of runs that wait for admission, from -100 to 100; 0 unless given. What it calls has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// What becomes of the run if whoever waits for it with `Prefer: wait` goes away.
    #[serde(default, skip_serializing_if = "OnDisconnect::is_default")]
    pub on_disconnect: OnDisconnect,
}

/// The body of `POST /v1/runs/{run}/rerun`; may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunRun {
    /// Arguments that differ from the recorded ones, by their names; null takes one out.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    /// Files that were uploaded before; one of a recorded name takes its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GivenFile>,
    /// A recorded run below this one: those on the way to it, it and all below it are started anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Everything is started anew, whatever is recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

/// What becomes of a run whose waiting caller goes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It goes on: who asks again with the same `Idempotency-Key` joins it.
    #[default]
    Detach,
    /// It is cancelled, with everything that it called.
    Cancel,
}

impl OnDisconnect {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What may be spent on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetView {
    /// Tokens of requests and answers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, from 0 to 1000000. Models without a price are refused then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl BudgetView {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Budget> for BudgetView {
    fn from(budget: Budget) -> Self {
        Self {
            tokens: budget.tokens_max,
            cost_usd: budget.cost_max.map(Cost::dollars),
        }
    }
}

/// What was spent on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpentView {
    pub model_calls: u64,
    pub input_tokens: u64,
    /// Of `input_tokens`, those from a provider's cache.
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Reserved for calls whose answers did not tell what they took; it counts as taken.
    pub untold_tokens: u64,
    /// Tools that models asked for.
    pub tool_calls: u64,
    pub cost_usd: f64,
    /// Calls of models without a price; they are not in `cost_usd`.
    pub unpriced_calls: u64,
}

impl From<&Spent> for SpentView {
    fn from(spent: &Spent) -> Self {
        Self {
            model_calls: spent.model_calls,
            input_tokens: spent.input_tokens,
            cached_input_tokens: spent.cached_input_tokens,
            output_tokens: spent.output_tokens,
            untold_tokens: spent.untold_tokens,
            tool_calls: spent.tool_calls,
            cost_usd: spent.cost.dollars(),
            unpriced_calls: spent.unpriced_calls,
        }
    }
}

/// What a run and those below it have spent on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpendingView {
    /// The run alone, all its attempts together.
    pub own: SpentView,
    /// With everything that it called; for a root the whole tree.
    pub tree: SpentView,
}

/// How often a failed run is tried again, by the kind of the failure, after pauses that grow from a
/// second to five minutes. What the platform fails is tried again beside this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetriesView {
    /// After failures of the capsule, at most 20.
    #[serde(default)]
    pub capsule: u32,
    /// After running longer than it may, at most 20.
    #[serde(default)]
    pub time: u32,
}

impl RetriesView {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Retries> for RetriesView {
    fn from(Retries { capsule, time }: Retries) -> Self {
        Self { capsule, time }
    }
}

/// How long the parts of a run may take, in seconds: each from 1 to 2592000. In a request what is left
/// out or null has its default; in an answer null is no limit but the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsView {
    /// From the request until a node takes the run for the first time; no limit unless given.
    #[serde(default)]
    pub queue_seconds: Option<u32>,
    /// From then until image and files are there, 900 unless given: then another node tries.
    #[serde(default)]
    pub preparation_seconds: Option<u32>,
    /// Between two signs of life, output or a request on its channel, waiting for callees not counted;
    /// no limit unless given.
    #[serde(default)]
    pub heartbeat_seconds: Option<u32>,
    /// From the end of the capsule until its outputs and logs are stored, 600 unless given: then another
    /// node does it all again.
    #[serde(default)]
    pub collection_seconds: Option<u32>,
}

impl LimitsView {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Limits> for LimitsView {
    fn from(limits: Limits) -> Self {
        let Limits {
            queue_seconds,
            preparation_seconds,
            heartbeat_seconds,
            collection_seconds,
        } = limits;
        Self {
            queue_seconds,
            preparation_seconds,
            heartbeat_seconds,
            collection_seconds,
        }
    }
}

/// A file that was uploaded before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenFile {
    /// As arguments refer to it.
    pub name: String,
    /// `aod:file/<digest>`, as `POST /v1/files` answered.
    pub file: String,
}

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A capsule.
    Capsule,
    /// The building of a capsule's image.
    Build,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for admission, by a rule.
    Requested,
    /// No node has it.
    Queued,
    /// A node has taken it on.
    Leased,
    /// Image and files are being brought.
    Preparing,
    /// The capsule computes.
    Running,
    /// The capsule waits for a callee.
    Waiting,
    /// The outputs are being collected.
    Collecting,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl RunState {
    /// All of them, in the order in which a run goes through them.
    pub const ALL: [Self; 11] = [
        Self::Requested,
        Self::Queued,
        Self::Leased,
        Self::Preparing,
        Self::Running,
        Self::Waiting,
        Self::Collecting,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Collecting => "collecting",
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

impl From<Outcome> for RunState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

/// A run in a list or a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSummary {
    #[schema(value_type = String)]
    pub id: RunId,
    #[schema(value_type = String)]
    pub root: RunId,
    /// Whose it is; left out for `default`.
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
    /// The node of the current or last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    pub requested_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    pub requested_by: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why it failed: its code and message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

/// Everything about one run, as the log has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Which nodes may take it.
    #[schema(value_type = String)]
    pub label: Label,
    /// What its node must have besides.
    #[serde(default, skip_serializing_if = "RequirementsView::is_nothing")]
    pub requires: RequirementsView,
    #[schema(value_type = String, format = DateTime)]
    pub deadline: Timestamp,
    /// Running time at the most, waiting for callees not counted.
    pub timeout_seconds: u32,
    pub limits: LimitsView,
    /// Until when a node must have taken it for the first time, if there is such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub queued_until: Option<Timestamp>,
    /// What its tree may spend on models.
    #[serde(default, skip_serializing_if = "BudgetView::is_none")]
    pub budget: BudgetView,
    /// What it and those below it have spent on models, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<SpendingView>,
    /// How often it is tried again when it fails.
    pub retries: RetriesView,
    /// How often that was done.
    pub failed: RetriesView,
    /// The payload after defaults.
    #[schema(value_type = Object)]
    pub arguments: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileView>,
    /// Leases that ended without a result.
    pub attempts_lost: u32,
    /// Nodes that gave it back since they could not run it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalView>,
    /// Deliveries of its launch, up to the last that the log has heard of.
    #[serde(default)]
    pub deliveries: u64,
    /// The dead letter whose request this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub requeued_from: Option<RunId>,
    /// The recorded run that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rerun_of: Option<RunId>,
    /// The recorded run whose result was taken over; then nothing was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reused_from: Option<RunId>,
    /// Why it waits, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Who wants it to end, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// The sequence of its last state event.
    pub sequence: u64,
    /// What is not shown because it was collected: `arguments`, `output`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<String>,
    /// Once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
}

/// What a run requires of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequirementsView {
    /// Of its attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u16>,
    /// Only where nodes of the label differ in what they can hold.
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

/// A node that gave a run back since it could not run it.
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

/// A request to end a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelView {
    pub requested_by: String,
    pub reason: String,
}

/// The body of `POST /v1/runs/{id}/cancel`; may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRun {
    /// For people.
    #[serde(default)]
    pub reason: String,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorView {
    /// One of the codes in the reference, or with `source` `capsule` perhaps one of the capsule's own.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
    pub retryable: bool,
    /// Who can mend it: `capsule`, `caller` or `platform`.
    #[schema(value_type = String)]
    pub source: ErrorSource,
}

impl From<RunError> for ErrorView {
    fn from(error: RunError) -> Self {
        let RunError {
            code,
            message,
            detail,
            retryable,
            source,
        } = error;
        Self {
            code,
            message,
            detail,
            retryable,
            source,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    #[schema(value_type = String)]
    pub id: RunId,
    pub state: RunState,
    /// Whether the state is `succeeded`.
    pub success: bool,
    /// What the capsule returned; with a failure what it wrote so far, if anything.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    pub files: Vec<FileView>,
    pub error: Option<ErrorView>,
    /// How the container's main process ended: `code` or `signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub exit: Option<Exit>,
    /// The attempt that ended it, from 1.
    pub attempt: u32,
    pub timings: TimingsView,
    pub usage: UsageView,
    /// The hash of the result event.
    #[schema(value_type = String)]
    pub hash: Digest,
    /// Its sequence in the log.
    pub sequence: u64,
}

/// When what happened, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimingsView {
    #[schema(value_type = String, format = DateTime)]
    pub requested_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub leased_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub exited_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub ended_at: Timestamp,
    /// Of the time between start and exit, how long at least one call was open.
    pub waiting_milliseconds: u64,
}

/// What a run used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    pub input_bytes: u64,
    /// What of files and image was not on the node of the last attempt and came from the artifact store.
    #[serde(default)]
    pub fetched_bytes: u64,
    pub output_bytes: u64,
    /// Calls made.
    pub calls: u32,
    /// What the last attempt took of models, if it called any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<SpentView>,
    /// Connections to hosts outside, of a capsule that may have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressUsageView>,
}

/// What a run sent to hosts outside, and got from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressUsageView {
    pub connections: u32,
    /// Connections that were refused.
    pub refused: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A page of runs, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunPage {
    pub items: Vec<RunSummary>,
    /// For `cursor=` of the next page; none on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The sequence of the log up to which the list is complete.
    pub as_of: u64,
}

/// A run with its callees, in the order of their launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeNode {
    #[serde(flatten)]
    pub run: RunSummary,
    /// When the capsule started and ended, once the run has its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsView>,
    /// The recorded run whose result was taken over; then nothing was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reused_from: Option<RunId>,
    #[schema(no_recursion)]
    pub children: Vec<TreeNode>,
}
