//! The two outputs of a command: data to stdout, everything else to stderr. Only this module prints.
//!
//! Capsules choose much of the text. What a person reads is therefore [`visible`]: stderr always, stdout on a terminal.
//! A pipe or a file gets the data as it is. `clippy.toml` forbids other code to use the outputs.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::ProgressStyle;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::visible;

/// Interval between updates of a [`StatusLine`].
const TICK: Duration = Duration::from_millis(120);

/// The format of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For programs; stable
    Json,
    /// For people; may change
    #[default]
    Text,
}

/// The outputs of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    pub(crate) format: Format,
    /// Whether progress may overwrite the current line.
    pub(crate) is_interactive: bool,
    /// Whether data is for a person who reads it on a terminal.
    pub(crate) is_terminal: bool,
}

impl Console {
    pub(crate) fn of_this_process(format: Format) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            format,
            is_interactive: stderr().is_terminal() && !is_plain,
            is_terminal: stdout().is_terminal(),
        }
    }

    /// A line to stderr, for people.
    #[expect(clippy::unused_self, reason = "only code with a console may print")]
    pub(crate) fn tell(self, text: &str) {
        // A broken stderr cannot be reported.
        let _ = above(|| writeln!(stderr().lock(), "{}", visible(text)));
    }

    /// Data to stdout: `value` as JSON, or `text`.
    pub(crate) fn show<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.show_json(value),
            Format::Text => self.print(&text()),
        }
    }

    /// One JSON value and a newline.
    pub(crate) fn show_json<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let text =
            serde_json::to_string_pretty(value).expect("views are plain data with texts as keys");
        self.print(&text)
    }

    /// One JSON value on one line of several; or `text`.
    pub(crate) fn show_line<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.print(&json_line(value)),
            Format::Text => self.print(&text()),
        }
    }

    /// As [`Console::show_line`] for each value, in one write.
    pub(crate) fn show_lines<T: Serialize>(
        self,
        values: &[T],
        text: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        let mut lines = String::new();
        for value in values {
            match self.format {
                Format::Json => lines.push_str(&json_line(value)),
                Format::Text => lines.push_str(&text(value)),
            }
            lines.push('\n');
        }
        self.write(&lines)
    }

    /// Text and a newline to stdout; empty text prints nothing.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        match text.trim_end_matches('\n') {
            "" => Ok(()),
            text => self.write(&format!("{text}\n")),
        }
    }

    fn write(self, text: &str) -> Result<(), Failure> {
        let text = self.for_stdout(text);
        let written = above(|| {
            let mut output = stdout().lock();
            output.write_all(text.as_bytes())?;
            output.flush()
        });
        match written {
            // The reader, `head` for instance, has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                std::process::exit(Exit::Ok.code().into())
            }
            written => written
                .map_err(|error| Failure::environment("stdout cannot be written").because(&error)),
        }
    }

    fn for_stdout(self, text: &str) -> Cow<'_, str> {
        if self.is_terminal {
            visible(text)
        } else {
            Cow::Borrowed(text)
        }
    }

    /// A line about `subject` that changes, and shows the time since its start; nothing where progress cannot overwrite
    /// a line. Other outputs appear above it.
    pub(crate) fn status_line(self, subject: &str) -> StatusLine {
        if !self.is_interactive {
            return StatusLine::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {prefix}  {elapsed}  {wide_msg}")
            .expect("the template is a constant");
        let bar = Bar::new_spinner()
            .with_style(style)
            .with_prefix(visible(subject).into_owned());
        bar.enable_steady_tick(TICK);
        *current_line() = Some(bar.clone());
        StatusLine(Arc::new(OwnedLine(bar)))
    }
}

/// The line at the end of the terminal.
static LINE: Mutex<Option<Bar>> = Mutex::new(None);

fn current_line() -> MutexGuard<'static, Option<Bar>> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints above the line at the end of the terminal, if there is one.
fn above<T>(print: impl FnOnce() -> T) -> T {
    let line = current_line().clone();
    match line {
        Some(line) => line.suspend(print),
        None => print(),
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "this module is the one that prints"
)]
type Bar = indicatif::ProgressBar;

fn json_line<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("views are plain data with texts as keys")
}

/// The changing line at the end of a terminal; removed with its last copy.
#[derive(Clone, Debug)]
pub(crate) struct StatusLine(Arc<OwnedLine>);

#[derive(Debug)]
struct OwnedLine(Bar);

impl OwnedLine {
    fn remove(&self) {
        if !self.0.is_hidden() {
            *current_line() = None;
        }
        self.0.finish_and_clear();
    }
}

impl Drop for OwnedLine {
    fn drop(&mut self) {
        self.remove();
    }
}

impl StatusLine {
    pub(crate) fn hidden() -> Self {
        Self(Arc::new(OwnedLine(Bar::hidden())))
    }

    pub(crate) fn set(&self, text: &str) {
        self.0.0.set_message(visible(text).into_owned());
    }

    /// Removes the line before its last copy.
    pub(crate) fn remove(&self) {
        self.0.remove();
    }
}

/// Stderr for the program's log: [`visible`] lines.
#[derive(Debug)]
pub(crate) struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        above(|| stderr().lock().write_all(visible(&text).as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that prints"
)]
fn stdout() -> io::Stdout {
    io::stdout()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that prints"
)]
fn stderr() -> io::Stderr {
    io::stderr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_gets_escapes_and_pipe_gets_exact_text() {
        let text = "title\u{1b}]52;c;ZXZpbA==\u{7}";
        let shown = |is_terminal| {
            let console = Console {
                format: Format::Text,
                is_interactive: false,
                is_terminal,
            };
            console.for_stdout(text).into_owned()
        };
        assert_eq!(shown(true), "title\\u001b]52;c;ZXZpbA==\\u0007");
        assert_eq!(shown(false), text);
    }
}
