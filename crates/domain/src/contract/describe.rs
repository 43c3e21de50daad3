//! Describes the validator's errors for the author of a payload or of a schema.

use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, meta};
use serde_json::{Value, json};

use super::problem::{PROBLEMS_MAX, Problem, ProblemCode};
use super::schema::Schema;
use crate::text::{nearest, quoted, quoted_value};

/// Maximum names of one list in a message.
const NAMES_MAX: usize = 20;

/// The types of JSON Schema, for hints about misspelt types.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Why `payload` does not match, place by place.
pub(crate) fn misfits(schema: &Schema, payload: &Value) -> Vec<Problem> {
    let errors = schema.validator.iter_errors(payload).take(PROBLEMS_MAX);
    errors
        .map(|error| {
            let pointer = error.instance_path().as_str();
            Problem::new(
                pointer,
                ProblemCode::DoesNotFit,
                message(&error, &schema.document),
            )
        })
        .collect()
}

/// Where `document` breaks the rules of its draft; pointers begin with `root`. The newer drafts report a mistake once
/// for each vocabulary; this function reports it once.
pub(crate) fn schema_errors(
    document: &Value,
    draft: Draft,
    root: &str,
    problems: &mut Vec<Problem>,
) {
    let draft_uri = json!({ "$schema": draft_uri(draft) });
    if let Ok(validator) = meta::validator_for(&draft_uri) {
        let mut described = Vec::new();
        for error in validator.iter_errors(document) {
            let problem = schema_error(&error, root);
            if described.len() < PROBLEMS_MAX && !described.contains(&problem) {
                described.push(problem);
            }
        }
        problems.extend(described);
    }
}

pub(crate) fn schema_error(error: &ValidationError<'_>, root: &str) -> Problem {
    let pointer = format!("{root}{}", error.instance_path().as_str());
    let message = match error.kind() {
        ValidationErrorKind::Referencing(source) => {
            return Problem::new(root, ProblemCode::SchemaReference, source.to_string());
        }
        ValidationErrorKind::Format { format } if format == "regex" => format!(
            "unsupported pattern {}; expected a regular expression without look-around and \
             back-references, and not too large",
            quoted_value(error.instance())
        ),
        _ if pointer.ends_with("/type") => type_message(error.instance()),
        _ => message(error, &Value::Null),
    };
    Problem::new(pointer, ProblemCode::SchemaInvalid, message)
}

fn type_message(found: &Value) -> String {
    let meant = match found.as_str() {
        Some("int") => Some("integer"),
        Some("float") => Some("number"),
        Some("bool") => Some("boolean"),
        Some("str" | "text") => Some("string"),
        Some("dict") => Some("object"),
        Some("list" | "tuple") => Some("array"),
        Some("none" | "None") => Some("null"),
        Some(other) => nearest(other, TYPES),
        None => None,
    };
    let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
    format!(
        "unknown type {}; expected one of {}{hint}",
        quoted_value(found),
        TYPES.join(", ")
    )
}

fn message(error: &ValidationError<'_>, document: &Value) -> String {
    let value = quoted_value(error.instance());
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected_properties(unexpected, error.schema_path().as_str(), document)
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            alternatives(error, &value, context)
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            format!("{value} matches more than one alternative; expected exactly one")
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("{value} found; expected {}", quoted_value(expected_value))
        }
        ValidationErrorKind::FalseSchema => {
            format!("{value} found; the schema allows no value here")
        }
        ValidationErrorKind::Required { property } => {
            format!(
                "the required property {} is missing",
                quoted_value(property)
            )
        }
        _ => error.masked_with(value).to_string(),
    }
}

/// `document` is the schema that contains `keyword_pointer`; its known properties are next to that keyword.
fn unexpected_properties(unexpected: &[String], keyword_pointer: &str, document: &Value) -> String {
    let parent = keyword_pointer
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent);
    let properties = document
        .pointer(parent)
        .and_then(|schema| schema.get("properties"));
    let known: Vec<&str> = properties
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let found = names(unexpected.iter().map(String::as_str));
    let expected = if known.is_empty() {
        "expected only properties that the schema names".to_owned()
    } else {
        format!("expected only {}", names(known.iter().copied()))
    };
    let meant = unexpected
        .iter()
        .find_map(|name| nearest(name, known.iter().copied()));
    let hint = meant.map_or_else(String::new, |name| {
        format!("; did you mean {}?", quoted(name))
    });
    format!("unknown property {found}; {expected}{hint}")
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<_> = all.map(quoted).collect();
    match all.get(..NAMES_MAX) {
        Some(first) if all.len() > NAMES_MAX => format!("{}, …", first.join(", ")),
        _ => all.join(", "),
    }
}

fn alternatives(
    error: &ValidationError<'_>,
    value: &str,
    context: &[Vec<ValidationError<'static>>],
) -> String {
    let here = error.instance_path().as_str();
    let reasons = context
        .iter()
        .filter_map(|errors| errors.first())
        .map(|reason| {
            let text = reason
                .masked_with(quoted_value(reason.instance()))
                .to_string();
            match reason.instance_path().as_str().strip_prefix(here) {
                None | Some("") => text,
                Some(place) => format!("{place}: {text}"),
            }
        });
    let reasons: Vec<_> = reasons.collect();
    format!(
        "{value} matches none of {} alternatives: {}",
        context.len(),
        reasons.join("; or ")
    )
}

fn draft_uri(draft: Draft) -> &'static str {
    match draft {
        Draft::Draft4 => "http://json-schema.org/draft-04/schema#",
        Draft::Draft6 => "http://json-schema.org/draft-06/schema#",
        Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
        Draft::Draft201909 => "https://json-schema.org/draft/2019-09/schema",
        _ => "https://json-schema.org/draft/2020-12/schema",
    }
}
