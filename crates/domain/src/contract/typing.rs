//! The types of arguments that a person gives as text.

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Map, Value};

use super::schema::Schema;
use super::walk::{Defaults, walk};

/// A value as a person gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    pub text: String,
    /// Whether the text is the value in any case, as the name of a file is.
    pub is_text: bool,
}

impl Given {
    /// The JSON value that the text spells; otherwise the text.
    pub fn json(&self) -> Value {
        let json = (!self.is_text).then(|| serde_json::from_str(&self.text).ok());
        json.flatten().unwrap_or_else(|| self.text())
    }

    fn text(&self) -> Value {
        Value::String(self.text.clone())
    }
}

/// The value of the argument `key`, next to `arguments`: text if the schema permits it, otherwise JSON, otherwise a
/// list of either. Several values are a list.
pub(super) fn typed(
    schema: &Schema,
    arguments: &Map<String, Value>,
    key: &str,
    given: &[Given],
) -> Value {
    let texts: Vec<Value> = given.iter().map(Given::text).collect();
    let json: Vec<Value> = given.iter().map(Given::json).collect();
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
    candidates.swap_remove(found.unwrap_or(1))
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
