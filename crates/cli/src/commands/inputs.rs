//! The arguments of a run: `key=value`, `key=@path` and a JSON object, typed by the capsule's schema.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use aod_api::strict::JSON_BYTES_MAX;
use aod_domain::contract::{Contract, Given, PROBLEMS_MAX, Problem, untyped};
use aod_domain::file_name::{FileName, unique_name};
use aod_domain::json::{self, Unreadable};
use serde_json::{Map, Value};

use crate::client::Upload;
use crate::failure::Failure;

/// The arguments and files of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Inputs {
    pub(crate) arguments: Map<String, Value>,
    pub(crate) files: Vec<Upload>,
}

/// Reads `--json` and each `--input`; `contract` determines the types of the arguments.
pub(super) fn read(
    json: Option<&str>,
    inputs: &[String],
    contract: Option<&Contract>,
) -> Result<Inputs, Failure> {
    let mut read = Inputs {
        arguments: json.map(read_json).transpose()?.unwrap_or_default(),
        files: Vec::new(),
    };
    let mut given: Vec<(&str, Vec<Given>)> = Vec::new();
    let mut taken = BTreeSet::new();
    for input in inputs {
        let (key, text) = input
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| {
                Failure::usage(format!("--input {input:?} is not key=value"))
                    .with_hint("examples: `-i rows=10`, or `-i table=@data.csv` for a file")
            })?;
        let (text, is_text) = match text.strip_prefix('@') {
            None => (text.to_owned(), false),
            Some(rest) if rest.starts_with('@') => (rest.to_owned(), true),
            Some(path) => {
                let upload = upload(Path::new(path), &mut taken)?;
                let name = upload.name.to_string();
                read.files.push(upload);
                (name, true)
            }
        };
        let value = Given { text, is_text };
        match given.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => given.push((key, vec![value])),
        }
    }
    let mut problems = Vec::new();
    for (key, values) in given {
        let value = match contract {
            Some(contract) => contract.typed_input(&read.arguments, key, &values),
            // The value of an argument whose type is unknown is JSON if possible.
            None => untyped(key, &values),
        };
        match value {
            Ok(value) => drop(read.arguments.insert(key.to_owned(), value)),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        Ok(read)
    } else {
        Err(refused_numbers("--input", &problems))
    }
}

fn refused_numbers(option: &str, problems: &[Problem]) -> Failure {
    let details = problems.iter().take(PROBLEMS_MAX);
    Failure::usage(format!("{option} has numbers that 64 bits cannot hold"))
        .with_details(details.map(ToString::to_string).collect())
        .with_hint("pass such a number as a string: -i 'key=\"18446744073709551616\"'")
}

fn upload(path: &Path, taken: &mut BTreeSet<FileName>) -> Result<Upload, Failure> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .map_err(|error| Failure::usage(format!("{shown} cannot be read")).because(&error))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{shown} is not a regular file"))
            .with_hint("pass single files: -i key=@file"));
    }
    let name = path.file_name().unwrap_or_default();
    let name = FileName::from_bytes(name.as_encoded_bytes()).map_err(|error| {
        Failure::usage(format!("{shown} has an invalid file name")).because(&error)
    })?;
    let name = unique_name(&name, taken);
    taken.insert(name.clone());
    Ok(Upload {
        name,
        path: PathBuf::from(path),
    })
}

/// The JSON object of `--json`.
fn read_json(given: &str) -> Result<Map<String, Value>, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::usage(format!("--json {given} cannot be read")).because(error)
    };
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some("-") => read_bounded(std::io::stdin().lock()).map_err(|error| failed(&error))?,
        Some(path) => std::fs::File::open(path)
            .and_then(read_bounded)
            .map_err(|error| failed(&error))?,
    };
    json::read(text.as_bytes()).map_err(|error| match error {
        Unreadable::Malformed(error) => {
            Failure::usage("--json is not a JSON object").because(&error)
        }
        Unreadable::Numbers(problems) => refused_numbers("--json", &problems),
    })
}

