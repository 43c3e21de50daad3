//! Flags for the time limits and the budget of a run.

use aod_api::runs::{BudgetView, LimitsView};
use aod_domain::run::LIMIT_SECONDS_MAX;
use aod_domain::spending::Cost;
use clap::Args;
use clap::builder::RangedU64ValueParser;

fn seconds() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=LIMIT_SECONDS_MAX.into())
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LimitArguments {
    /// Maximum running time; waiting for callees does not count [default: the capsule's limit]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,

    /// Maximum time until the end of the run, including queueing and retries [default: a day]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub deadline: Option<u32>,

    /// Maximum time until a node takes the run [default: until the deadline]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub queue_timeout: Option<u32>,

    /// Maximum time to transfer the image and files to a node; then AOD starts another attempt [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub preparation_timeout: Option<u32>,

    /// Maximum time without a heartbeat of the capsule. Output of the capsule and its requests to AOD are heartbeats.
    /// While such a request is open, AOD expects no heartbeat [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub heartbeat_timeout: Option<u32>,

    /// Maximum time to store the outputs; then AOD starts another attempt [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub collection_timeout: Option<u32>,

    /// Maximum cost of models for the run and all runs below it, in US dollars [default: no limit]
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub budget: Option<f64>,

    /// Maximum number of model tokens for the run and all runs below it [default: no limit]
    #[arg(long, value_name = "TOKENS")]
    pub budget_tokens: Option<u64>,
}

fn dollars(text: &str) -> Result<f64, &'static str> {
    let dollars = text.parse().ok();
    dollars
        .filter(|dollars| Cost::from_dollars(*dollars).is_some())
        .ok_or("expected dollars from 0 to 1000000, such as 0.50")
}

impl From<LimitArguments> for BudgetView {
    fn from(arguments: LimitArguments) -> Self {
        Self {
            tokens: arguments.budget_tokens,
            cost_usd: arguments.budget,
        }
    }
}

impl From<LimitArguments> for LimitsView {
    fn from(arguments: LimitArguments) -> Self {
        Self {
            queue_seconds: arguments.queue_timeout,
            preparation_seconds: arguments.preparation_timeout,
            heartbeat_seconds: arguments.heartbeat_timeout,
            collection_seconds: arguments.collection_timeout,
        }
    }
}
