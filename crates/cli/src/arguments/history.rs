//! Flags of `aod runs at`, `aod runs diff` and `aod runs rerun`.

use std::path::PathBuf;

use clap::Args;

use super::ConnectArguments;
use crate::completion;

#[derive(Clone, Debug, Args)]
pub struct AtArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Sequence number of the event, the first column of `aod runs events` and `aod events query`
    #[arg(long, value_name = "N")]
    pub event: u64,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct DiffArguments {
    /// First run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub left: String,

    /// Second run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub right: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct RerunArguments {
    /// A run that has ended: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Recompute CALLEE (a run below RUN), all runs below CALLEE, and every run above CALLEE up to RUN itself
    #[arg(long, value_name = "CALLEE", conflicts_with = "fresh", add = completion::runs())]
    pub from: Option<String>,

    /// Recompute all runs, without reusing recorded results
    #[arg(long)]
    pub fresh: bool,

    /// Argument to change (repeatable): `key=value`, `key=@path` for a file, `key=null` to omit the argument. The
    /// values of a repeated key form a list
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,

    /// Directory for the output files
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Print the new run's id and return without waiting
    #[arg(long)]
    pub detach: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
