//! Which events of the whole log are asked for.

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};

use super::ConnectArguments;

#[derive(Clone, Debug, Subcommand)]
pub enum EventsCommand {
    /// Print events that are stored, the oldest first
    Query(QueryArguments),
    /// Print events as they are stored, until interrupted
    Tail(TailArguments),
}

/// Which events are wanted: all that is given must hold.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectionArguments {
    /// Only events of this type, `result` or `dev.aod.run.result.v1`; may be given again for any of them
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Vec<String>,

    /// Only events of this run
    #[arg(long, value_name = "RUN", conflicts_with = "tree")]
    pub run: Option<String>,

    /// Only events of the whole tree of this run
    #[arg(long, value_name = "RUN")]
    pub tree: Option<String>,

    /// Only events of this tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,

    /// Only registrations of this capsule and events of its runs
    #[arg(long, value_name = "NAME")]
    pub capsule: Option<String>,

    /// Only events of runs with this label, or in a tree whose root has it; may be given again for all of them
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,

    /// Only events with these words in their values
    #[arg(long, value_name = "WORDS")]
    pub text: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct QueryArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// Only events from this time on: 2026-03-01T12:00:00Z, or how long ago, 90s, 15m, 72h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<Timestamp>,

    /// Only events before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<Timestamp>,

    /// Only events after this number in the log
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,

    /// Events at the most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,

    /// All events, however many
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

#[derive(Clone, Debug, Args)]
pub struct TailArguments {
    #[command(flatten)]
    pub selection: SelectionArguments,

    /// Begin behind this number in the log, and not now
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,

    #[command(flatten)]
    pub connect: ConnectArguments,
}

/// A time, or how long ago it was.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago: Option<SignedDuration> = text.parse().ok();
    let time = ago.and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    time.ok_or_else(|| {
        "expected a time like 2026-03-01T12:00:00Z, or how long ago, like 15m".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_how_long_ago() {
        let noon = "2026-03-01T12:00:00Z";
        assert_eq!(time(noon).map(|time| time.to_string()), Ok(noon.to_owned()));
        let before = Timestamp::now();
        for (text, seconds) in [("90s", 90), ("15m", 900), ("72h", 259_200)] {
            let ago = before.duration_since(time(text).expect("a time"));
            assert!(
                (seconds - 60..=seconds).contains(&ago.as_secs()),
                "{text}: {ago}"
            );
        }
        assert!(time("yesterday").is_err());
    }
}
