//! Flags of `aod deadletters`.

use clap::{Args, Subcommand};

use super::{ConnectArguments, RunArgument};

#[derive(Clone, Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List dead-lettered runs, newest first
    Ls(DeadLettersLsArguments),
    /// Show why a run was dead-lettered: its attempts with their errors, and its last output
    Show(RunArgument),
    /// Requeue the request as a new run, and print the new id
    Requeue(RunArgument),
    /// Remove a run from the list, without deleting data
    Purge(RunArgument),
}

#[derive(Clone, Debug, Args)]
pub struct DeadLettersLsArguments {
    /// Include requeued and purged runs
    #[arg(long)]
    pub all: bool,

    /// Maximum runs per page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,

    /// Cursor that the previous page printed
    #[arg(long)]
    pub cursor: Option<String>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
