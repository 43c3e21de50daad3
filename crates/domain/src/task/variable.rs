//! The values that prompts and conditions name.

use std::fmt;

/// A value of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variable {
    /// `inputs.NAME`.
    Input(String),
    /// `steps.ID.outputs`: all outputs of the step as one JSON object.
    Outputs(String),
    /// `steps.ID.outputs.NAME`.
    Output { step: String, name: String },
}

impl Variable {
    /// Parses a variable; none for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            let is_reserved = |found: char| found.is_whitespace() || "{}()&|=!".contains(found);
            !name.is_empty() && !name.contains(is_reserved)
        };
        if let Some(name) = text.strip_prefix("inputs.") {
            return is_name(name).then(|| Self::Input(name.to_owned()));
        }
        let (step, rest) = text.strip_prefix("steps.")?.split_once('.')?;
        if !is_name(step) {
            return None;
        }
        if rest == "outputs" {
            return Some(Self::Outputs(step.to_owned()));
        }
        let name = rest.strip_prefix("outputs.")?;
        is_name(name).then(|| Self::Output {
            step: step.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(name) => write!(formatter, "inputs.{name}"),
            Self::Outputs(step) => write!(formatter, "steps.{step}.outputs"),
            Self::Output { step, name } => write!(formatter, "steps.{step}.outputs.{name}"),
        }
    }
}
