//! Logs of the program itself, to stderr.

use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;
use crate::console::LogOutput;
use crate::failure::Failure;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    Json,
    /// Lines for people
    #[default]
    Text,
}

/// The default filter of long-running programs; the NATS library repeats messages of AOD.
const FILTER_SERVICE: &str = "info,async_nats=warn";

/// The default filter of other commands.
const FILTER_COMMAND: &str = "warn,async_nats=error";

/// The default filter of a command with a private cluster: warnings are for operators, and `aod doctor` shows them.
const FILTER_PRIVATE: &str = "error,async_nats=off";

/// Sets up the log, once per process.
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
        .map_err(|error| Failure::usage(format!("invalid --log {text:?}")).because(&error))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogOutput)
        .with_ansi(false);
    let set = match arguments.log_format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
    // A test that runs several commands in one process has already set it.
    set.or(Ok(()))
}
