//! Tasks: workflows in YAML, whose steps run AI tools and commands in one sandbox.
//!
//! ```text
//! workflow    the steps of a workflow, with their limits
//! read        reads a workflow file, with all its problems and warnings
//! variable    the values that prompts and conditions name
//! template    texts with `{{…}}`
//! condition   `if`, `until` and `condition`
//! plan        which step is next
//! inputs      the schema of the inputs, and the values that a caller gives
//! progress    a task under way, with the values of its steps
//! capture     the outputs in the answer of an AI tool
//! prompt      the prompt of an AI tool, with a request for the outputs of its step
//! tool        how AI tools are started, and their output read
//! ```
//!
//! The format is the one of Rover's workflow files, with control flow added. A file that Rover loads means the same here.

mod capture;
mod condition;
mod inputs;
pub mod plan;
mod progress;
pub mod prompt;
mod read;
mod template;
pub mod tool;
mod variable;
mod workflow;

#[cfg(test)]
mod tests;

use crate::yaml::Problem;

pub use self::capture::{Captured, capture};
pub use self::condition::{Condition, MalformedCondition};
pub use self::inputs::{Given, give, schema};
pub use self::progress::{OUTPUTS_BYTES_MAX, Outputs, PROMPT_BYTES_MAX, Progress, Unfilled};
pub use self::read::{WORKFLOW_SIZE_BYTES_MAX, read};
pub use self::template::{Filled, Template};
pub use self::variable::Variable;
pub use self::workflow::{
    Agent, Command, Input, InputType, Kind, Limits, Loop, Output, OutputType, Settings, Step,
    StepId, Workflow,
};

/// Inputs that exist whether or not the workflow declares them.
const INPUTS_ALWAYS: [&str; 2] = ["title", "description"];

/// The tool of steps that name none.
const TOOL_DEFAULT: &str = "claude";

/// Reads a workflow that a node can run.
///
/// # Errors
/// All problems.
pub fn read_runnable(file: &str, yaml: &[u8]) -> Result<Workflow, Vec<Problem>> {
    let outcome = read(file, yaml, false);
    let Some(workflow) = outcome.value else {
        return Err(outcome.problems);
    };
    let problem = |message| Problem {
        file: file.to_owned(),
        line: 0,
        column: 0,
        message,
    };
    let catalogue = tool::Catalogue::default();
    let mut problems = Vec::new();
    for step in workflow.all_steps() {
        let id = step.id.as_str();
        match &step.kind {
            Kind::Capsule { .. } => problems.push(problem(format!(
                "the step \"{id}\" has the type capsule, which this version does not run"
            ))),
            Kind::Agent(agent) if catalogue.get(workflow.tool_of(agent)).is_none() => {
                let tool = crate::text::quoted(workflow.tool_of(agent));
                problems.push(problem(format!(
                    "the step \"{id}\" has the unknown tool {tool}"
                )));
            }
            _ => (),
        }
    }
    if problems.is_empty() {
        Ok(workflow)
    } else {
        Err(problems)
    }
}
