//! The fields of a JSON object, read strictly: what is missing, of the wrong type or unknown is
//! told at once, with its pointer.

use std::collections::BTreeMap;

use aod_api::problem::ProblemItem;
use aod_domain::contract::{PROBLEMS_MAX, pointer_part};
use aod_domain::error_code::ErrorCode;
use serde_json::{Map, Value};

use crate::http::error::{ApiError, ApiResult};

/// How near a known key must be to be proposed for an unknown one; the measure of Jaro and Winkler.
const SIMILARITY_MIN: f64 = 0.7;

/// The fields that are still to be taken, and what was wrong so far.
#[derive(Debug)]
pub(crate) struct Fields {
    given: Map<String, Value>,
    known: Vec<&'static str>,
    errors: Vec<ProblemItem>,
}

impl Fields {
    /// `bytes` must be one JSON object.
    pub(crate) fn parse(bytes: &[u8]) -> ApiResult<Self> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::malformed(format!("the body is not JSON: {error}")))?;
        match value {
            Value::Object(given) => Ok(Self {
                given,
                known: Vec::new(),
                errors: Vec::new(),
            }),
            _ => Err(ApiError::malformed("the body is JSON, but no object")),
        }
    }

    pub(crate) fn error(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.errors.push(ProblemItem::new(pointer, message));
    }

    /// The value under `key`; `null` counts as nothing.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.given.remove(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => self.wrong_type(key, &other, "a text"),
        }
    }

    /// A text that must be there and not be empty; the empty text stands for one that is not.
    pub(crate) fn required_text(&mut self, key: &'static str) -> String {
        let had_errors = self.errors.len();
        let text = self.text(key).unwrap_or_default();
        if text.is_empty() && self.errors.len() == had_errors {
            self.error(format!("/{key}"), "missing; expected a text");
        }
        text
    }

    pub(crate) fn object(&mut self, key: &'static str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(map) => Some(map),
            other => self.wrong_type(key, &other, "an object"),
        }
    }

    pub(crate) fn list(&mut self, key: &'static str) -> Vec<Value> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => self.wrong_type(key, &other, "a list").unwrap_or_default(),
        }
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn number(&mut self, key: &'static str, min: u32, max: u32) -> Option<u32> {
        let value = self.take(key)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Some(number),
            None => self.wrong_type(key, &value, &format!("a whole number from {min} to {max}")),
        }
    }

    /// A list of at most `count_max` texts, each of which is read.
    pub(crate) fn words<T>(&mut self, key: &'static str, count_max: usize) -> Vec<T>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let given = self.list(key);
        if given.len() > count_max {
            self.error(format!("/{key}"), format!("expected at most {count_max}"));
        }
        let mut read = Vec::new();
        for (index, value) in given.iter().enumerate().take(count_max) {
            match value.as_str().map(str::parse) {
                Some(Ok(word)) => read.push(word),
                Some(Err(error)) => self.error(format!("/{key}/{index}"), format!("{error}")),
                None => self.error(format!("/{key}/{index}"), "expected a text"),
            }
        }
        read
    }

    /// Whether something is so; it is not unless that is said.
    pub(crate) fn flag(&mut self, key: &'static str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(other) => self
                .wrong_type(key, &other, "true or false")
                .unwrap_or_default(),
        }
    }

    /// An object of texts.
    pub(crate) fn texts(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (name, value) in self.object(key).unwrap_or_default() {
            match value {
                Value::String(text) => drop(texts.insert(name, text)),
                other => {
                    let pointer = format!("/{key}/{}", pointer_part(&name));
                    self.error(pointer, format!("{} given; expected a text", shown(&other)));
                }
            }
        }
        texts
    }

    fn wrong_type<T>(&mut self, key: &str, found: &Value, expected: &str) -> Option<T> {
        self.error(
            format!("/{key}"),
            format!("{} given; expected {expected}", shown(found)),
        );
        None
    }

    /// To be called once everything was taken; unknown fields are errors.
    pub(crate) fn finish(mut self) -> ApiResult<()> {
        // Comparing each with what is known takes longer than telling more than these would help.
        let unknown = std::mem::take(&mut self.given);
        for key in unknown.keys().take(PROBLEMS_MAX) {
            let message = match nearest(key, &self.known) {
                Some(near) => format!("no such field; did you mean {near:?}?"),
                None => format!("no such field; there are {}", self.known.join(", ")),
            };
            let pointer = format!("/{}", pointer_part(key));
            self.errors.push(ProblemItem::new(pointer, message));
        }
        self.finish_known()
    }

    /// As [`Fields::finish`], with unknown fields ignored.
    pub(crate) fn finish_known(self) -> ApiResult<()> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::RequestMalformed,
            "the fields of the body are not as expected",
        )
        .with_errors(self.errors))
    }
}

fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let similarity = |name: &&'static str| strsim::jaro_winkler(key, name);
    let best = known
        .iter()
        .copied()
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
    (similarity(&best) >= SIMILARITY_MIN).then_some(best)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 80 {
        format!("{}…", text.chars().take(80).collect::<String>())
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_told_with_its_place() {
        let body = br#"{"capsul": "b", "timeout_seconds": 0, "labels": {"a": 1}, "files": {}}"#;
        let mut fields = Fields::parse(body).unwrap();
        assert_eq!(fields.required_text("capsule"), "");
        assert_eq!(fields.number("timeout_seconds", 1, 9), None);
        assert!(fields.texts("labels").is_empty());
        assert!(fields.list("files").is_empty());
        let error = fields.finish().unwrap_err();
        let errors: Vec<_> = error
            .problem()
            .errors
            .iter()
            .map(|e| format!("{}: {}", e.pointer, e.message))
            .collect();
        assert_eq!(
            errors,
            [
                "/capsule: missing; expected a text",
                "/timeout_seconds: 0 given; expected a whole number from 1 to 9",
                "/labels/a: 1 given; expected a text",
                "/files: {} given; expected a list",
                "/capsul: no such field; did you mean \"capsule\"?",
            ]
        );
    }

    #[test]
    fn many_long_fields_make_a_short_answer() {
        let names = (0..1_000).map(|number| format!("\"{number}/~{}\": 1", "x".repeat(200)));
        let body = format!("{{{}}}", names.collect::<Vec<_>>().join(", "));
        let fields = Fields::parse(body.as_bytes()).unwrap();
        let problem = fields.finish().unwrap_err().problem().clone();
        assert_eq!(problem.errors.len(), PROBLEMS_MAX);
        assert!(serde_json::to_vec(&problem).unwrap().len() < 16 * 1024);
        assert!(problem.errors[0].pointer.starts_with("/0~1~0xx"));
    }

    #[test]
    fn null_is_nothing() {
        let mut fields = Fields::parse(br#"{"label": null}"#).unwrap();
        assert_eq!(fields.text("label"), None);
        assert!(fields.finish().is_ok());
    }
}
