//! Finds the texts of a payload that name files, and replaces them by final names.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Evaluation;
use serde_json::{Map, Value};

use super::limits::each_string;
use super::problem::{PROBLEMS_MAX, Problem, ProblemCode};
use super::{Exists, FileKind, Reference};
use crate::file_name::{Directory, FileName};
use crate::text::quoted;

/// The values of `format` that declare a file reference: a file, a directory, or (`path`) either.
pub const FILE_FORMATS: [&str; 5] = [
    "file_path",
    "file-path",
    "directory_path",
    "directory-path",
    "path",
];

/// The kinds that the schema allows for a reference.
#[derive(Clone, Copy, Default)]
struct Allowed {
    file: bool,
    directory: bool,
}

impl Allowed {
    fn add(&mut self, format: &str) {
        self.file |= !format.starts_with("directory");
        self.directory |= !format.starts_with("file");
    }

    fn expected(self) -> &'static str {
        match self {
            Self {
                file: true,
                directory: true,
            } => "a file or a directory",
            Self {
                directory: true, ..
            } => "a directory",
            Self { .. } => "a file",
        }
    }
}

/// All references of a payload that `evaluation` found valid, or the problems of declared ones.
pub(crate) fn find(
    payload: &Value,
    evaluation: &Evaluation,
    directory: Directory,
    exists: Exists<'_>,
) -> Result<Vec<Reference>, Vec<Problem>> {
    let declared = declared(evaluation);
    let other_texts = LazyCell::new(|| other_texts(evaluation));
    let mut references = BTreeMap::new();
    let mut problems = Vec::new();
    each_string(payload, &mut |pointer, text| {
        let found = match declared.get(pointer) {
            Some(&allowed) => check_declared(pointer, text, allowed, directory, exists)
                .map(Some)
                .or_else(|problem| {
                    if other_texts.contains(pointer) {
                        return Ok(None);
                    }
                    Err(problem)
                }),
            None => Ok(infer(pointer, text, directory, exists)),
        };
        match found {
            Ok(reference) => {
                references.extend(reference.map(|reference| (pointer.to_owned(), reference)));
            }
            Err(problem) => problems.push(problem),
        }
    });
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() {
        Ok(references.into_values().collect())
    } else {
        Err(problems)
    }
}

/// The places where the schema declares a path. Annotations exist only for matching schemas, so failed branches of an
/// `anyOf` are left out.
fn declared(evaluation: &Evaluation) -> BTreeMap<String, Allowed> {
    let mut declared: BTreeMap<String, Allowed> = BTreeMap::new();
    for annotation in evaluation.iter_annotations() {
        // A property named "format" also ends like this, but its annotations are not texts.
        let format = annotation.annotations.value().as_str().unwrap_or_default();
        if annotation.schema_location.ends_with("/format") && FILE_FORMATS.contains(&format) {
            let pointer = annotation.instance_location.as_str().to_owned();
            declared.entry(pointer).or_default().add(format);
        }
    }
    declared
}

/// The places of texts that fit a branch of an `anyOf` without a path beside one with a path: the name of a file or
/// something else, such as a URL.
fn other_texts(evaluation: &Evaluation) -> BTreeSet<String> {
    let tree = serde_json::to_value(evaluation.hierarchical()).unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut pending = vec![&tree];
    while let Some(node) = pending.pop() {
        let path = node["evaluationPath"].as_str().unwrap_or_default();
        let branches = parts(node).filter(|branch| branch["valid"] == true);
        if path.ends_with("/anyOf")
            && let Some(place) = node["instanceLocation"].as_str()
            && branches.into_iter().any(|branch| !has_path(branch, place))
        {
            found.insert(place.to_owned());
        }
        pending.extend(parts(node));
    }
    found
}

/// Whether the schema at `node` of an evaluation declares the text at `place` as a path.
fn has_path(node: &Value, place: &str) -> bool {
    let mut pending = vec![node];
    while let Some(node) = pending.pop() {
        let format = node["annotations"].as_str().unwrap_or_default();
        if node["instanceLocation"] == place && FILE_FORMATS.contains(&format) {
            return true;
        }
        pending.extend(parts(node));
    }
    false
}

fn parts(node: &Value) -> impl Iterator<Item = &Value> {
    node["details"].as_array().into_iter().flatten()
}

