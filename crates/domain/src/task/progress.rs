//! A task under way: its workflow, its inputs, and the steps that have ended with their outputs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::plan::{self, Ended, Ending, Next, Position, Run, Value};
use super::{Command, Filled, OutputType, Step, StepId, Template, Variable, Workflow};

/// The outputs of an execution of a step, by name.
pub type Outputs = BTreeMap<String, String>;

/// What stands for an output that no step made.
const MISSING: &str = "[Not found in response]";
const MISSING_FILE: &str = "[File not created]";

/// Longest prompt, in bytes. Source: the workflow contract.
pub const PROMPT_BYTES_MAX: usize = 10_000_000;

/// Longest command with its arguments, in bytes. Source: Linux `execve(2)`, with a stack of 8 MiB.
const COMMAND_BYTES_MAX: usize = 2 << 20;

/// Maximum of all outputs of a task, in bytes: its node has them in memory.
pub const OUTPUTS_BYTES_MAX: usize = 64 << 20;

/// Why a step cannot start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfilled {
    #[error("{} no value", names(.0))]
    Unknown(Vec<Variable>),
    #[error(
        "its text has more than {0} bytes with the values in it; expected long contents in files of the workspace"
    )]
    TooLong(usize),
}

fn names(variables: &[Variable]) -> String {
    let names: Vec<String> = variables.iter().map(ToString::to_string).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    format!("{} {verb}", names.join(", "))
}

/// A task under way.
#[derive(Clone, Debug)]
pub struct Progress {
    workflow: Workflow,
    inputs: BTreeMap<String, String>,
    ended: Ended,
    outputs: BTreeMap<Position, Outputs>,
    /// The executions in the order of their ends.
    order: Vec<Position>,
}

