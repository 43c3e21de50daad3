//! What a test case expects of a run, and how what came differs from it.

use std::collections::BTreeMap;

use aod_domain::contract::{Contract, FileKind};
use aod_domain::file_name::FileName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Characters of a value that a difference shows.
const SHOWN_LENGTH_MAX: usize = 200;

/// `expect.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    /// The whole answer.
    output: Option<Value>,
    /// What the answer has; other members of its objects are free.
    output_subset: Option<Value>,
    /// A JSON Schema that the answer fits.
    output_schema: Option<Value>,
    /// Files that were made, by their names; other ones are free.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, ExpectedFile>,
    /// That the run fails, and how.
    error: Option<ExpectedError>,
}

/// What is known of a file besides its name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFile {
    sha256: Option<String>,
    /// A text that is somewhere in it.
    pub(crate) contains: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "expected an object with code, and message where it matters"
)]
struct ExpectedError {
    code: String,
    /// A text that is somewhere in the message.
    message: Option<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) output: Option<Value>,
    /// Code, message, and what else is known, a line each; none after a success.
    pub(crate) error: Option<(String, String, Vec<String>)>,
    /// By name.
    pub(crate) files: BTreeMap<String, MadeFile>,
}

/// A file that a run made.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadeFile {
    pub(crate) sha256: String,
    /// Its bytes, where the expectation asks for them.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Expectation {
    /// Reads `expect.json`.
    ///
    /// # Errors
    /// All that is wrong with it, as far as it can be read.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Vec<String>> {
        let read: Self = serde_json::from_slice(bytes).map_err(|error| vec![error.to_string()])?;
        let has_output =
            read.output.is_some() || read.output_subset.is_some() || read.output_schema.is_some();
        let mut problems = Vec::new();
        if read.error.is_some() && has_output {
            problems.push("both an error and an output are expected; expected one of them".into());
        }
        if read.error.is_none() && !has_output && read.files.is_empty() {
            problems.push(
                "nothing is expected; expected output, output_subset, output_schema, files or error"
                    .to_owned(),
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

    /// How `outcome` differs from what is expected, a line each; none if it does not.
    pub(crate) fn differences(&self, outcome: &Outcome) -> Vec<String> {
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
                    "file {name}: expected it, got {}",
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
            compare(expected, found, Extent::Whole, "", &mut differences);
        }
        if let Some(expected) = &self.output_subset {
            compare(expected, found, Extent::Part, "", &mut differences);
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
                quoted(output)
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
                "message of the error: expected {part:?} in it, got {message:?}"
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
                    "file {name}: expected {part:?} in it, got {beginning:?}"
                ));
            }
        }
        differences
    }
}

/// A contract of which only the output counts.
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

/// How much of an object is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// What is expected; more may be there.
    Part,
}

fn compare(
    expected: &Value,
    found: &Value,
    extent: Extent,
    pointer: &str,
    differences: &mut Vec<String>,
) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            compare_objects(expected, found, extent, pointer, differences);
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                let pointer = format!("{pointer}/{index}");
                compare(expected, found, extent, &pointer, differences);
            }
        }
        (expected, found) if is_same(expected, found) => (),
        (expected, found) => differences.push(format!(
            "{}: expected {}, got {}",
            shown(pointer),
            quoted(expected),
            quoted(found)
        )),
    }
}

fn compare_objects(
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
    extent: Extent,
    pointer: &str,
    differences: &mut Vec<String>,
) {
    let below = |key: &str| format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
    for (key, expected) in expected {
        match found.get(key) {
            Some(found) => compare(expected, found, extent, &below(key), differences),
            None => differences.push(format!(
                "{}: expected {}, got nothing",
                below(key),
                quoted(expected)
            )),
        }
    }
    let more = found.iter().filter(|(key, _)| !expected.contains_key(*key));
    for (key, found) in more.filter(|_| extent == Extent::Whole) {
        differences.push(format!(
            "{}: expected nothing, got {}",
            below(key),
            quoted(found)
        ));
    }
}

/// Numbers are the same by their value, as they are for JSON Schema: 1 and 1.0.
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

fn quoted(value: &Value) -> String {
    let text = value.to_string();
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
    fn a_whole_answer_is_compared_member_by_member() {
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
    fn an_answer_may_be_held_against_a_schema() {
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
    fn failures_are_expected_by_their_code() {
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
                "message of the error: expected \"full\" in it, got \"the table is empty\"",
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
    fn files_are_known_by_name_digest_and_text() {
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
                "file a.txt: expected \"none\" in it, got \"some text\"",
                "file b: expected it, got a.txt",
            ],
        );
    }

    #[test]
    fn an_expectation_that_expects_nothing_is_refused() {
        for (text, expected) in [
            ("{}", "nothing is expected"),
            (
                r#"{"output": 1, "error": {"code": "x"}}"#,
                "both an error and an output",
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
