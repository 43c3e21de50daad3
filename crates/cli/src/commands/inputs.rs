//! The arguments of a run: `key=value`, `key=@path` and a JSON object, as the capsule's schema wants them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use aod_domain::file_name::{FileName, unique_name};
use serde_json::{Map, Value};

use crate::client::Upload;
use crate::failure::Failure;

/// Longest JSON that is read from a file or stdin, in bytes: the payload of a run is at most 256 KiB.
const JSON_BYTES_MAX: u64 = 1 << 20;

/// What a run is called with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Inputs {
    pub(crate) arguments: Map<String, Value>,
    pub(crate) files: Vec<Upload>,
}

/// Reads `--json` and each `--input`; `schema` is that of the capsule's input.
pub(super) fn read(
    json: Option<&str>,
    inputs: &[String],
    schema: Option<&Value>,
) -> Result<Inputs, Failure> {
    let mut read = Inputs {
        arguments: json.map(read_json).transpose()?.unwrap_or_default(),
        files: Vec::new(),
    };
    let mut given: Vec<(String, Vec<Value>)> = Vec::new();
    let mut taken = BTreeSet::new();
    for input in inputs {
        let (key, text) = input
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| {
                Failure::usage(format!("--input {input:?} is not key=value"))
                    .with_hint("`-i rows=10`, or `-i table=@data.csv` for a file")
            })?;
        let value = match text.strip_prefix('@') {
            None => value_of(text, property(schema, key)),
            Some(rest) if rest.starts_with('@') => Value::String(rest.to_owned()),
            Some(path) => {
                let upload = upload(Path::new(path), &mut taken)?;
                let name = upload.name.to_string();
                read.files.push(upload);
                Value::String(name)
            }
        };
        match given.iter_mut().find(|(known, _)| known == key) {
            Some((_, values)) => values.push(value),
            None => given.push((key.to_owned(), vec![value])),
        }
    }
    for (key, values) in given {
        let value = joined(values, property(schema, &key));
        read.arguments.insert(key, value);
    }
    Ok(read)
}

/// The schema of an argument, as far as it can be seen without following references.
fn property<'a>(schema: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    schema?.get("properties")?.get(key)
}

/// The types that a schema allows; empty when it does not say.
fn types(schema: Option<&Value>) -> Vec<&str> {
    match schema.and_then(|schema| schema.get("type")) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A text stays one where the schema wants one; else it is JSON if it can be.
fn value_of(text: &str, schema: Option<&Value>) -> Value {
    if types(schema) == ["string"] {
        return Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// One value stays one, unless the schema wants a list.
fn joined(mut values: Vec<Value>, schema: Option<&Value>) -> Value {
    let wants_list = types(schema) == ["array"];
    match values.len() {
        1 if !wants_list || values[0].is_array() => values.remove(0),
        _ => Value::Array(values),
    }
}

fn upload(path: &Path, taken: &mut BTreeSet<FileName>) -> Result<Upload, Failure> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .map_err(|error| Failure::usage(format!("{shown} cannot be read")).because(&error))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{shown} is no regular file"))
            .with_hint("hand over one file each: -i key=@file"));
    }
    let name = path.file_name().unwrap_or_default();
    let name = FileName::from_bytes(name.as_encoded_bytes()).map_err(|error| {
        Failure::usage(format!("{shown} cannot be handed over")).because(&error)
    })?;
    let name = unique_name(&name, taken);
    taken.insert(name.clone());
    Ok(Upload {
        name,
        path: PathBuf::from(path),
    })
}

/// The JSON object that `--json` stands for.
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
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage("--json is no JSON object").because(&error))
}

fn read_bounded(reader: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    reader.take(JSON_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(inputs: &[&str], expected: &Value) {
        let schema = json!({"properties": {
            "title": {"type": "string"}, "rows": {"type": "integer"}, "columns": {"type": "array"}, "free": {},
        }});
        let inputs: Vec<String> = inputs.iter().map(|&text| text.to_owned()).collect();
        let read = read(None, &inputs, Some(&schema)).unwrap();
        assert_eq!(Value::Object(read.arguments), *expected, "{inputs:?}");
    }

    #[test]
    fn the_schema_says_what_a_text_is() {
        check(
            &["title=10", "rows=10"],
            &json!({"title": "10", "rows": 10}),
        );
        check(
            &["free=true", "rows=ten"],
            &json!({"free": true, "rows": "ten"}),
        );
        check(&["columns=a"], &json!({"columns": ["a"]}));
        check(&["columns=[1,2]"], &json!({"columns": [1, 2]}));
        check(&["free=a", "free=b"], &json!({"free": ["a", "b"]}));
        check(
            &["title=@@home", "title2=a=b"],
            &json!({"title": "@home", "title2": "a=b"}),
        );
    }

    #[test]
    fn files_of_one_name_get_different_ones() {
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

    #[test]
    fn what_cannot_be_used_is_named() {
        for (input, expected) in [
            ("novalue", "is not key=value"),
            ("=x", "is not key=value"),
            ("f=@/none/x", "/none/x cannot be read"),
            ("f=@/", "no regular file"),
        ] {
            let failure = read(None, &[input.to_owned()], None).unwrap_err();
            assert!(failure.render().contains(expected), "{}", failure.render());
        }
        assert!(
            read(Some("[1]"), &[], None)
                .unwrap_err()
                .render()
                .contains("--json is no JSON object")
        );
    }
}
