//! Which step of a task is next: a function of the workflow and of the steps that have ended.
//!
//! It starts from the beginning each time and takes the ended steps in the order of the workflow, so that each condition
//! sees exactly the values that it saw when the task decided the first time. A node that takes a task over continues
//! with the same function.

mod values;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Condition, Kind, Loop, Step, StepId, Workflow};

pub use self::values::Value;
use self::values::Values;

/// An execution of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub step: StepId,
    /// The numbers of the iterations of all loops around the step, from the outermost, each from 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<u32>,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.step)?;
        for iteration in &self.iterations {
            write!(formatter, ".{iteration}")?;
        }
        Ok(())
    }
}

/// How an execution of a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Succeeded,
    Failed,
    /// Its `if` was false.
    Skipped,
}

/// How a whole task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// A step failed, and no further step ran.
    Failed,
    /// Steps failed, and the others ran, as `continueOnError` says.
    Partial,
}

/// What a task does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Run(Run),
    /// Record the end of a step that needs no process.
    Record(Record),
    /// Record the end of the task.
    End(Outcome),
}

/// Steps to run at the same time; they contain no other steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub positions: Vec<Position>,
    /// For each step, the execution whose values its variables stand for.
    pub last: BTreeMap<StepId, Position>,
}

/// The end of a step that needs no process: one that is skipped, or that consists of other steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub position: Position,
    pub ending: Ending,
    /// For a loop: its outputs.
    pub repeated: Option<Repeated>,
}

/// The outputs of a loop, `iterations` and `condition_met`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub iterations: u32,
    pub is_condition_met: bool,
}

/// The steps that have ended.
pub type Ended = BTreeMap<Position, Ending>;

/// What is next after the steps in `ended`. `value_of` finds inputs, and outputs of ended steps.
pub fn next<'a>(
    workflow: &Workflow,
    ended: &Ended,
    value_of: &dyn Fn(&Value) -> Option<Cow<'a, str>>,
) -> Next {
    let mut walk = Walk {
        ended,
        values: Values::new(value_of),
        continues_on_error: workflow.settings.continues_on_error,
        loop_limit: workflow.settings.loop_limit,
        iterations: Vec::new(),
    };
    match walk.sequence(&workflow.steps, walk.continues_on_error) {
        Err(next) => next,
        Ok(false) => Next::End(Outcome::Succeeded),
        Ok(true) if walk.continues_on_error => Next::End(Outcome::Partial),
        Ok(true) => Next::End(Outcome::Failed),
    }
}

/// A walk through the steps that have ended, to the first that has not.
struct Walk<'a, 'b> {
    ended: &'b Ended,
    values: Values<'a, 'b>,
    continues_on_error: bool,
    loop_limit: Option<u32>,
    /// Of the loops around the present step.
    iterations: Vec<u32>,
}

/// A value, or what is next before it is known.
type Walked<T> = Result<T, Next>;

impl Walk<'_, '_> {
    /// Whether a step has failed. If `continues`, the steps after a failed one run, too.
    fn sequence(&mut self, steps: &[Step], continues: bool) -> Walked<bool> {
        let mut has_failed = false;
        for step in steps {
            has_failed |= self.step(step)? == Ending::Failed;
            if has_failed && !continues {
                break;
            }
        }
        Ok(has_failed)
    }

    fn step(&mut self, step: &Step) -> Walked<Ending> {
        let position = self.position(step);
        let is_wanted = |condition: &Condition| self.values.is_true(condition);
        if !step.condition.as_ref().is_none_or(is_wanted) {
            return self.recorded(position, Ending::Skipped, None);
        }
        match &step.kind {
            Kind::Agent(_) | Kind::Command(_) | Kind::Capsule { .. } => {
                let Some(ending) = self.ended.get(&position).copied() else {
                    return Err(self.run(vec![position]));
                };
                self.values.add(position);
                Ok(ending)
            }
            Kind::Loop(repeated) => self.repeat(position, repeated),
            Kind::Parallel(steps) => self.parallel(position, steps),
            Kind::Conditional {
                condition,
                then,
                otherwise,
            } => {
                let is_true = self.values.is_true(condition);
                let steps = if is_true { then } else { otherwise };
                let has_failed = self.sequence(steps, self.continues_on_error)?;
                self.recorded(position, ending(!has_failed), None)
            }
        }
    }

    fn run(&self, positions: Vec<Position>) -> Next {
        let last = self.values.last().clone();
        Next::Run(Run { positions, last })
    }

    fn position(&self, step: &Step) -> Position {
        Position {
            step: step.id.clone(),
            iterations: self.iterations.clone(),
        }
    }

    /// The end of a step that needs no process.
    fn recorded(
        &mut self,
        position: Position,
        ending: Ending,
        repeated: Option<Repeated>,
    ) -> Walked<Ending> {
        if !self.ended.contains_key(&position) {
            return Err(Next::Record(Record {
                position,
                ending,
                repeated,
            }));
        }
        self.values.add(position);
        Ok(ending)
    }

    /// In each iteration, all steps run, even after a failed one.
    fn repeat(&mut self, position: Position, repeated: &Loop) -> Walked<Ending> {
        let limit = self.loop_limit.unwrap_or(u32::MAX);
        let iterations_max = repeated.iterations_max.min(limit);
        let mut iterations = 0;
        let mut is_condition_met = false;
        while !is_condition_met && iterations < iterations_max {
            iterations += 1;
            self.iterations.push(iterations);
            let walked = self.sequence(&repeated.steps, true);
            self.iterations.pop();
            walked?;
            is_condition_met = self.values.is_true(&repeated.until);
        }
        let outputs = Repeated {
            iterations,
            is_condition_met,
        };
        self.recorded(position, ending(is_condition_met), Some(outputs))
    }

    /// All steps run, even if one of them fails; none sees the values of another.
    fn parallel(&mut self, position: Position, steps: &[Step]) -> Walked<Ending> {
        let (mut missing, mut has_failed) = (Vec::new(), false);
        let mut done = Vec::new();
        for step in steps {
            let inner = self.position(step);
            let is_wanted = |condition: &Condition| self.values.is_true(condition);
            if !step.condition.as_ref().is_none_or(is_wanted) {
                if !self.ended.contains_key(&inner) {
                    return Err(Next::Record(Record {
                        position: inner,
                        ending: Ending::Skipped,
                        repeated: None,
                    }));
                }
                done.push(inner);
                continue;
            }
            match self.ended.get(&inner) {
                Some(ending) => {
                    has_failed |= *ending == Ending::Failed;
                    done.push(inner);
                }
                None => missing.push(inner),
            }
        }
        if !missing.is_empty() {
            return Err(self.run(missing));
        }
        for inner in done {
            self.values.add(inner);
        }
        self.recorded(position, ending(!has_failed), None)
    }
}

const fn ending(has_succeeded: bool) -> Ending {
    if has_succeeded {
        Ending::Succeeded
    } else {
        Ending::Failed
    }
}
