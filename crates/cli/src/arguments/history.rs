//! How the past of runs is asked for.

use std::path::PathBuf;

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

#[derive(Clone, Debug, Args)]
pub struct RerunArguments {
    /// Id of a run that has ended
    pub run: String,

    /// Start anew also those on the way to this run below it, the run itself, and all that it calls
    #[arg(long, value_name = "RUN", conflicts_with = "fresh")]
    pub from: Option<String>,

    /// Start everything anew, whatever is recorded
    #[arg(long)]
    pub fresh: bool,

    /// An argument that is to differ: `key=value`, `key=@path` for a file, `key=null` to leave it out. Given again,
    /// it is a list
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,

    /// Directory for the files that the capsule makes
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,

    /// Print the new run's id and do not wait
    #[arg(long)]
    pub detach: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
