//! The golden cases of the contract in `tests/contract/`; the Python SDK has to pass the same cases.

#[path = "contract/case.rs"]
mod case;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::file_name::{Directory, FileName, unique_name};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use case::{Case, expanded};

/// Minimum number of cases: a missing directory has none.
const CASES_MIN: usize = 150;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract")
}

fn read<T: DeserializeOwned>(path: &Path) -> T {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The beginning of `value`, which may be a large payload.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(500).collect()
}

#[derive(Deserialize)]
struct Golden {
    name: String,
    case: Case,
    expected: Value,
}

#[test]
fn golden_cases_hold() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(directory().join("cases")).expect("the cases are there") {
        let path = entry.expect("an entry").path();
        for golden in read::<Vec<Golden>>(&path) {
            count += 1;
            let (found, expected) = (golden.case.answer(), expanded(&golden.expected));
            if found != expected {
                let place = format!("{}: {}", path.display(), golden.name);
                let (found, expected) = (shown(&found), shown(&expected));
                wrong.push(format!("{place}\nexpected {expected}\nfound    {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= CASES_MIN, "{count} cases");
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    proper: Vec<Value>,
    refused: Vec<Value>,
    relative: Vec<Relative>,
    unique: Vec<Unique>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Relative {
    directory: String,
    text: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unique {
    name: Value,
    taken: Vec<Value>,
    expected: Value,
}

fn text(value: &Value) -> String {
    let value = expanded(value);
    value.as_str().expect("a text").to_owned()
}

fn name(value: &Value) -> FileName {
    FileName::parse(&text(value)).expect("a proper name")
}

#[test]
fn golden_names_hold() {
    let names: Names = read(&directory().join("names.json"));
    for proper in &names.proper {
        assert_eq!(
            FileName::parse(&text(proper)).map(String::from),
            Ok(text(proper))
        );
    }
    for refused in &names.refused {
        assert!(FileName::parse(&text(refused)).is_err(), "{refused}");
    }
    for Relative {
        directory,
        text,
        name,
    } in &names.relative
    {
        let directory = match directory.as_str() {
            "input" => Directory::Input,
            "output" => Directory::Output,
            "outgoing" => Directory::Outgoing,
            "incoming" => Directory::Incoming,
            other => panic!("{other} is no directory"),
        };
        assert_eq!(directory.relative(text), name);
    }
    for unique in &names.unique {
        let taken: BTreeSet<_> = unique.taken.iter().map(name).collect();
        let found = unique_name(&name(&unique.name), &taken);
        assert_eq!(json!(found), expanded(&unique.expected));
    }
}
