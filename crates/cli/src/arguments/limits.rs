//! How long a run and its parts may take, and what it may spend.

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
    /// Running time at the most, waiting for callees not counted; the capsule's own unless given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,

    /// Time until the end at the most, queueing and retries included [default: a day]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub deadline: Option<u32>,

    /// Time until a node takes the run at the most [default: until the deadline]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub queue_timeout: Option<u32>,

    /// Time for image and files to reach the node at the most, then another one tries [default: 900]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub preparation_timeout: Option<u32>,

    /// Time between two signs of life of the capsule at the most: output, or a request to other capsules
    /// [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub heartbeat_timeout: Option<u32>,

    /// Time for outputs and logs to be stored at the most, then another node runs it again [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    pub collection_timeout: Option<u32>,

    /// What the run and all that it calls may spend on models, in US dollars [default: no limit]
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub budget: Option<f64>,

    /// How many tokens the run and all that it calls may use of models [default: no limit]
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
