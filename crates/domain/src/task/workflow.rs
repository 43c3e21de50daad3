//! A workflow: its inputs, and its steps in order.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{Condition, Template};
use crate::text::quoted;

/// A workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    pub name: String,
    pub description: Option<String>,
    pub inputs: Vec<Input>,
    /// The results of the whole task: each is the last output of a step with this name.
    pub outputs: Vec<Output>,
    pub settings: Settings,
    pub steps: Vec<Step>,
}

/// Settings of all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub tool: Option<String>,
    pub model: Option<String>,
    /// Time limit of the whole task, and of each step that sets none.
    pub timeout_seconds: Option<u32>,
    /// Whether a failed step leaves the other steps to run.
    pub continues_on_error: bool,
    /// Maximum iterations of each loop, whatever the loop says.
    pub loop_limit: Option<u32>,
}

/// A value that the caller gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub name: String,
    pub description: Option<String>,
    pub kind: InputType,
    pub is_required: bool,
    pub default: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputType {
    Text,
    Number,
    Boolean,
}

/// A value that a step makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub description: Option<String>,
    pub kind: OutputType,
    pub is_required: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputType {
    Text,
    Number,
    Boolean,
    /// The content of a file of the workspace; none if the workflow does not name the file.
    File(Option<String>),
}

/// `[A-Za-z0-9_-]+`, at most 100 bytes; unique in its workflow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId(String);

/// A text that is not a [`StepId`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid id {0}; expected 1 to {STEP_ID_BYTES_MAX} of A-Z, a-z, 0-9, _ and -")]
pub struct MalformedStepId(String);

/// Longest id of a step: it becomes the name of directories and files.
const STEP_ID_BYTES_MAX: usize = 100;

impl StepId {
    pub fn parse(text: &str) -> Result<Self, MalformedStepId> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if (1..=STEP_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(MalformedStepId(quoted(text)))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for StepId {
    type Error = MalformedStepId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> Self {
        id.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl InputType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// Whether a value has this type.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
        }
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub id: StepId,
    /// For people; the id if the workflow sets none.
    pub name: String,
    /// The step is skipped if this is false.
    pub condition: Option<Condition>,
    pub limits: Limits,
    pub kind: Kind,
}

/// Limits of a step; none stands for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub timeout_seconds: Option<u32>,
    pub retries: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Agent(Agent),
    Command(Command),
    Loop(Loop),
    /// Steps that run at the same time, each in a process of its own.
    Parallel(Vec<Step>),
    Conditional {
        condition: Condition,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
    /// A call of a capsule. `files` maps names of its arguments to paths in the workspace.
    Capsule {
        capsule: String,
        arguments: BTreeMap<String, Value>,
        files: BTreeMap<String, String>,
    },
}

/// A step that an AI tool performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub prompt: Template,
    pub tool: Option<String>,
    pub model: Option<String>,
    pub outputs: Vec<Output>,
}

/// A step that runs a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program if there are arguments, else a line for `sh -c`.
    pub command: Template,
    pub arguments: Option<Vec<Template>>,
    /// Whether the step succeeds whatever the program's exit code is.
    pub may_fail: bool,
}

/// Steps that run again until a condition is true.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub steps: Vec<Step>,
    pub until: Condition,
    pub iterations_max: u32,
}

/// Time limit of a step without one. Source: the workflow dialect of Rover.
const STEP_SECONDS_DEFAULT: u32 = 1_800;

impl Workflow {
    /// The name of the tool that performs a step.
    pub fn tool_of<'a>(&'a self, agent: &'a Agent) -> &'a str {
        let tool = agent.tool.as_deref().or(self.settings.tool.as_deref());
        tool.unwrap_or(super::TOOL_DEFAULT)
    }

    /// The model that a step wants; none for the tool's own default.
    pub fn model_of<'a>(&'a self, agent: &'a Agent) -> Option<&'a str> {
        agent.model.as_deref().or(self.settings.model.as_deref())
    }

    /// The time limit of `step`.
    pub fn timeout(&self, step: &Step) -> Duration {
        let seconds = step.limits.timeout_seconds;
        let seconds = seconds.or(self.settings.timeout_seconds);
        Duration::from_secs(seconds.unwrap_or(STEP_SECONDS_DEFAULT).into())
    }

    /// All steps, also those inside other steps, in the order of the file.
    pub fn all_steps(&self) -> Vec<&Step> {
        let mut all = Vec::new();
        self.steps.iter().for_each(|step| step.collect(&mut all));
        all
    }
}

impl Step {
    /// Whether it consists of other steps.
    pub const fn has_steps(&self) -> bool {
        matches!(
            self.kind,
            Kind::Loop(_) | Kind::Parallel(_) | Kind::Conditional { .. }
        )
    }

    /// The step and all steps inside it.
    pub fn all(&self) -> Vec<&Self> {
        let mut all = Vec::new();
        self.collect(&mut all);
        all
    }

    /// Whether it declares an output of this name with the content of a file.
    pub(super) fn makes_file(&self, name: &str) -> bool {
        let Kind::Agent(agent) = &self.kind else {
            return false;
        };
        let mut outputs = agent.outputs.iter();
        outputs.any(|output| output.name == name && matches!(output.kind, OutputType::File(_)))
    }

    fn collect<'a>(&'a self, all: &mut Vec<&'a Self>) {
        all.push(self);
        let inner: [&[Self]; 2] = match &self.kind {
            Kind::Agent(_) | Kind::Command(_) | Kind::Capsule { .. } => [&[], &[]],
            Kind::Loop(Loop { steps, .. }) | Kind::Parallel(steps) => [steps, &[]],
            Kind::Conditional {
                then, otherwise, ..
            } => [then, otherwise],
        };
        inner
            .into_iter()
            .flatten()
            .for_each(|step| step.collect(all));
    }
}
