//! Logs of the program itself, to stderr.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;
use crate::failure::Failure;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// An object a line.
    Json,
    /// A line for people.
    #[default]
    Text,
}

/// What programs that run on log unless told otherwise; the client library repeats what ours says.
const FILTER_SERVICE: &str = "info,async_nats=warn";

/// What other commands log unless told otherwise.
const FILTER_COMMAND: &str = "warn,async_nats=error";

/// What is logged where a whole cluster starts and ends with the command: its warnings are for who
/// runs one, and `aod doctor` has them.
const FILTER_PRIVATE: &str = "error,async_nats=off";

/// Sets the log up; once a process.
pub(crate) fn begin(arguments: &Arguments) -> Result<(), Failure> {
    let default = if arguments.command.is_service() {
        FILTER_SERVICE
    } else if arguments.command.is_private() {
        FILTER_PRIVATE
    } else {
        FILTER_COMMAND
    };
    let text = arguments.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(text)
        .map_err(|error| Failure::usage(format!("--log {text:?} is no filter")).because(&error))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false);
    let set = match arguments.log_format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
    // A test that starts several commands in its process has set it already.
    set.or(Ok(()))
}
