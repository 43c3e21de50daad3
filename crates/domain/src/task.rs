//! Tasks: workflows in YAML, whose steps run AI tools and commands in one sandbox.
//!
//! ```text
//! workflow    the steps of a workflow, with their limits
//! read        reads a workflow file, with all its problems and warnings
//! variable    the values that prompts and conditions name
//! template    texts with `{{…}}`
//! condition   `if`, `until` and `condition`
//! plan        which step is next
//! capture     the outputs in the answer of an AI tool
//! prompt      the prompt of an AI tool, with a request for the outputs of its step
//! tool        how AI tools are started, and their output read
//! ```
//!
//! The format is the one of Rover's workflow files, with control flow added. A file that Rover loads means the same here.

mod capture;
mod condition;
pub mod plan;
pub mod prompt;
mod read;
mod template;
pub mod tool;
mod variable;
mod workflow;

#[cfg(test)]
mod tests;

pub use self::capture::{Captured, capture};
pub use self::condition::{Condition, MalformedCondition};
pub use self::read::{WORKFLOW_SIZE_BYTES_MAX, read};
pub use self::template::{Filled, Template};
pub use self::variable::Variable;
pub use self::workflow::{
    Agent, Command, Input, InputType, Kind, Limits, Loop, Output, OutputType, Settings, Step,
    StepId, Workflow,
};
