//! Limits of a run, and what it has spent.

use aod_domain::run::{Limits, Retries};
use aod_domain::spending::{Budget, Cost, Spent};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum spending on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetView {
    /// Tokens of requests and answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, from 0 to 1000000. With this limit, the node rejects models without a price.
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

/// Spending on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpentView {
    pub model_calls: u64,
    pub input_tokens: u64,
    /// The part of `input_tokens` that came from the provider's cache.
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Tokens reserved for calls whose answers did not report their usage; they count as spent.
    pub unreported_tokens: u64,
    /// Tools that models requested.
    pub tool_calls: u64,
    /// US dollars.
    pub cost_usd: f64,
    /// Calls of models without a price; `cost_usd` does not contain them.
    pub unpriced_calls: u64,
}

impl From<&Spent> for SpentView {
    fn from(spent: &Spent) -> Self {
        Self {
            model_calls: spent.model_calls,
            input_tokens: spent.input_tokens,
            cached_input_tokens: spent.cached_input_tokens,
            output_tokens: spent.output_tokens,
            unreported_tokens: spent.unreported_tokens,
            tool_calls: spent.tool_calls,
            cost_usd: spent.cost.dollars(),
            unpriced_calls: spent.unpriced_calls,
        }
    }
}

/// Spending of a run and its callees on models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpendingView {
    /// All attempts of the run, without its callees.
    pub own: SpentView,
    /// The run and all runs below it; for a root, the whole tree.
    pub tree: SpentView,
}

/// Maximum retries by kind of failure, with pauses that grow from a second to five minutes. Attempts lost by the
/// platform do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetriesView {
    /// Retries after a failure of the capsule, at most 20.
    #[serde(default)]
    pub capsule: u32,
    /// Retries after a time limit was exceeded, at most 20.
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

/// Limits for the phases of a run, in seconds, each from 1 to 2592000. In a request, null or a missing value means
/// the default; in an answer, null means that only the deadline applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsView {
    /// Time from the request until a node takes the run for the first time; default: no limit.
    #[serde(default)]
    pub queue_seconds: Option<u32>,
    /// Time for fetching image and files, default 900; when it is exceeded, another node tries.
    #[serde(default)]
    pub preparation_seconds: Option<u32>,
    /// Maximum time between two heartbeats (output, or a request on the channel), without the time spent waiting for
    /// callees; default: no limit.
    #[serde(default)]
    pub heartbeat_seconds: Option<u32>,
    /// Time from the exit of the capsule until its outputs and logs are stored, default 600; when it is exceeded,
    /// another node repeats the run.
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
