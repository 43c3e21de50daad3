//! Flags of `aod runs`.

use std::path::PathBuf;

use aod_api::runs::RunState;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{AtArguments, ConnectArguments, DiffArguments, RerunArguments, time};
use crate::completion;

#[derive(Clone, Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    Ls(RunsLsArguments),
    /// Show the details of a run
    Show(RunArgument),
    /// Wait for the end of a run, and print its result
    Wait(WaitArguments),
    /// Fetch the output files of a run, or list them
    Files(FilesArguments),
    /// Print the output of a run's container
    Logs(LogsArguments),
    /// Print the events of a run
    Events(FollowArguments),
    /// Show a run and all runs below it as a tree
    Tree(RunArgument),
    /// Show the tree of a run as it was at an event
    At(AtArguments),
    /// Rebuild a run's tree from the log and compare it with the gateway's read model
    Replay(RunArgument),
    /// Compare two runs, including all runs below them
    Diff(DiffArguments),
    /// Rerun a recorded run; unchanged calls reuse their recorded successful results
    Rerun(RerunArguments),
    /// Cancel a run and its callees
    Cancel(CancelArguments),
}

#[derive(Clone, Debug, Args)]
pub struct RunsLsArguments {
    /// Only runs in this state (repeatable)
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = PossibleValuesParser::new(RunState::ALL.map(RunState::as_str)))]
    pub state: Vec<String>,

    /// Only runs of this capsule
    #[arg(long, value_name = "NAME", add = completion::capsules())]
    pub capsule: Option<String>,

    /// Only runs with this label (repeatable; all must match)
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,

    /// Only runs whose arguments or errors contain all these words
    #[arg(long, value_name = "WORDS")]
    pub text: Option<String>,

    /// Only runs requested since this time: 2026-03-01T12:00:00Z, 2026-03-01, an age such as 2h, today, yesterday
    #[arg(long, value_name = "TIME", value_parser = time::time)]
    pub since: Option<Timestamp>,

    /// Only runs requested before this time
    #[arg(long, value_name = "TIME", value_parser = time::time)]
    pub until: Option<Timestamp>,

    /// Only runs without a caller
    #[arg(long)]
    pub roots: bool,

    /// Maximum runs per page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,

    /// Cursor that the previous page printed
    #[arg(long)]
    pub cursor: Option<String>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct RunArgument {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct WaitArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Directory for the output files
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct FilesArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Directory for the files
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,

    /// List the files without fetching them
    #[arg(long)]
    pub list: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct FollowArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Follow new events until the run ends
    #[arg(short, long)]
    pub follow: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct LogsArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Follow new output until the run ends
    #[arg(short, long)]
    pub follow: bool,

    /// Only the last N existing lines; with --follow, also all new lines [default: all lines]
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<usize>,

    /// Only lines since this time: 2026-03-01T12:00:00Z, 2026-03-01, an age such as 2h, today, yesterday
    #[arg(long, value_name = "TIME", value_parser = time::time)]
    pub since: Option<Timestamp>,

    /// Print the output of the run and of all runs below it; each line begins with the name of the
    /// capsule and the last characters of the run id
    #[arg(long)]
    pub tree: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct CancelArguments {
    /// Run: its id, a unique prefix of the id, or @last for the latest root
    #[arg(add = completion::runs())]
    pub run: String,

    /// Reason for the cancellation; `aod runs show` shows it
    #[arg(long, default_value = "")]
    pub reason: String,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
