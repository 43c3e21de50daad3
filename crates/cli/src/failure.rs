//! Why a command failed, as people read it: `error:`, all that is wrong, then `hint:`.

use std::error::Error;
use std::fmt::Write as _;

use aod_api::problem::Problem;

use crate::exit::Exit;
use crate::text;

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// With which code the program ends.
    pub exit: Exit,
    /// What failed and why, lowercase, without a full stop.
    message: String,
    /// All that is wrong, a line each, with its place.
    details: Vec<String>,
    /// What to try.
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

    /// Something that was given cannot be used.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something that is needed is missing or broken.
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

    /// What failed and why.
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

    /// The refusal of a gateway.
    pub fn refused(problem: &Problem) -> Self {
        let exit = match problem.status {
            401 | 403 if problem.code == "unauthorized" => Exit::Unreachable,
            503 => Exit::Environment,
            400..=499 => Exit::Usage,
            _ => Exit::Internal,
        };
        let failure = Self::new(exit, text::problem::headline(problem))
            .with_details(text::problem::details(problem));
        match problem.code.as_str() {
            "unauthorized" => failure.with_hint(
                "name the file with the gateway's token in AOD_TOKEN_FILE or --token-file",
            ),
            "unknown_capsule" => failure
                .with_hint("`aod capsule ls` lists the capsules, `aod capsule build DIR` adds one"),
            "unknown_run" => failure.with_hint("`aod runs ls` lists the runs"),
            "unknown_dead_letter" => {
                failure.with_hint("`aod deadletters ls` lists the dead letters")
            }
            "unknown_node" => failure.with_hint("`aod nodes ls` lists the nodes"),
            "unknown_token" => failure.with_hint("`aod tokens ls` lists the tokens"),
            "internal" => failure.with_hint(format!(
                "the gateway's log has more under request {}",
                problem.request_id
            )),
            _ => failure,
        }
    }

    /// As it stands on the screen, without a newline at the end.
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
