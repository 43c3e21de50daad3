//! Flags of `aod events`.

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{ConnectArguments, time};
use crate::completion;

#[derive(Clone, Debug, Subcommand)]
pub enum EventsCommand {
    /// Print stored events, oldest first
    Query(QueryArguments),
    /// Print new events until interrupted
    Tail(TailArguments),
}

/// A selection of events: all given conditions must hold.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectionArguments {
    /// Only events of this type: `ended` or `dev.aod.run.ended.v1` (repeatable; one must match)
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Vec<String>,

    /// Only events of this run
    #[arg(long, value_name = "RUN", conflicts_with = "tree", add = completion::runs())]
    pub run: Option<String>,

    /// Only events of this run's tree
    #[arg(long, value_name = "RUN", add = completion::runs())]
    pub tree: Option<String>,

    /// Only events of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,

    /// Only registrations of this capsule and events of its runs
    #[arg(long, value_name = "NAME", add = completion::capsules())]
    pub capsule: Option<String>,

    /// Only events of runs with this label, or in a tree whose root has this label (repeatable; all must match)
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,

    /// Only events whose values contain all these words
    #[arg(long, value_name = "WORDS")]
    pub text: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct QueryArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// Only events since this time: 2026-03-01T12:00:00Z, 2026-03-01, an age such as 2h, today, yesterday
    #[arg(long, value_name = "TIME", value_parser = time::time)]
    pub since: Option<Timestamp>,

    /// Only events before this time
    #[arg(long, value_name = "TIME", value_parser = time::time)]
    pub until: Option<Timestamp>,

    /// Only events after this sequence number of the log
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,

    /// Maximum number of events
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,

    /// All events, without a limit
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct TailArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// Start after this sequence number of the log [default: its end]
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}
