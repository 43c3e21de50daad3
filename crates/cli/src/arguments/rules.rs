//! What operators lay down about admission.

use aod_api::rules::{RateView, SetRule};
use clap::{Args, Subcommand};

use super::{ConnectArguments, labels};

#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// List the rules, with how many runs each lets go and holds
    Ls(ConnectArguments),
    /// Make a rule, or put it in the place of the one of this name
    Set(SetRuleArguments),
    /// Remove a rule: whom it alone held is admitted
    Rm(RuleArgument),
}

#[derive(Clone, Debug, Args)]
pub struct RuleArgument {
    /// Its name
    pub name: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct SetRuleArguments {
    /// Its name: 1 to 63 of a-z, 0-9 and -
    pub name: String,

    /// A capsule that it is for; may be given again [default: all]
    #[arg(long, value_name = "NAME")]
    pub capsule: Vec<String>,

    /// A tenant that it is for; may be given again [default: all]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,

    /// What tells runs apart that have room of their own: `tenant`, `capsule`, `requested_by`, `label:NAME`,
    /// `argument:/POINTER`; may be given again [default: all share one room]
    #[arg(long, value_name = "PART")]
    pub key: Vec<String>,

    /// Runs of one key that go at once; with 0 none begins
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,

    /// Runs of one key that begin within a time: `100/60` are 100 within 60 seconds
    #[arg(long, value_name = "N/SECONDS", value_parser = rate)]
    pub rate: Option<RateView>,

    /// Let the keys share the cluster's slots, whoever asked first
    #[arg(long, requires = "key")]
    pub fair: bool,

    /// The share of a key beside the others, which have 1: `team-a=3`; may be given again
    #[arg(long, value_name = "KEY=N", requires = "fair", value_parser = weight)]
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
    let (key, weight) = labels::pair(text)?;
    let weight = weight
        .parse()
        .map_err(|_| "expected a key and a number, as in team-a=3")?;
    Ok((key, weight))
}
