//! Reads the answer of a tool, and whether its turn succeeded.

use thiserror::Error;

use super::Tool;
use super::output::{End, MESSAGE_LENGTH_MAX};
use crate::run::Exit;
use crate::spending::{Cost, Tokens};

/// What a tool answered in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The last message of the model; all of stdout if it has another format than the tool's.
    pub text: String,
    /// None if the tool does not report it.
    pub usage: Option<Tokens>,
    /// None if the tool does not report it.
    pub cost: Option<Cost>,
    /// The models that answered, as far as the tool reports them.
    pub models: Vec<String>,
    /// Why the turn failed.
    pub error: Option<ToolError>,
}

/// Why the turn of a tool failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ToolError {
    #[error("the tool reported an error: {0}")]
    Reported(String),
    /// A limit or a cancellation ended the turn, whatever the exit code is.
    #[error("the tool stopped before the end of its turn: {0}")]
    CutShort(String),
    #[error("the tool ended with exit code {code}{}", after_colon(stderr))]
    Exited { code: i32, stderr: String },
    #[error("signal {signal} ended the tool{}", after_colon(stderr))]
    Killed { signal: i32, stderr: String },
    #[error("the tool ended without a result{}", after_colon(stderr))]
    NoResult { stderr: String },
}

fn after_colon(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

impl Tool {
    /// Reads the output of the tool; takes time in proportion to its size.
    pub fn answer(&self, stdout: &[u8], stderr: &[u8], exit: Exit) -> Answer {
        let found = self.output.read(stdout);
        let text = match found.text {
            Some(text) => text,
            None if found.has_events => String::new(),
            None => String::from_utf8_lossy(stdout).into_owned(),
        };
        Answer {
            text,
            usage: found.usage,
            cost: found.cost,
            models: found.models,
            error: error(found.end, exit, stderr),
        }
    }
}

fn error(end: Option<End>, exit: Exit, stderr: &[u8]) -> Option<ToolError> {
    let is_completed = match end {
        Some(End::Failed(message)) => return Some(ToolError::Reported(message)),
        Some(End::CutShort(reason)) => return Some(ToolError::CutShort(reason)),
        Some(End::Completed) => true,
        None => false,
    };
    match (exit.code, exit.signal) {
        (_, Some(signal)) => Some(ToolError::Killed {
            signal,
            stderr: tail(stderr),
        }),
        (Some(0), None) if is_completed => None,
        (Some(0) | None, None) => Some(ToolError::NoResult {
            stderr: tail(stderr),
        }),
        (Some(code), None) => Some(ToolError::Exited {
            code,
            stderr: tail(stderr),
        }),
    }
}

/// The end of the text, without spaces around it.
fn tail(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii();
    let start = bytes.len().saturating_sub(MESSAGE_LENGTH_MAX);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}
