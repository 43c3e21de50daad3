//! The two outputs of a command: data to stdout, all else to stderr. No other place prints.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;

/// How data is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For programs; a contract.
    Json,
    /// For people; may change.
    #[default]
    Text,
}

/// Where a command shows things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    pub(crate) format: Format,
    /// Whether progress may be drawn over what stands there.
    pub(crate) is_interactive: bool,
}

impl Console {
    pub(crate) fn of_this_process(format: Format) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            format,
            is_interactive: io::stderr().is_terminal() && !is_plain,
        }
    }

    /// A line to stderr, for people.
    #[expect(clippy::unused_self, reason = "only who was given a console may speak")]
    pub(crate) fn tell(self, text: &str) {
        // Nobody is left to be told of a broken stderr.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Data to stdout: `value` as JSON, or `text` as it is.
    pub(crate) fn show<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.show_json(value),
            Format::Text => Self::print(&text()),
        }
    }

    /// One JSON value and a newline.
    #[expect(clippy::unused_self, reason = "only who was given a console may speak")]
    pub(crate) fn show_json<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let text =
            serde_json::to_string_pretty(value).expect("views are plain data with texts as keys");
        Self::print(&text)
    }

    /// One JSON value on one line, where more follow; or `text`.
    pub(crate) fn show_line<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => Self::print(
                &serde_json::to_string(value).expect("views are plain data with texts as keys"),
            ),
            Format::Text => Self::print(&text()),
        }
    }

    /// Text to stdout and a newline; nothing for no text.
    pub(crate) fn print(text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let mut output = io::stdout().lock();
        let written =
            writeln!(output, "{}", text.trim_end_matches('\n')).and_then(|()| output.flush());
        match written {
            // Whoever read, `head` for instance, has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                std::process::exit(Exit::Ok.code().into())
            }
            written => written
                .map_err(|error| Failure::environment("stdout cannot be written").because(&error)),
        }
    }
}
