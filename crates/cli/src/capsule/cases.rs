//! The test cases of a capsule: data in `tests/cases/<name>/`.
//!
//! ```text
//! input.json or input.yaml   the arguments; none of both means {}
//! files/                     input files, under their names there
//! expect.json                what is expected
//! handoffs.yaml              what those answer that are called: a list for each callee
//! script.yaml                what models answer, as the SDK has it
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::file_name::FileName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::expectation::Expectation;
use super::pack;
use crate::client::Upload;
use crate::failure::Failure;
use crate::service::stand_in::Answer;

/// Where the cases of a capsule are.
const DIRECTORY: &str = "tests/cases";

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its directory's name.
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) files: Vec<Upload>,
    pub(crate) expectation: Expectation,
    /// What is answered in place of capsules, by the caller's word for them.
    pub(crate) handoffs: BTreeMap<String, Vec<Answer>>,
    /// What models answer, for the SDK to read.
    pub(crate) model: Option<Vec<u8>>,
}

/// One answer in `handoffs.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CannedAnswer {
    #[serde(default)]
    when: Map<String, Value>,
    output: Option<Map<String, Value>>,
    error: Option<CannedError>,
    /// Names of files of the answer, and where they are, seen from the case's directory.
    #[serde(default)]
    files: BTreeMap<String, PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CannedError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    detail: Value,
    #[serde(default)]
    retryable: bool,
}

/// Reads all cases of the capsule in `directory`, by name.
///
/// # Errors
/// All that is wrong with all of them; a capsule without cases has something wrong.
pub(crate) fn read(directory: &Path) -> Result<Vec<Case>, Failure> {
    let (found, cases, problems) = read_all(directory);
    if found == 0 {
        let message = format!("{} has no test cases", directory.display());
        let hint =
            format!("a case is a directory: {DIRECTORY}/NAME, with input.json and expect.json");
        return Err(Failure::usage(message).with_hint(hint));
    }
    if problems.is_empty() {
        return Ok(cases);
    }
    let message = format!("the test cases of {} cannot be used", directory.display());
    Err(Failure::usage(message).with_details(problems))
}

/// All that is wrong with the cases of the capsule in `directory`: `file: what`.
pub(crate) fn problems(directory: &Path) -> Vec<String> {
    read_all(directory).2
}

/// How many cases there are; those that can be read; and what is wrong.
fn read_all(directory: &Path) -> (usize, Vec<Case>, Vec<String>) {
    let root = directory.join(DIRECTORY);
    let mut found: Vec<PathBuf> = fs::read_dir(&root)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    let mut problems = Vec::new();
    let cases = found
        .iter()
        .filter_map(|path| {
            let mut reader = CaseReader {
                directory: path,
                problems: &mut problems,
            };
            reader.case()
        })
        .collect();
    (found.len(), cases, problems)
}

struct CaseReader<'a> {
    directory: &'a Path,
    problems: &'a mut Vec<String>,
}