impl Progress {
    /// The beginning. `inputs` are those of the caller; those that are missing have their defaults.
    pub fn new(workflow: Workflow, inputs: &Map<String, Json>) -> Self {
        let defaults = workflow.inputs.iter().filter_map(|input| {
            let default = input.default.as_ref()?;
            Some((input.name.clone(), text_of(default)))
        });
        let mut all: BTreeMap<String, String> = defaults.collect();
        all.extend(
            inputs
                .iter()
                .map(|(name, value)| (name.clone(), text_of(value))),
        );
        Self {
            workflow,
            inputs: all,
            ended: Ended::new(),
            outputs: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    pub const fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// Whether the task has room for these outputs.
    pub fn has_room_for(&self, outputs: &Outputs) -> bool {
        let all = self.outputs.values().chain([outputs]);
        all.map(size_bytes).sum::<usize>() <= OUTPUTS_BYTES_MAX
    }

    /// Records that an execution has ended. A later end of the same execution replaces an earlier one.
    pub fn record(&mut self, position: Position, ending: Ending, outputs: Outputs) {
        if self.ended.contains_key(&position) {
            self.order.retain(|earlier| *earlier != position);
        }
        self.ended.insert(position.clone(), ending);
        self.outputs.insert(position.clone(), outputs);
        self.order.push(position);
    }

    /// Forgets the first step of the workflow that failed, and everything after it, so that another attempt runs them
    /// again.
    pub fn retry(&mut self) {
        let failed = self.workflow.steps.iter().find(|step| {
            let position = Position {
                step: step.id.clone(),
                iterations: Vec::new(),
            };
            self.ended.get(&position) == Some(&Ending::Failed)
        });
        let Some(failed) = failed else { return };
        let ids: Vec<&StepId> = failed.all().into_iter().map(|step| &step.id).collect();
        let mut order = self.order.iter();
        let kept = order.position(|position| ids.contains(&&position.step));
        for position in self.order.split_off(kept.unwrap_or(self.order.len())) {
            self.ended.remove(&position);
            self.outputs.remove(&position);
        }
    }

    /// What the task does next.
    pub fn next(&self) -> Next {
        plan::next(&self.workflow, &self.ended, &|value| self.value(value))
    }

    /// The step of an execution.
    pub fn step(&self, id: &StepId) -> Option<&Step> {
        let mut all = self.workflow.all_steps().into_iter();
        all.find(|step| step.id == *id)
    }

    /// A prompt with the values that steps of `run` see.
    ///
    /// # Errors
    /// [`Unfilled::TooLong`] above [`PROMPT_BYTES_MAX`].
    pub fn prompt(&self, template: &Template, run: &Run) -> Result<Filled, Unfilled> {
        self.fill(template, run, PROMPT_BYTES_MAX)
    }

    fn fill(&self, template: &Template, run: &Run, bytes_max: usize) -> Result<Filled, Unfilled> {
        let value_of = |variable: &Variable| self.value(&seen(variable, run)?);
        let filled = template.fill(bytes_max, value_of);
        filled.ok_or(Unfilled::TooLong(bytes_max))
    }

    /// The program and the arguments of a command.
    ///
    /// # Errors
    /// All variables without a value, or the maximum length.
    pub fn argv(&self, command: &Command, run: &Run) -> Result<Vec<String>, Unfilled> {
        let mut argv = Vec::new();
        let mut unknown = Vec::new();
        let mut left = COMMAND_BYTES_MAX;
        let arguments = command.arguments.iter().flatten();
        for template in [&command.command].into_iter().chain(arguments) {
            let filled = self.fill(template, run, left);
            let filled = filled.map_err(|_| Unfilled::TooLong(COMMAND_BYTES_MAX))?;
            left -= filled.text.len();
            unknown.extend(filled.unknown);
            argv.push(filled.text);
        }
        if !unknown.is_empty() {
            return Err(Unfilled::Unknown(unknown));
        }
        if command.arguments.is_none() {
            argv.splice(0..0, ["sh", "-c"].map(str::to_owned));
        }
        Ok(argv)
    }

    /// The results of the task: for each declared output the last output of a step with its name.
    pub fn results(&self) -> Outputs {
        let outputs = self.workflow.outputs.iter();
        let results = outputs.map(|output| {
            let last = self.order.iter().rev().find_map(|position| {
                let outputs = self.outputs.get(position)?;
                outputs.get(&output.name)
            });
            let missing = match output.kind {
                OutputType::File(_) => MISSING_FILE,
                _ => MISSING,
            };
            (
                output.name.clone(),
                last.map_or(missing, String::as_str).to_owned(),
            )
        });
        results.collect()
    }

    /// The executions that failed, in the order of their ends: those with a process of their own, or else the loops
    /// whose condition was not met.
    pub fn failed(&self) -> Vec<&Position> {
        let order = self.order.iter();
        let failed = order.filter(|position| self.ended.get(position) == Some(&Ending::Failed));
        let failed: Vec<&Position> = failed.collect();
        let has_process = |position: &&Position| {
            let step = self.step(&position.step);
            step.is_some_and(|step| !step.has_steps())
        };
        let with_process: Vec<&Position> = failed.iter().copied().filter(has_process).collect();
        if with_process.is_empty() {
            failed
        } else {
            with_process
        }
    }

    fn value(&self, value: &Value) -> Option<Cow<'_, str>> {
        match value {
            Value::Input(name) => self.inputs.get(name).map(|text| text.as_str().into()),
            Value::Outputs(position) => {
                let outputs = self.outputs.get(position)?;
                serde_json::to_string(outputs).ok().map(Cow::Owned)
            }
            Value::Output { position, name } => {
                let outputs = self.outputs.get(position)?;
                let text = outputs.get(name).or_else(|| {
                    // An alias of Rover for the content of a file.
                    let file = name.strip_suffix("_content")?;
                    let step = self.step(&position.step)?;
                    outputs.get(file).filter(|_| step.makes_file(file))
                });
                text.map(|text| text.as_str().into())
            }
        }
    }
}

fn size_bytes(outputs: &Outputs) -> usize {
    outputs
        .iter()
        .map(|(name, text)| name.len() + text.len())
        .sum()
}

/// The value that a variable stands for in the steps of `run`.
fn seen(variable: &Variable, run: &Run) -> Option<Value> {
    let last = |step: &str| {
        let mut last = run.last.iter();
        let found = last.find(|(id, _)| id.as_str() == step);
        found.map(|(_, position)| position.clone())
    };
    Some(match variable {
        Variable::Input(name) => Value::Input(name.clone()),
        Variable::Outputs(step) => Value::Outputs(last(step)?),
        Variable::Output { step, name } => Value::Output {
            position: last(step)?,
            name: name.clone(),
        },
    })
}

/// The text of a value as templates see it.
fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::{Kind, read};

    fn progress(yaml: &str, inputs: &Json) -> Progress {
        let outcome = read("w.yaml", yaml.as_bytes(), false);
        let workflow = outcome.value.expect("a workflow");
        Progress::new(workflow, inputs.as_object().expect("an object"))
    }

    fn next_argv(progress: &Progress) -> Result<Vec<String>, Unfilled> {
        let Next::Run(run) = progress.next() else {
            panic!("steps are left")
        };
        let step = progress.step(&run.positions[0].step).expect("a step");
        let Kind::Command(command) = &step.kind else {
            panic!("a command")
        };
        progress.argv(command, &run)
    }

