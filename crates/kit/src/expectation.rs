//! The expected result of a test case, and the differences of an actual result.

use std::collections::BTreeMap;

use aod_domain::contract::{Contract, FileKind};
use aod_domain::file_name::FileName;
use aod_domain::json::{self, Unreadable};
use serde::Deserialize;
use serde_json::{Value, json};

use super::place::below;

/// Characters of a value that a difference shows.
const SHOWN_LENGTH_MAX: usize = 200;

/// `expect.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The whole output.
    output: Option<Value>,
    /// Part of the output; its objects may have more members.
    output_subset: Option<Value>,
    /// A JSON Schema that the output must match.
    output_schema: Option<Value>,
    /// Expected files, by name; the run may produce more.
    #[serde(default)]
    pub files: BTreeMap<String, ExpectedFile>,
    /// The expected failure of the run.
    error: Option<ExpectedError>,
}

/// An expected file, without its name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFile {
    sha256: Option<String>,
    /// A text that the file contains.
    pub contains: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "expected an object with `code` and an optional `message`"
)]
struct ExpectedError {
    code: String,
    /// A text that the message contains.
    message: Option<String>,
}

/// The actual result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// None after a failure.
    pub output: Option<Value>,
    /// Code, message and lines of detail; none after a success.
    pub error: Option<(String, String, Vec<String>)>,
    /// By name.
    pub files: BTreeMap<String, MadeFile>,
}

/// A file that a run produced.
#[derive(Clone, Debug, Default)]
pub struct MadeFile {
    pub sha256: String,
    /// Its bytes, if the expectation checks them.
    pub bytes: Option<Vec<u8>>,
}

impl Expectation {
    /// Reads `expect.json`.
    ///
    /// # Errors
    /// All problems in it, or the first syntax error.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Vec<String>> {
        let read: Self = json::read(bytes).map_err(|error| match error {
            Unreadable::Malformed(error) => vec![error.to_string()],
            Unreadable::Numbers(problems) => problems.iter().map(ToString::to_string).collect(),
        })?;
        let has_output =
            read.output.is_some() || read.output_subset.is_some() || read.output_schema.is_some();
        let mut problems = Vec::new();
        if read.error.is_some() && has_output {
            problems.push("`error` cannot be combined with an output; expected one of them".into());
        }
        if read.error.is_none() && !has_output && read.files.is_empty() {
            problems.push(
                "the expectation is empty; expected output, output_subset, output_schema, files or error".to_owned(),
            );
        }
        if let Some(schema) = &read.output_schema {
            let found = contract(schema).err().unwrap_or_default();
            problems.extend(found);
        }
        let names = read.files.keys().map(|name| FileName::parse(name));
        problems.extend(names.filter_map(|name| Some(name.err()?.to_string())));
        if problems.is_empty() {
            Ok(read)
        } else {
            Err(problems)
        }
    }

    /// The differences between the expectation and `outcome`, one per line.
    pub fn differences(&self, outcome: &Outcome) -> Vec<String> {
        let mut differences = match (&self.error, &outcome.error) {
            (Some(expected), found) => expected.differences(found.as_ref(), outcome),
            (None, Some((code, message, details))) => {
                let headline = format!("expected success, got the error {code}: {message}");
                std::iter::once(headline)
                    .chain(details.iter().map(|line| format!("  {line}")))
                    .collect()
            }
            (None, None) => self.output_differences(outcome),
        };
        for (name, expected) in &self.files {
            match outcome.files.get(name) {
                None => differences.push(format!(
                    "file {name}: expected, but the run produced {}",
                    listed(outcome.files.keys())
                )),
                Some(made) => differences.extend(expected.differences(name, made)),
            }
        }
        differences
    }

    fn output_differences(&self, outcome: &Outcome) -> Vec<String> {
        let found = outcome.output.as_ref().unwrap_or(&Value::Null);
        let mut differences = Vec::new();
        if let Some(expected) = &self.output {
            differences.extend(compare(Some(expected), Some(found), Extent::Whole, ""));
        }
        if let Some(expected) = &self.output_subset {
            differences.extend(compare(Some(expected), Some(found), Extent::Part, ""));
        }
        if let Some(schema) = &self.output_schema {
            let exists = |name: &str| {
                let file = outcome.files.contains_key(name);
                file.then_some(FileKind::File)
            };
            let checked = contract(schema).map(|contract| {
                let checked = contract.check_output(found.clone(), &exists);
                checked.err().unwrap_or_default()
            });
            let problems = checked.unwrap_or_default();
            differences.extend(
                problems
                    .iter()
                    .map(|problem| format!("{}: {}", shown(&problem.pointer), problem.message)),
            );
        }
        differences
    }
}

