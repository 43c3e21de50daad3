//! What only the whole workflow shows: ids that are used twice, values that cannot exist, time that does not suffice.

use std::collections::{BTreeMap, BTreeSet};

use super::Reading;
use crate::task::{
    Agent, Command, Condition, INPUTS_ALWAYS, Kind, Loop, Step, StepId, Template, Variable,
    Workflow,
};
use crate::text::nearest;
use crate::yaml::Place;

/// The steps that were read so far, with the places of their ids.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<StepId, Place>);

impl Seen {
    /// Adds a step; returns the place of an earlier step with this id.
    pub(super) fn add(&mut self, id: &StepId, place: Place) -> Option<Place> {
        let first = self.0.get(id).copied();
        self.0.entry(id.clone()).or_insert(place);
        first
    }

    pub(super) fn place(&self, id: &StepId) -> Option<Place> {
        self.0.get(id).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Adds the warnings about the whole workflow; `place` is its beginning.
pub(super) fn whole(reading: &mut Reading<'_>, place: Place, workflow: &Workflow) {
    let all = workflow.all_steps();
    for step in &all {
        let at = reading.seen.place(&step.id).unwrap_or(place);
        for variable in variables(step) {
            if let Some(reason) = missing(variable, workflow, &all) {
                let id = step.id.as_str();
                let message = format!("the step {id:?} names {variable}: {reason}");
                reading.reader.warn(at, message);
            }
        }
    }
    let seconds = total(&workflow.steps);
    if let Some(limit) = workflow.settings.timeout_seconds
        && seconds > u64::from(limit)
    {
        let message = format!(
            "the time limits of the steps are {seconds} s together, more than {limit} s for the whole workflow"
        );
        reading.reader.warn(place, message);
    }
}

/// The values that a step names by itself, each once.
fn variables(step: &Step) -> BTreeSet<&Variable> {
    let mut all: BTreeSet<&Variable> = BTreeSet::new();
    all.extend(step.condition.iter().flat_map(Condition::variables));
    match &step.kind {
        Kind::Agent(Agent { prompt, .. }) => all.extend(prompt.variables()),
        Kind::Command(Command {
            command, arguments, ..
        }) => {
            all.extend(command.variables());
            let arguments = arguments.iter().flatten();
            all.extend(arguments.flat_map(Template::variables));
        }
        Kind::Loop(Loop { until, .. }) => all.extend(until.variables()),
        Kind::Conditional { condition, .. } => all.extend(condition.variables()),
        Kind::Parallel(_) | Kind::Capsule { .. } => (),
    }
    all
}

/// Why the value can never exist; none if it may.
fn missing(variable: &Variable, workflow: &Workflow, all: &[&Step]) -> Option<String> {
    let (step, output) = match variable {
        Variable::Input(name) => {
            let declared = workflow.inputs.iter().map(|input| input.name.as_str());
            let known: Vec<&str> = declared.chain(INPUTS_ALWAYS).collect();
            return unknown("no such input", name, &known);
        }
        Variable::Outputs(step) => (step, None),
        Variable::Output { step, name } => (step, Some(name)),
    };
    let Some(found) = all.iter().find(|found| found.id.as_str() == step) else {
        let ids: Vec<&str> = all.iter().map(|found| found.id.as_str()).collect();
        return unknown("no such step", step, &ids);
    };
    let names = outputs(found)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    unknown("the step has no such output", output?, &names)
}

/// `what`, with the name that was probably meant; none if `name` is known.
fn unknown(what: &str, name: &str, known: &[&str]) -> Option<String> {
    if known.contains(&name) {
        return None;
    }
    let meant = nearest(name, known.iter().copied());
    let hint = meant.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
    Some(format!("{what}{hint}"))
}

/// The outputs that a step can have; none if only its capsule knows them.
fn outputs(step: &Step) -> Option<Vec<String>> {
    let fixed: &[&str] = match &step.kind {
        Kind::Agent(_) => &["raw_output", "input_prompt", "error"],
        Kind::Command(_) => &["stdout", "stderr", "exit_code", "success", "error"],
        Kind::Loop(_) => &["iterations", "condition_met", "error"],
        Kind::Parallel(_) | Kind::Conditional { .. } => &["error"],
        Kind::Capsule { .. } => return None,
    };
    let mut names: Vec<String> = fixed.iter().map(|&name| name.to_owned()).collect();
    if let Kind::Agent(Agent { outputs, .. }) = &step.kind {
        for output in outputs {
            names.push(output.name.clone());
            // Rover's name for the content of a file.
            names.push(format!("{}_content", output.name));
        }
    }
    Some(names)
}

/// The sum of the time limits of steps that run one after the other.
fn total(steps: &[Step]) -> u64 {
    steps.iter().map(seconds).fold(0, u64::saturating_add)
}

/// The sum of the time limits that the step, or the steps inside it, set themselves, with all retries and iterations.
fn seconds(step: &Step) -> u64 {
    if let Some(own) = step.limits.timeout_seconds {
        let attempts = u64::from(step.limits.retries.unwrap_or_default()) + 1;
        return u64::from(own) * attempts;
    }
    match &step.kind {
        Kind::Agent(_) | Kind::Command(_) | Kind::Capsule { .. } => 0,
        Kind::Loop(Loop {
            steps,
            iterations_max,
            ..
        }) => total(steps).saturating_mul((*iterations_max).into()),
        Kind::Parallel(steps) => steps.iter().map(seconds).max().unwrap_or_default(),
        Kind::Conditional {
            then, otherwise, ..
        } => total(then).max(total(otherwise)),
    }
}
