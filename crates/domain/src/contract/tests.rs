//! Rules of contracts; the `check…` functions here are the only callers of the code under test.

mod canonical;
mod hostile;
mod payloads;
mod properties;
mod references;
mod schemas;

use serde_json::{Value, json};

use super::*;

/// The only existing files, in every directory.
const FILES: [&str; 4] = ["graph.png", "sub/data.csv", "notes", "ü.txt"];
const DIRECTORIES: [&str; 2] = ["sub", "pages"];

fn exists(name: &str) -> Option<FileKind> {
    if FILES.contains(&name) {
        Some(FileKind::File)
    } else {
        DIRECTORIES.contains(&name).then_some(FileKind::Directory)
    }
}

fn contract(input: &Value) -> Contract {
    let schema = json!({ "input": input, "output": { "type": "object" } });
    Contract::parse(schema.to_string().as_bytes()).expect("a proper schema")
}

fn check_input(input: &Value, payload: Value) -> Result<Checked, Vec<Problem>> {
    contract(input).check_input(payload, Directory::Outgoing, &exists)
}

/// Pointers and codes of the problems in `result`.
fn codes<T: std::fmt::Debug>(result: Result<T, Vec<Problem>>) -> Vec<(String, ProblemCode)> {
    let problems = result.expect_err("problems");
    problems
        .into_iter()
        .map(|problem| (problem.pointer, problem.code))
        .collect()
}

/// `payload` is refused only at `pointer`, with a message that contains all of `words`.
fn check_refused(input: &Value, payload: Value, pointer: &str, code: ProblemCode, words: &[&str]) {
    let problems = check_input(input, payload).expect_err("a problem");
    let [problem] = &problems[..] else {
        panic!("not one problem: {problems:#?}")
    };
    assert_eq!(
        (problem.pointer.as_str(), problem.code),
        (pointer, code),
        "{problem}"
    );
    for word in words {
        assert!(
            problem.message.contains(word),
            "{word:?} is not in {:?}",
            problem.message
        );
    }
}

/// `payload` passes and becomes `expected`.
fn check_becomes(input: &Value, payload: Value, expected: &Value) {
    assert_eq!(
        &check_input(input, payload).expect("no problem").payload,
        expected
    );
}

/// `value` in `depth` nested lists.
fn nested(value: Value, depth: usize) -> Value {
    (0..depth).fold(value, |inner, _| Value::Array(vec![inner]))
}