impl ExpectedError {
    fn differences(
        &self,
        found: Option<&(String, String, Vec<String>)>,
        outcome: &Outcome,
    ) -> Vec<String> {
        let Some((code, message, details)) = found else {
            let output = outcome.output.as_ref().unwrap_or(&Value::Null);
            return vec![format!(
                "expected the error {}, got success: {}",
                self.code,
                quoted(Some(output))
            )];
        };
        let mut differences = Vec::new();
        if *code != self.code {
            differences.push(format!(
                "expected the error {}, got {code}: {message}",
                self.code
            ));
            differences.extend(details.iter().map(|line| format!("  {line}")));
        }
        if let Some(part) = &self.message
            && !message.contains(part)
        {
            differences.push(format!(
                "error message: expected text containing {part:?}, got {message:?}"
            ));
        }
        differences
    }
}

impl ExpectedFile {
    fn differences(&self, name: &str, made: &MadeFile) -> Vec<String> {
        let mut differences = Vec::new();
        if let Some(expected) = &self.sha256
            && !expected.eq_ignore_ascii_case(&made.sha256)
        {
            let found = &made.sha256;
            differences.push(format!(
                "file {name}: expected SHA-256 {expected}, got {found}"
            ));
        }
        if let Some(part) = &self.contains {
            let text = String::from_utf8_lossy(made.bytes.as_deref().unwrap_or_default());
            if !text.contains(part.as_str()) {
                let beginning: String = text.chars().take(SHOWN_LENGTH_MAX).collect();
                differences.push(format!(
                    "file {name}: expected text containing {part:?}, got {beginning:?}"
                ));
            }
        }
        differences
    }
}

/// A contract with `schema` for its output and any input.
fn contract(schema: &Value) -> Result<Contract, Vec<String>> {
    let file = json!({"input": {"type": "object"}, "output": schema});
    Contract::parse(file.to_string().as_bytes()).map_err(|problems| {
        let place = |pointer: &str| {
            let rest = pointer.strip_prefix("/output").unwrap_or(pointer);
            format!("/output_schema{rest}")
        };
        let line = |problem: &aod_domain::contract::Problem| {
            format!("{}: {}", place(&problem.pointer), problem.message)
        };
        problems.iter().map(line).collect()
    })
}

/// Which members of an object are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Only the expected members.
    Part,
}

/// The differences between two values, one per line; `pointer` is their place in the output.
fn compare(
    expected: Option<&Value>,
    found: Option<&Value>,
    extent: Extent,
    pointer: &str,
) -> Vec<String> {
    match (expected, found) {
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let is_more = |key: &&String| extent == Extent::Whole && !expected.contains_key(*key);
            let keys = expected.keys().chain(found.keys().filter(is_more));
            keys.flat_map(|key| {
                let pointer = below(pointer, key);
                compare(expected.get(key), found.get(key), extent, &pointer)
            })
            .collect()
        }
        (Some(Value::Array(expected)), Some(Value::Array(found)))
            if expected.len() == found.len() =>
        {
            let each = (0..expected.len()).flat_map(|index| {
                let pointer = format!("{pointer}/{index}");
                compare(expected.get(index), found.get(index), extent, &pointer)
            });
            each.collect()
        }
        (Some(expected), Some(found)) if is_same(expected, found) => Vec::new(),
        (expected, found) => vec![format!(
            "{}: expected {}, got {}",
            shown(pointer),
            quoted(expected),
            quoted(found)
        )],
    }
}

/// Compares numbers by value, as JSON Schema does: 1 equals 1.0.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (one, other) => one == other,
    }
}

fn shown(pointer: &str) -> &str {
    if pointer.is_empty() {
        "output"
    } else {
        pointer
    }
}

