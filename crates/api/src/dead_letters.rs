//! Types of `/v1/deadletters`.

use aod_domain::id::{NodeId, RunId};
use aod_domain::run::DeadLetterReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::events::LogLineView;
use crate::runs::{ErrorView, RunSummary};

/// State of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    /// No operator has requeued or purged the run.
    Open,
    /// An operator launched the request as a new run.
    Requeued,
    /// An operator removed the run from the list.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterSummary {
    pub run: RunSummary,
    /// `attempts_lost`: five attempts were lost; `not_leased`: 50 deliveries of the launch led to no attempt.
    #[schema(value_type = String)]
    pub reason: DeadLetterReason,
    pub dead_letter: DeadLetterState,
    /// The new run for the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub requeued_as: Option<RunId>,
}

/// A page of dead letters, latest launch first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterPage {
    pub items: Vec<DeadLetterSummary>,
    /// Value of `cursor=` for the next page; missing on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Sequence of the log up to which the list is complete.
    pub as_of: u64,
}

/// One dead letter, as stored in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterView {
    #[serde(flatten)]
    pub summary: DeadLetterSummary,
    /// Number of deliveries of the launch, up to the last recorded one.
    pub deliveries: u64,
    /// Attempts, first one first.
    pub attempts: Vec<AttemptView>,
    /// The last lines that a container of the run wrote, if they still exist.
    pub last_lines: Vec<LogLineView>,
}

/// An attempt of a dead-lettered run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Counted from 1.
    pub attempt: u32,
    /// The node of the attempt; missing if a gateway leased the run to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    #[schema(value_type = String, format = DateTime)]
    pub leased_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Error of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}