fn check_declared(
    pointer: &str,
    text: &str,
    allowed: Allowed,
    directory: Directory,
    exists: Exists<'_>,
) -> Result<Reference, Problem> {
    let name = FileName::parse(directory.relative(text))
        .map_err(|rejection| Problem::new(pointer, ProblemCode::FileName, rejection.to_string()))?;
    let problem = |code, found: &str| {
        let expected = allowed.expected();
        let message = format!(
            "{} is {found} in {}; expected {expected}",
            quoted(text),
            directory.path()
        );
        Err(Problem::new(pointer, code, message))
    };
    match exists(name.as_str()) {
        None => problem(ProblemCode::FileMissing, "not"),
        Some(FileKind::File) if !allowed.file => problem(ProblemCode::FileKind, "a file"),
        Some(FileKind::Directory) if !allowed.directory => {
            problem(ProblemCode::FileKind, "a directory")
        }
        Some(kind) => Ok(Reference {
            pointer: pointer.to_owned(),
            name,
            declared: true,
            kind,
        }),
    }
}

/// Directories are never inferred: words like `data` would copy whole trees by chance.
fn infer(pointer: &str, text: &str, directory: Directory, exists: Exists<'_>) -> Option<Reference> {
    let name = FileName::parse(directory.relative(text)).ok()?;
    let kind = exists(name.as_str()).filter(|&kind| kind == FileKind::File)?;
    Some(Reference {
        pointer: pointer.to_owned(),
        name,
        declared: false,
        kind,
    })
}

/// The problems of texts in `file` and `files` of `arguments` that name a path outside `directory`, for agent-on-demand
/// compatibility.
///
/// agent-on-demand copies such a file from its host. In the container of the callee, the same path is another file.
pub fn host_paths(arguments: &Map<String, Value>, directory: Directory) -> Vec<Problem> {
    let how = match directory {
        Directory::Input => {
            "upload the file with POST /v1/files, put its reference into \"files\" of POST /execute, \
             and give its name here"
        }
        _ => "copy the file to /io/handoff/outgoing and give its name here",
    };
    let mut problems = Vec::new();
    for key in ["file", "files"] {
        let value = arguments.get(key).unwrap_or(&Value::Null);
        each_string(value, &mut |below, text| {
            let name = directory.relative(text);
            if name.starts_with('/') || name.split('/').any(|component| component == "..") {
                let message = format!("{} is outside {}: {how}", quoted(text), directory.path());
                let pointer = format!("/{key}{below}");
                problems.push(Problem::new(pointer, ProblemCode::FileName, message));
            }
        });
    }
    problems.truncate(PROBLEMS_MAX);
    problems
}

/// `payload` with its declared `references` replaced by the bare names that `final_name` returns.
///
/// Nothing else changes: an inferred reference keeps its text, including `./` or `/io/…`.
///
/// # Errors
/// An inferred reference to a renamed file ([`ProblemCode::FileUndeclared`]), or a place where `payload` has no text.
pub fn rewrite(
    mut payload: Value,
    references: &[Reference],
    final_name: &dyn Fn(&FileName) -> FileName,
) -> Result<Value, Vec<Problem>> {
    let mut problems = Vec::new();
    for reference in references {
        let name = final_name(&reference.name);
        match payload.pointer_mut(&reference.pointer) {
            Some(Value::String(text)) if reference.declared => *text = name.into(),
            Some(Value::String(_)) if name == reference.name => (),
            Some(Value::String(text)) => problems.push(undeclared(reference, text, &name)),
            _ => {
                let message = format!(
                    "no string found; expected {}",
                    quoted(reference.name.as_str())
                );
                problems.push(Problem::new(
                    &reference.pointer,
                    ProblemCode::DoesNotFit,
                    message,
                ));
            }
        }
    }
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() {
        Ok(payload)
    } else {
        Err(problems)
    }
}

fn undeclared(reference: &Reference, text: &str, name: &FileName) -> Problem {
    let message = format!(
        "{} names a file that AOD must rename to {}, but the schema does not declare this string as a file name; \
         expected \"format\": \"file_path\" in the schema, or another file name",
        quoted(text),
        quoted(name.as_str()),
    );
    Problem::new(&reference.pointer, ProblemCode::FileUndeclared, message)
}
