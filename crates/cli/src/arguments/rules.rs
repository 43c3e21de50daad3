//! Flags of `aod rules`.

use aod_api::rules::{RateView, SetRule};
use clap::{Args, Subcommand};

use super::{ConnectArguments, labels};

#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// List the rules, with the number of their admitted and waiting runs
    Ls(ConnectArguments),
    /// Create or replace a rule
    Set(SetRuleArguments),
    /// Remove a rule; AOD admits runs that were waiting only for this rule
    Rm(RuleArgument),
}

#[derive(Clone, Debug, Args)]
pub struct RuleArgument {
    /// Name of the rule
    pub name: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct SetRuleArguments {
    /// Name of the rule: 1 to 63 characters from a-z, 0-9 and -
    pub name: String,

    /// Capsule that the rule applies to (repeatable) [default: all]
    #[arg(long, value_name = "NAME")]
    pub capsule: Vec<String>,

    /// Tenant that the rule applies to (repeatable) [default: all]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,

    /// Part of the key of the rule: `tenant`, `capsule`, `requested_by`, `label:NAME` or `argument:/POINTER`. Runs with
    /// the same value of the key share a bucket (repeatable) [default: all runs share one bucket]
    #[arg(long, value_name = "PART")]
    pub key: Vec<String>,

    /// Maximum concurrent runs per bucket; 0 blocks all runs
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,

    /// Maximum starts per bucket within a period: `100/60` for 100 within 60 seconds
    #[arg(long, value_name = "N/SECONDS", value_parser = rate)]
    pub rate: Option<RateView>,

    /// Share the cluster's slots fairly among buckets, regardless of the order of requests
    #[arg(long, requires = "key")]
    pub fair: bool,

    /// Weight of the bucket for this value of the key: `team-a=3` (repeatable) [default: 1]
    #[arg(long, value_name = "VALUE=N", requires = "fair", value_parser = weight)]
    pub weight: Vec<(String, u32)>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

impl From<&SetRuleArguments> for SetRule {
    fn from(arguments: &SetRuleArguments) -> Self {
        Self {
            capsules: arguments.capsule.clone(),
            tenants: arguments.tenant.clone(),
            key: arguments.key.clone(),
            concurrency: arguments.concurrency,
            rate: arguments.rate,
            fair: arguments.fair,
            weights: arguments.weight.iter().cloned().collect(),
        }
    }
}

fn rate(text: &str) -> Result<RateView, String> {
    let parts = text.split_once('/');
    let numbers =
        parts.and_then(|(runs, seconds)| Some((runs.parse().ok()?, seconds.parse().ok()?)));
    let (runs, seconds) = numbers.ok_or("expected runs and seconds, as in 100/60")?;
    Ok(RateView { runs, seconds })
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (value, weight) = labels::pair(text)?;
    let weight = weight
        .parse()
        .map_err(|_| "expected a value of the key and a number, as in team-a=3")?;
    Ok((value, weight))
}