impl CaseReader<'_> {
    fn case(&mut self) -> Option<Case> {
        let name = self.directory.file_name()?.to_string_lossy().into_owned();
        let arguments = self.arguments();
        let files = self.files();
        let expectation = self.expectation();
        let handoffs = self.handoffs();
        let model = self.model();
        Some(Case {
            name,
            arguments: arguments?,
            files: files?,
            expectation: expectation?,
            handoffs: handoffs?,
            model,
        })
    }

    fn problem(&mut self, file: &str, message: impl std::fmt::Display) {
        let place = self.directory.join(file);
        self.problems
            .push(format!("{}: {message}", place.display()));
    }

    /// The bytes of a file, or none if there is none.
    fn read(&mut self, file: &str) -> Option<Vec<u8>> {
        match fs::read(self.directory.join(file)) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                self.problem(file, error);
                None
            }
        }
    }

    fn arguments(&mut self) -> Option<Map<String, Value>> {
        let (json, yaml) = (self.read("input.json"), self.read("input.yaml"));
        let (file, read) = match (json, yaml) {
            (None, None) => return Some(Map::new()),
            (Some(_), Some(_)) => {
                self.problem("input.json", "input.yaml is there as well; expected one");
                return None;
            }
            (Some(json), None) => (
                "input.json",
                serde_json::from_slice(&json).map_err(|error| error.to_string()),
            ),
            (None, Some(yaml)) => (
                "input.yaml",
                serde_saphyr::from_slice(&yaml).map_err(|error| error.to_string()),
            ),
        };
        read.map_err(|error| self.problem(file, error)).ok()
    }

    fn files(&mut self) -> Option<Vec<Upload>> {
        let root = self.directory.join("files");
        if !root.exists() {
            return Some(Vec::new());
        }
        match pack::files(&root) {
            Ok(files) => Some(
                files
                    .into_iter()
                    .map(|(name, path)| Upload { name, path })
                    .collect(),
            ),
            Err(failure) => {
                self.problem("files", failure.render());
                None
            }
        }
    }

    fn expectation(&mut self) -> Option<Expectation> {
        const NAME: &str = "expect.json";
        let Some(bytes) = self.read(NAME) else {
            self.problem(NAME, "missing; expected what the run is to answer");
            return None;
        };
        let problems = match Expectation::parse(&bytes) {
            Ok(expectation) => return Some(expectation),
            Err(problems) => problems,
        };
        for problem in problems {
            self.problem(NAME, problem);
        }
        None
    }

    fn handoffs(&mut self) -> Option<BTreeMap<String, Vec<Answer>>> {
        const NAME: &str = "handoffs.yaml";
        let Some(bytes) = self.read(NAME) else {
            return Some(BTreeMap::new());
        };
        let read = serde_saphyr::from_slice::<BTreeMap<String, Vec<CannedAnswer>>>(&bytes);
        let read = read.map_err(|error| self.problem(NAME, error)).ok()?;
        let mut handoffs = BTreeMap::new();
        let known = self.problems.len();
        for (callee, answers) in read {
            let mut usable = Vec::new();
            for (index, answer) in answers.into_iter().enumerate() {
                match self.answer(answer) {
                    Ok(answer) => usable.push(answer),
                    Err(message) => self.problem(NAME, format!("{callee}/{index}: {message}")),
                }
            }
            handoffs.insert(callee, usable);
        }
        (self.problems.len() == known).then_some(handoffs)
    }

    /// The script of models, if there is one; what its steps mean is for the SDK to say.
    fn model(&mut self) -> Option<Vec<u8>> {
        const NAME: &str = "script.yaml";
        let bytes = self.read(NAME)?;
        let read = serde_saphyr::from_slice::<Value>(&bytes);
        read.map_err(|error| self.problem(NAME, error)).ok()?;
        Some(bytes)
    }

    fn answer(&self, canned: CannedAnswer) -> Result<Answer, String> {
        let result = match (canned.output, canned.error) {
            (Some(output), None) => Ok(Value::Object(output)),
            (None, Some(error)) => Err(json!({
                "code": error.code,
                "message": error.message,
                "detail": error.detail,
                "retryable": error.retryable,
            })),
            _ => return Err("expected either output or error".to_owned()),
        };
        let mut files = Vec::new();
        for (name, path) in canned.files {
            let name = FileName::parse(&name).map_err(|error| error.to_string())?;
            let path = self.directory.join(path);
            if !path.is_file() {
                return Err(format!("{} is no file", path.display()));
            }
            files.push((name, path));
        }
        Ok(Answer {
            when: canned.when,
            result,
            files,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(DIRECTORY).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_case_is_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "one/input.yaml", "rows: 3\nname: \"4\"\n");
        write(root, "one/files/a/b.txt", "text");
        write(root, "one/expect.json", r#"{"output": {}}"#);
        write(root, "one/script.yaml", "- text: done\n");
        write(
            root,
            "one/handoffs.yaml",
            "chart:\n- when: {kind: bar}\n  output: {n: 1}\n  files: {x.txt: files/a/b.txt}\n- error: {code: no}\n",
        );
        write(root, "two/expect.json", r#"{"error": {"code": "x"}}"#);
        let cases = read(root).unwrap();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        assert_eq!(
            Value::Object(cases[0].arguments.clone()),
            json!({"rows": 3, "name": "4"})
        );
        assert_eq!(cases[0].files[0].name.as_str(), "a/b.txt");
        let answers = &cases[0].handoffs["chart"];
        assert_eq!(
            answers
                .iter()
                .map(|answer| &answer.result)
                .collect::<Vec<_>>(),
            [
                &Ok(json!({"n": 1})),
                &Err(json!({"code": "no", "message": "", "detail": null, "retryable": false}))
            ]
        );
        assert_eq!(answers[0].files[0].0.as_str(), "x.txt");
        assert_eq!(cases[0].model.as_deref(), Some(&b"- text: done\n"[..]));
        assert_eq!(cases[1].model, None);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "one/input.json", "[1]");
        write(
            root,
            "one/handoffs.yaml",
            "chart:\n- files: {}\n- output: {}\n  files: {x: none}\n",
        );
        write(root, "two/handoffs.yaml", "chart:\n- outputs: {}\n");
        write(root, "two/script.yaml", "- text: [\n");
        let shown = read(root).unwrap_err().render();
        for expected in [
            "one/input.json: ",
            "one/expect.json: missing",
            "one/handoffs.yaml: chart/0: expected either output or error",
            "one/handoffs.yaml: chart/1: ",
            "two/handoffs.yaml: ",
            "outputs",
            "two/script.yaml: ",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        let empty = tempfile::tempdir().unwrap();
        let shown = read(empty.path()).unwrap_err().render();
        assert!(shown.contains("has no test cases"), "{shown}");
    }
}
