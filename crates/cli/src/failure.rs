//! The error of a command, as the terminal shows it: `error:`, the details, then `hint:`.

use std::error::Error;
use std::fmt::Write as _;

use aod_api::problem::Problem;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;

use crate::exit::Exit;
use crate::text;

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the program.
    pub exit: Exit,
    /// The problem and its cause, lowercase, without a full stop.
    message: String,
    /// Each single problem with its place, one per line.
    details: Vec<String>,
    /// A suggested fix.
    hint: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            details: Vec::new(),
            hint: None,
        }
    }

    /// The command line, a file or the request is invalid.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A part of this machine or of the cluster is missing or broken.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Exit::Environment, message)
    }

    /// Adds the whole chain of `source`.
    pub fn because(mut self, source: &(dyn Error + 'static)) -> Self {
        let mut next = Some(source);
        while let Some(error) = next {
            let text = error.to_string();
            // Some libraries repeat their source in their own text.
            if !self.message.ends_with(&text) {
                let _ = write!(self.message, ": {text}");
            }
            next = error.source();
        }
        self
    }

    /// The problem and its cause.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The problem that a gateway answered with.
    pub fn refused(problem: &Problem) -> Self {
        let exit = match problem.status {
            401 | 403 if problem.code == "unauthorized" => Exit::Unreachable,
            503 => Exit::Environment,
            400..=499 => Exit::Usage,
            _ => Exit::Internal,
        };
        let mut details = text::problem::details(problem);
        if problem.code == ErrorCode::Internal.as_str() {
            details.push(format!("request_id: {}", problem.request_id));
        }
        let failure = Self::new(exit, text::problem::headline(problem)).with_details(details);
        match ErrorCode::named(&problem.code) {
            Some(code) => failure.with_hint(remedy(code, run_in(&problem.instance))),
            // A newer gateway knows more codes.
            None => failure.with_hint(format!("read {} of the gateway", problem.kind)),
        }
    }

    /// The text for the terminal, without a newline at the end.
    pub fn render(&self) -> String {
        let mut text = format!("error: {}", self.message);
        for detail in &self.details {
            let _ = write!(text, "\n  {detail}");
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\nhint: {hint}");
        }
        text
    }
}

impl From<aod_kit::Error> for Failure {
    fn from(error: aod_kit::Error) -> Self {
        use aod_kit::Error::{NoTemporaryFile, NotWritten, Refused};
        let exit = match error {
            NoTemporaryFile { .. } | NotWritten { .. } => Exit::Environment,
            _ => Exit::Usage,
        };
        let mut failure = Self::new(exit, error.to_string());
        if let Some(source) = error.source() {
            failure = failure.because(source);
        }
        if let Refused { details, hint, .. } = error {
            (failure.details, failure.hint) = (details, hint);
        }
        failure
    }
}

/// The remedy of `code`, with the id of the run in its commands.
pub(crate) fn remedy(code: ErrorCode, run: Option<RunId>) -> String {
    let remedy = code.remedy();
    match run {
        Some(run) => remedy.replace("RUN", &run.to_string()),
        None => remedy,
    }
}

/// The run in a path of the gateway.
fn run_in(path: &str) -> Option<RunId> {
    path.split('/').find_map(|part| part.parse().ok())
}
