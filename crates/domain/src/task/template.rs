//! Texts with `{{inputs.NAME}}`, `{{steps.ID.outputs.NAME}}` and `{{steps.ID.outputs}}`.
//!
//! A value is inserted as it is and never expanded again. All other text in double braces stays as it is.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Variable;

/// A parsed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    places: Vec<Placeholder>,
}

/// A variable in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placeholder {
    /// The bytes from the opening braces to the closing ones.
    start: usize,
    end: usize,
    variable: Variable,
}

/// A text with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    pub text: String,
    /// The variables without a value, in the order of the text, each once; they stay in the text as they are written.
    pub unknown: Vec<Variable>,
}

impl Template {
    pub fn parse(text: &str) -> Self {
        let mut places = Vec::new();
        let mut position = 0;
        while let Some(closed) = text[position..].find("}}") {
            let (before, end) = (&text[position..position + closed], position + closed + 2);
            if let Some(opened) = before.rfind("{{")
                && let Some(variable) = Variable::parse(before[opened + 2..].trim())
            {
                places.push(Placeholder {
                    start: position + opened,
                    end,
                    variable,
                });
            }
            position = end;
        }
        Self {
            text: text.to_owned(),
            places,
        }
    }

    /// The variables in the order of the text.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.places.iter().map(|placeholder| &placeholder.variable)
    }

    /// Fills in the values that `value_of` knows; none if the text would have more than `bytes_max`.
    pub fn fill<'a>(
        &self,
        bytes_max: usize,
        value_of: impl Fn(&Variable) -> Option<Cow<'a, str>>,
    ) -> Option<Filled> {
        let mut filled = Filled {
            text: String::new(),
            unknown: Vec::new(),
        };
        let mut named = HashSet::new();
        let mut position = 0;
        for Placeholder {
            start,
            end,
            variable,
        } in &self.places
        {
            filled.text.push_str(&self.text[position..*start]);
            match value_of(variable) {
                Some(value) => filled.text.push_str(&value),
                None => {
                    filled.text.push_str(&self.text[*start..*end]);
                    if named.insert(variable) {
                        filled.unknown.push(variable.clone());
                    }
                }
            }
            if filled.text.len() > bytes_max {
                return None;
            }
            position = *end;
        }
        filled.text.push_str(&self.text[position..]);
        (filled.text.len() <= bytes_max).then_some(filled)
    }
}
