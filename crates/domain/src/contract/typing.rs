//! The types of arguments that a person gives as text.

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Map, Value};

use super::problem::{PROBLEMS_MAX, Problem, pointer_join};
use super::schema::Schema;
use super::walk::{Defaults, walk};
use crate::json::{self, Unreadable};

/// A value as a person gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    pub text: String,
    /// Whether the text is the value in any case, as the name of a file is.
    pub is_text: bool,
}

impl Given {
    /// The JSON value that the text spells; otherwise the text.
    ///
    /// # Errors
    /// Numbers in the text that would change.
    pub fn json(&self) -> Result<Value, Vec<Problem>> {
        if self.is_text {
            return Ok(self.text());
        }
        match json::read(self.text.as_bytes()) {
            Ok(value) => Ok(value),
            Err(Unreadable::Numbers(problems)) => Err(problems),
            Err(Unreadable::Malformed(_)) => Ok(self.text()),
        }
    }

    /// As [`Given::json`], for finding the type of a value: its numbers may be changed.
    fn sketch(&self) -> Value {
        let json = (!self.is_text).then(|| serde_json::from_str(&self.text).ok());
        json.flatten().unwrap_or_else(|| self.text())
    }

    fn text(&self) -> Value {
        Value::String(self.text.clone())
    }
}

/// All of `given` as JSON: one value, or a list of several. Pointers of problems begin with the argument `key`.
pub fn untyped(key: &str, given: &[Given]) -> Result<Value, Vec<Problem>> {
    match given {
        [one] => one
            .json()
            .map_err(|problems| below(&pointer_join("", key), problems)),
        several => list(key, several),
    }
}

/// `given` as a list of JSON values.
fn list(key: &str, given: &[Given]) -> Result<Value, Vec<Problem>> {
    let mut items = Vec::new();
    let mut problems = Vec::new();
    for (index, one) in given.iter().enumerate() {
        let pointer = pointer_join(&pointer_join("", key), index);
        match one.json() {
            Ok(item) => items.push(item),
            Err(found) => problems.extend(below(&pointer, found)),
        }
    }
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() {
        Ok(Value::Array(items))
    } else {
        Err(problems)
    }
}

fn below(pointer: &str, problems: Vec<Problem>) -> Vec<Problem> {
    let moved = problems.into_iter().map(|problem| Problem {
        pointer: format!("{pointer}{}", problem.pointer),
        ..problem
    });
    moved.collect()
}

/// The value of the argument `key`, next to `arguments`: text if the schema permits it, otherwise JSON, otherwise a
/// list of either. Several values are a list.
pub(super) fn typed(
    schema: &Schema,
    arguments: &Map<String, Value>,
    key: &str,
    given: &[Given],
) -> Result<Value, Vec<Problem>> {
    let texts: Vec<Value> = given.iter().map(Given::text).collect();
    let json: Vec<Value> = given.iter().map(Given::sketch).collect();
    let mut candidates = Vec::new();
    if let ([text], [json]) = (&texts[..], &json[..]) {
        candidates.extend([text.clone(), json.clone()]);
    }
    candidates.extend([Value::Array(texts), Value::Array(json)]);
    let mut payload = Value::Object(arguments.clone());
    let mut permits = |candidate: &Value, is_mistake: &dyn Fn(&ValidationError<'_>) -> bool| {
        payload[key] = candidate.clone();
        // The validation of an unbounded schema may not end.
        if walk(schema, &mut payload, Defaults::Leave).is_err() {
            return false;
        }
        let mut errors = schema.validator.iter_errors(&payload);
        !errors.any(|error| concerns(&error, key) && is_mistake(&error))
    };
    let is_type = |error: &ValidationError<'_>| {
        let is_inside = error.instance_path().as_str().matches('/').count() > 1;
        matches!(error.kind(), ValidationErrorKind::Type { .. }) && !is_inside
    };
    let fits = candidates.iter().position(|one| permits(one, &|_| true));
    // A value of the right type is the one whose mistake the person understands.
    let found = fits.or_else(|| candidates.iter().position(|one| permits(one, &is_type)));
    let found = found.unwrap_or(1);
    // The candidates are a text, a JSON value, a list of texts and a list of JSON values, or only the two lists.
    match candidates.len() - found {
        4 | 2 => Ok(candidates.swap_remove(found)),
        3 => untyped(key, given),
        _ => list(key, given),
    }
}

/// Whether the value of `key` causes `error`.
fn concerns(error: &ValidationError<'_>, key: &str) -> bool {
    let pointer = error.instance_path().as_str();
    match error.kind() {
        // The alternatives of the whole payload: the value is wrong if it fits none of them.
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }
            if pointer.is_empty() =>
        {
            let is_wrong =
                |errors: &Vec<ValidationError<'_>>| errors.iter().any(|error| concerns(error, key));
            context.iter().all(is_wrong)
        }
        _ => {
            let first = pointer.split('/').nth(1);
            first.is_some_and(|first| first.replace("~1", "/").replace("~0", "~") == key)
        }
    }
}
