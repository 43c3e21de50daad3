//! How the past of runs is asked for.

use clap::Args;

use super::ConnectArguments;

#[derive(Clone, Debug, Args)]
pub struct AtArguments {
    /// Id of the run
    pub run: String,

    /// The event, by its number in the log, as `aod runs events` and `aod events query` print it first on each line
    #[arg(long, value_name = "N")]
    pub event: u64,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct DiffArguments {
    /// Id of one run
    pub left: String,

    /// Id of the other run
    pub right: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