fn quoted(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() <= SHOWN_LENGTH_MAX {
        return text;
    }
    let beginning: String = text.chars().take(SHOWN_LENGTH_MAX).collect();
    format!("{beginning}…")
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    match names[..] {
        [] => "no files".to_owned(),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expectation: &Value, outcome: &Outcome, expected: &[&str]) {
        let read = Expectation::parse(expectation.to_string().as_bytes());
        let differences = read.expect("an expectation").differences(outcome);
        assert_eq!(differences, expected, "{expectation}");
    }

    fn success(output: Value) -> Outcome {
        Outcome {
            output: Some(output),
            ..Outcome::default()
        }
    }

    #[test]
    fn output_is_compared_member_by_member() {
        let outcome = success(json!({"a/b": [1, {"c": 2}], "more": null, "n": 1}));
        check(
            &json!({"output": {"a/b": [1, {"c": 3}], "n": 1.0, "gone": "x"}}),
            &outcome,
            &[
                "/a~1b/1/c: expected 3, got 2",
                "/gone: expected \"x\", got nothing",
                "/more: expected nothing, got null",
            ],
        );
        check(&json!({"output_subset": {"a/b": [1, {}]}}), &outcome, &[]);
        check(
            &json!({"output_subset": {"a/b": [1]}}),
            &outcome,
            &["/a~1b: expected [1], got [1,{\"c\":2}]"],
        );
    }

    #[test]
    fn output_is_checked_against_output_schema() {
        let schema = json!({"properties": {"n": {"type": "integer", "minimum": 3}}});
        let outcome = success(json!({"n": 2}));
        let read = Expectation::parse(json!({"output_schema": schema}).to_string().as_bytes());
        let differences = read.unwrap().differences(&outcome);
        assert!(
            differences.len() == 1 && differences[0].starts_with("/n: "),
            "{differences:?}"
        );
    }

    #[test]
    fn expected_error_is_compared_by_code_and_message() {
        let failed = Outcome {
            error: Some((
                "no_rows".into(),
                "the table is empty".into(),
                vec!["line".into()],
            )),
            ..Outcome::default()
        };
        check(
            &json!({"error": {"code": "no_rows", "message": "is empty"}}),
            &failed,
            &[],
        );
        check(
            &json!({"error": {"code": "other", "message": "full"}}),
            &failed,
            &[
                "expected the error other, got no_rows: the table is empty",
                "  line",
                "error message: expected text containing \"full\", got \"the table is empty\"",
            ],
        );
        check(
            &json!({"output": {}}),
            &failed,
            &[
                "expected success, got the error no_rows: the table is empty",
                "  line",
            ],
        );
        check(
            &json!({"error": {"code": "no_rows"}}),
            &success(json!({"n": 1})),
            &["expected the error no_rows, got success: {\"n\":1}"],
        );
    }

    #[test]
    fn files_are_compared_by_name_digest_and_text() {
        let made = MadeFile {
            sha256: "ab".into(),
            bytes: Some(b"some text".to_vec()),
        };
        let outcome = Outcome {
            files: BTreeMap::from([("a.txt".to_owned(), made)]),
            ..success(json!({}))
        };
        check(
            &json!({"files": {"a.txt": {"sha256": "AB", "contains": "me te"}}}),
            &outcome,
            &[],
        );
        check(
            &json!({"files": {"a.txt": {"sha256": "cd", "contains": "none"}, "b": {}}}),
            &outcome,
            &[
                "file a.txt: expected SHA-256 cd, got ab",
                "file a.txt: expected text containing \"none\", got \"some text\"",
                "file b: expected, but the run produced a.txt",
            ],
        );
    }

    #[test]
    fn invalid_expectation_is_rejected() {
        for (text, expected) in [
            ("{}", "the expectation is empty; expected output"),
            (
                r#"{"output": 1, "error": {"code": "x"}}"#,
                "`error` cannot be combined",
            ),
            (r#"{"outputs": 1}"#, "unknown field `outputs`"),
            (r#"{"output_schema": {"type": "int"}}"#, "/output_schema"),
            (r#"{"files": {"../x": {}}}"#, "../x"),
        ] {
            let problems = Expectation::parse(text.as_bytes()).unwrap_err();
            assert!(problems[0].contains(expected), "{text}: {problems:?}");
        }
    }
}
