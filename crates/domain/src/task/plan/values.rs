//! The values that steps see: a variable stands for a value of the last execution of its step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Position;
use crate::task::{Condition, StepId, Variable};

/// A value, with the execution that made it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Input(String),
    /// All outputs of an execution as one JSON object.
    Outputs(Position),
    Output {
        position: Position,
        name: String,
    },
}

/// The values of the steps that a walk has passed.
pub(super) struct Values<'a, 'b> {
    value_of: &'b dyn Fn(&Value) -> Option<Cow<'a, str>>,
    last: BTreeMap<StepId, Position>,
}

impl<'a, 'b> Values<'a, 'b> {
    pub(super) const fn new(value_of: &'b dyn Fn(&Value) -> Option<Cow<'a, str>>) -> Self {
        Self {
            value_of,
            last: BTreeMap::new(),
        }
    }

    /// Adds an execution that has ended: from now on, the variables of its step stand for its values.
    pub(super) fn add(&mut self, position: Position) {
        self.last.insert(position.step.clone(), position);
    }

    pub(super) const fn last(&self) -> &BTreeMap<StepId, Position> {
        &self.last
    }

    pub(super) fn is_true(&self, condition: &Condition) -> bool {
        condition.is_true(&|variable| self.get(variable))
    }

    fn get(&self, variable: &Variable) -> Option<Cow<'a, str>> {
        let last = |step: &str| {
            let found = self.last.iter().find(|(id, _)| id.as_str() == step);
            found.map(|(_, position)| position.clone())
        };
        let value = match variable {
            Variable::Input(name) => Value::Input(name.clone()),
            Variable::Outputs(step) => Value::Outputs(last(step)?),
            Variable::Output { step, name } => Value::Output {
                position: last(step)?,
                name: name.clone(),
            },
        };
        (self.value_of)(&value)
    }
}
