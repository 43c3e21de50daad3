//! Runs that were given up, as operators see them.

use aod_domain::id::{NodeId, RunId};
use aod_domain::run::DeadLetterReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::events::LogLineView;
use crate::runs::{ErrorView, RunSummary};

/// What was done about a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    /// Nothing yet.
    Open,
    /// Its request was launched anew.
    Requeued,
    /// It needs nothing more.
    Purged,
}

impl DeadLetterState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Requeued => "requeued",
            Self::Purged => "purged",
        }
    }
}

/// A dead letter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterSummary {
    pub run: RunSummary,
    /// `attempts_lost`: attempt after attempt ended without a result; `not_leased`: delivery after
    /// delivery of its launch came to no attempt.
    #[schema(value_type = String)]
    pub reason: DeadLetterReason,
    pub dead_letter: DeadLetterState,
    /// The run that its request was launched as anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub requeued_as: Option<RunId>,
}

/// A page of dead letters, the latest launch first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterPage {
    pub items: Vec<DeadLetterSummary>,
    /// For `cursor=` of the next page; none on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The sequence of the log up to which the list is complete.
    pub as_of: u64,
}

/// Everything about one dead letter, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterView {
    #[serde(flatten)]
    pub summary: DeadLetterSummary,
    /// Deliveries of its launch, up to the last that the log has heard of.
    pub deliveries: u64,
    /// Its attempts, the first one first.
    pub attempts: Vec<AttemptView>,
    /// The last lines that a container of it wrote, as far as they are still there.
    pub last_lines: Vec<LogLineView>,
}

/// An attempt of a run that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Counted from 1.
    pub attempt: u32,
    /// None where a gateway took the run to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    pub leased_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}