fn read_bounded(reader: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    reader
        .take(JSON_BYTES_MAX as u64)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(property: &Value, inputs: &[&str], expected: &Value) {
        let schema = json!({
            "$defs": {
                "note": {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]},
                "text": {"type": "string"},
                "count": {"type": "integer"},
            },
            "type": "object",
            "properties": {"value": property},
            "required": ["value", "other"],
            "additionalProperties": false,
        });
        let schema = json!({"input": schema, "output": true}).to_string();
        let contract = Contract::parse(schema.as_bytes()).unwrap();
        let inputs: Vec<String> = inputs.iter().map(|text| format!("value={text}")).collect();
        let read = read(None, &inputs, Some(&contract)).unwrap();
        assert_eq!(
            read.arguments["value"], *expected,
            "{inputs:?} for {property}"
        );
    }

    #[test]
    fn text_stays_text_where_schema_permits_text() {
        for property in [
            json!({"type": "string"}),
            json!({"type": ["string", "null"]}),
            json!({"type": ["integer", "string"]}),
            json!({"$ref": "#/$defs/text"}),
            json!({"$ref": "#/$defs/note"}),
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/text"}]}),
            json!({"allOf": [{"$ref": "#/$defs/text"}, {"minLength": 1}]}),
            json!({"enum": ["10", "20"]}),
            json!({"const": "10"}),
            json!({"title": "anything"}),
            json!(true),
        ] {
            check(&property, &["10"], &json!("10"));
        }
        check(
            &json!({"type": ["string", "null"]}),
            &["null"],
            &json!("null"),
        );
        // Too long, but nevertheless text: the gateway names the length, not the type.
        check(
            &json!({"type": "string", "maxLength": 1}),
            &["10"],
            &json!("10"),
        );
    }

    #[test]
    fn text_becomes_json_where_schema_permits_no_text() {
        for property in [
            json!({"type": "integer"}),
            json!({"type": ["integer", "null"]}),
            json!({"$ref": "#/$defs/count"}),
            json!({"anyOf": [{"type": "number"}, {"type": "null"}]}),
            json!({"enum": [10, "all"]}),
            json!({"const": 10}),
        ] {
            check(&property, &["10"], &json!(10));
        }
        check(&json!({"enum": [10, "all"]}), &["all"], &json!("all"));
        check(
            &json!({"type": "object"}),
            &[r#"{"a": 1}"#],
            &json!({"a": 1}),
        );
        // What no type permits is sent as it was written.
        check(&json!({"type": "integer"}), &["1.5"], &json!(1.5));
        check(&json!({"type": "integer"}), &["ten"], &json!("ten"));
    }

    #[test]
    fn values_of_a_list_follow_the_schema_of_its_items() {
        let texts = json!({"type": "array", "items": {"$ref": "#/$defs/text"}});
        check(&texts, &["10"], &json!(["10"]));
        check(&texts, &["10", "20"], &json!(["10", "20"]));
        check(&texts, &[r#"["a"]"#], &json!(["a"]));
        let counts =
            json!({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]});
        check(&counts, &["10"], &json!([10]));
        check(&counts, &["10", "20"], &json!([10, 20]));
        check(&counts, &["[1,2]"], &json!([1, 2]));
        check(&json!({}), &["a", "b"], &json!(["a", "b"]));
    }

    #[test]
    fn text_after_two_at_signs_starts_with_one() {
        check(&json!({"type": "string"}), &["@@home"], &json!("@home"));
        check(&json!({"type": "string"}), &["a=b"], &json!("a=b"));
    }

    #[test]
    fn files_with_the_same_name_get_different_names() {
        let directory = tempfile::tempdir().unwrap();
        let mut inputs = Vec::new();
        for part in ["a", "b"] {
            let path = directory.path().join(part).join("data.csv");
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            std::fs::write(&path, part).unwrap();
            inputs.push(format!("{part}=@{}", path.display()));
        }
        let read = read(Some(r#"{"a": 1, "c": 2}"#), &inputs, None).unwrap();
        assert_eq!(
            Value::Object(read.arguments),
            json!({"a": "data.csv", "b": "data-2.csv", "c": 2})
        );
        assert_eq!(read.files.len(), 2);
    }

    /// What the terminal shows of an argument `value`, for a schema with this property.
    fn refusal(property: Option<&Value>, inputs: &[&str]) -> String {
        let contract = property.map(|property| {
            let schema = json!({"input": {"properties": {"value": property}}, "output": {}});
            Contract::parse(schema.to_string().as_bytes()).unwrap()
        });
        let inputs: Vec<String> = inputs.iter().map(|text| format!("value={text}")).collect();
        let failure = read(None, &inputs, contract.as_ref()).unwrap_err();
        failure.render()
    }

    #[test]
    fn argument_with_number_that_64_bits_cannot_hold_is_rejected_with_its_pointer() {
        let integer = json!({"type": "integer"});
        let numbers = json!({"type": "array", "items": {"type": "number"}});
        for (property, inputs, pointer) in [
            (
                None,
                &["18446744073709551616"][..],
                "/value: 18446744073709551616",
            ),
            (
                Some(&integer),
                &["18446744073709551616"],
                "/value: 18446744073709551616",
            ),
            (Some(&integer), &["1e400"], "/value: 1e400"),
            (Some(&numbers), &["3.141592653589793238"], "/value/0: 3.14"),
            (
                Some(&numbers),
                &["1", "18446744073709551616"],
                "/value/1: 1844",
            ),
            (None, &["1", "{\"a\": 1e400}"], "/value/1/a: 1e400"),
        ] {
            let shown = refusal(property, inputs);
            assert!(
                shown.contains("--input has numbers that 64 bits cannot hold"),
                "{shown}"
            );
            assert!(shown.contains(pointer), "{shown}");
        }
        let failure = read(Some(r#"{"a": [18446744073709551616]}"#), &[], None).unwrap_err();
        assert!(
            failure.render().contains("/a/0: 1844"),
            "{}",
            failure.render()
        );
    }

    #[test]
    fn digits_stay_text_where_schema_permits_text() {
        let digits = "18446744073709551616";
        check(&json!({"type": "string"}), &[digits], &json!(digits));
        check(
            &json!({"type": ["integer", "string"]}),
            &["1e400"],
            &json!("1e400"),
        );
        check(
            &json!({"type": "array", "items": {"type": "string"}}),
            &[digits, "1"],
            &json!([digits, "1"]),
        );
        check(
            &json!({"type": "integer"}),
            &["18446744073709551615"],
            &json!(u64::MAX),
        );
    }

    #[test]
    fn unusable_argument_is_rejected_with_its_reason() {
        for (input, expected) in [
            ("novalue", "is not key=value"),
            ("=x", "is not key=value"),
            ("f=@/none/x", "/none/x cannot be read"),
            ("f=@/", "not a regular file"),
        ] {
            let failure = read(None, &[input.to_owned()], None).unwrap_err();
            assert!(failure.render().contains(expected), "{}", failure.render());
        }
        assert!(
            read(Some("[1]"), &[], None)
                .unwrap_err()
                .render()
                .contains("--json is not a JSON object")
        );
    }
}
