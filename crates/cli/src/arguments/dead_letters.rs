//! What can be done about runs that were given up.

use clap::{Args, Subcommand};

use super::{ConnectArguments, RunArgument};

#[derive(Clone, Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List runs that were given up, the latest first
    Ls(DeadLettersLsArguments),
    /// Show why a run was given up: its attempts with their errors, and the last that it wrote
    Show(RunArgument),
    /// Launch the same request as a new run, and print that run's id
    Requeue(RunArgument),
    /// Take a run off the list; nothing is deleted
    Purge(RunArgument),
}

#[derive(Clone, Debug, Args)]
pub struct DeadLettersLsArguments {
    /// Also those that were requeued or purged
    #[arg(long)]
    pub all: bool,

    /// Runs of this page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,

    /// Where the page before ended
    #[arg(long)]
    pub cursor: Option<String>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