    const WORKFLOW: &str = "
name: w
inputs:
  - {name: who, type: string, required: false, default: you}
  - {name: count, type: number, required: false}
outputs:
  - {name: stdout, type: string}
  - {name: report, type: file, filename: report.md}
steps:
  - {id: one, type: command, command: 'echo {{inputs.who}} {{ inputs.count }}'}
  - {id: two, type: command, command: echo, args: ['{{steps.one.outputs.stdout}}', '']}
  - {id: three, type: command, command: 'echo {{inputs.none}} {{steps.two.outputs.none}}'}
";

    #[test]
    fn steps_see_inputs_and_outputs_as_they_are() {
        let mut progress = progress(WORKFLOW, &json!({"count": 3}));
        let expected = ["sh", "-c", "echo you 3"].map(str::to_owned);
        assert_eq!(next_argv(&progress), Ok(expected.into()));
        let position = |step: &str| Position {
            step: StepId::parse(step).expect("an id"),
            iterations: Vec::new(),
        };
        let stdout = |text: &str| Outputs::from([("stdout".to_owned(), text.to_owned())]);
        let text = "$& {{inputs.who}}";
        progress.record(position("one"), Ending::Succeeded, stdout(text));
        let expected = ["echo", text, ""].map(str::to_owned);
        assert_eq!(next_argv(&progress), Ok(expected.into()));
        progress.record(position("two"), Ending::Failed, stdout("last"));
        assert_eq!(progress.failed(), [&position("two")]);
        let results = progress.results();
        assert_eq!(results["stdout"], "last");
        assert_eq!(results["report"], "[File not created]");
    }

    #[test]
    fn retry_runs_failed_steps_again() {
        let mut progress = progress(WORKFLOW, &json!({"count": 3}));
        let position = |step: &str| Position {
            step: StepId::parse(step).expect("an id"),
            iterations: Vec::new(),
        };
        progress.record(position("one"), Ending::Succeeded, Outputs::new());
        progress.record(position("two"), Ending::Failed, Outputs::new());
        assert!(matches!(progress.next(), Next::End(plan::Outcome::Failed)));
        progress.retry();
        let Next::Run(run) = progress.next() else {
            panic!("the failed step runs again")
        };
        assert_eq!(run.positions, [position("two")]);
        assert_eq!(progress.failed().len(), 0);
    }

    #[test]
    fn retry_runs_a_loop_again_that_did_not_end() {
        let yaml = "
name: w
steps:
  - {id: before, type: command, command: 'true'}
  - id: again
    type: loop
    maxIterations: 1
    until: steps.inner.outputs.stdout == done
    steps: [{id: inner, type: command, command: 'true'}]
";
        let mut progress = progress(yaml, &json!({}));
        let position = |step: &str, iterations: &[u32]| Position {
            step: StepId::parse(step).expect("an id"),
            iterations: iterations.to_vec(),
        };
        progress.record(position("before", &[]), Ending::Succeeded, Outputs::new());
        progress.record(position("inner", &[1]), Ending::Succeeded, Outputs::new());
        progress.record(position("again", &[]), Ending::Failed, Outputs::new());
        assert_eq!(progress.failed(), [&position("again", &[])]);
        progress.retry();
        let Next::Run(run) = progress.next() else {
            panic!("the loop runs again")
        };
        assert_eq!(run.positions, [position("inner", &[1])]);
    }

    #[test]
    fn outputs_have_a_maximum_together() {
        let progress = progress(WORKFLOW, &json!({}));
        let outputs = |bytes| Outputs::from([("x".to_owned(), "y".repeat(bytes))]);
        assert!(progress.has_room_for(&outputs(OUTPUTS_BYTES_MAX - 1)));
        assert!(!progress.has_room_for(&outputs(OUTPUTS_BYTES_MAX)));
    }

    #[test]
    fn command_lists_all_variables_without_a_value() {
        let yaml = WORKFLOW.replace("  - {id: two", "  - {id: two, if: 'inputs.who == x'");
        let mut progress = progress(&yaml, &json!({}));
        let unknown = next_argv(&progress).expect_err("no count");
        assert_eq!(unknown.to_string(), "inputs.count has no value");
        let one = StepId::parse("one").expect("an id");
        let position = |step| Position {
            step,
            iterations: Vec::new(),
        };
        progress.record(position(one), Ending::Succeeded, Outputs::new());
        let two = StepId::parse("two").expect("an id");
        progress.record(position(two), Ending::Skipped, Outputs::new());
        let unknown = next_argv(&progress).expect_err("two variables");
        let expected = "inputs.none, steps.two.outputs.none have no value";
        assert_eq!(unknown.to_string(), expected);
    }
}
