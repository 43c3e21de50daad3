//! The test cases of a capsule: data in `tests/cases/<name>/`.
//!
//! ```text
//! input.json or input.yaml   the arguments; without either file: {}
//! files/                     input files, with their names
//! expect.json                the expected result
//! handoffs.yaml              canned answers of callees: a list for each callee
//! script.yaml                the answers of models, in the format of the SDK
//! ```

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::contract::PAYLOAD_SIZE_BYTES_MAX;
use aod_domain::file_name::FileName;
use aod_domain::yaml;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::expectation::Expectation;
use super::stand_in::Answer;
use super::{Error, contents};

/// The directory of the cases of a capsule.
const DIRECTORY: &str = "tests/cases";

/// A valid test case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of its directory.
    pub name: String,
    pub arguments: Map<String, Value>,
    /// Input files: name for the run, path on this machine.
    pub files: Vec<(FileName, PathBuf)>,
    pub expectation: Expectation,
    /// Canned answers, by the name that the caller uses for the callee.
    pub handoffs: BTreeMap<String, Vec<Answer>>,
    /// The answers of models, for the SDK.
    pub model: Option<Vec<u8>>,
}

/// One answer in `handoffs.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CannedAnswer {
    #[serde(default)]
    when: Map<String, Value>,
    output: Option<Map<String, Value>>,
    error: Option<CannedError>,
    /// Names of files of the answer, with their paths relative to the directory of the case.
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

/// Reads all cases of the capsule in `directory`, sorted by name.
///
/// # Errors
/// All problems of all cases, or that the capsule has no cases.
pub fn read(directory: &Path) -> Result<Vec<Case>, Error> {
    let (found, cases, problems) = read_all(directory);
    if found > 0 && problems.is_empty() {
        return Ok(cases);
    }
    let hint = format!("create a directory {DIRECTORY}/NAME with input.json and expect.json");
    let shown = directory.display();
    let (message, hint) = match found {
        0 => (format!("{shown} has no test cases"), Some(hint)),
        _ => (format!("invalid test cases in {shown}"), None),
    };
    Err(Error::Refused {
        message,
        details: problems,
        hint,
    })
}

/// All problems of the cases of the capsule in `directory`: `file: problem`.
pub(crate) fn problems(directory: &Path) -> Vec<String> {
    read_all(directory).2
}

/// The number of cases, the valid cases, and all problems.
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

    /// The bytes of a file, or none if the file does not exist.
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
        match (json, yaml) {
            (None, None) => Some(Map::new()),
            (Some(_), Some(_)) => {
                self.problem(
                    "input.json",
                    "input.json and input.yaml exist; expected only one of them",
                );
                None
            }
            (Some(json), None) => {
                let read = aod_domain::json::read(&json);
                read.map_err(|error| self.problem("input.json", error)).ok()
            }
            (None, Some(yaml)) => self
                .yaml::<Option<_>>("input.yaml", &yaml)
                .map(Option::unwrap_or_default),
        }
    }

    fn yaml<T: DeserializeOwned>(&mut self, file: &'static str, yaml: &[u8]) -> Option<T> {
        let value = match yaml::read(file, yaml, PAYLOAD_SIZE_BYTES_MAX) {
            Ok(value) => value,
            Err(problems) => {
                for problem in problems {
                    let place = self.directory.join(problem.to_string());
                    self.problems.push(place.display().to_string());
                }
                return None;
            }
        };
        let read = serde_json::from_value(value);
        read.map_err(|error| self.problem(file, error)).ok()
    }

    fn files(&mut self) -> Option<Vec<(FileName, PathBuf)>> {
        let root = self.directory.join("files");
        if !root.exists() {
            return Some(Vec::new());
        }
        let read = contents::files(&root).map_err(|error| {
            let cause = error.source().map(|source| format!(": {source}"));
            let cause = cause.unwrap_or_default();
            self.problem("files", format!("error: {error}{cause}"));
        });
        read.ok()
    }

    fn expectation(&mut self) -> Option<Expectation> {
        const NAME: &str = "expect.json";
        let Some(bytes) = self.read(NAME) else {
            self.problem(
                NAME,
                "missing; expected a file with the expected result of the run",
            );
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
        let read: Option<BTreeMap<String, Vec<CannedAnswer>>> = self.yaml(NAME, &bytes)?;
        let read = read.unwrap_or_default();
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

    /// The script of models, if there is one. The SDK validates its steps.
    fn model(&mut self) -> Option<Vec<u8>> {
        const NAME: &str = "script.yaml";
        let bytes = self.read(NAME)?;
        self.yaml::<Value>(NAME, &bytes)?;
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
            _ => return Err("expected either `output` or `error`".to_owned()),
        };
        let mut files = Vec::new();
        for (name, path) in canned.files {
            let name = FileName::parse(&name).map_err(|error| error.to_string())?;
            let path = self.directory.join(path);
            if !path.is_file() {
                return Err(format!("{} is not a file", path.display()));
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
    fn case_is_read_from_its_files() {
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
        assert_eq!(cases[0].files[0].0.as_str(), "a/b.txt");
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
    fn read_reports_all_problems_of_all_cases() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "one/input.json", "[1]");
        write(
            root,
            "one/handoffs.yaml",
            "chart:\n- files: {}\n- output: {}\n  files: {x: none}\n",
        );
        write(root, "two/handoffs.yaml", "chart:\n- outputs: {}\n");
        write(root, "three/input.yaml", "n: 1\nm: 0.10000000000000001");
        write(root, "two/script.yaml", "- text: [\n");
        write(root, "two/input.json", "{\"n\": 18446744073709551616}");
        write(
            root,
            "two/expect.json",
            "{\"output\": {\"n\": [0.1, 1e400]}}",
        );
        let Err(Error::Refused { details, .. }) = read(root) else {
            panic!("the cases are invalid");
        };
        let shown = details.join("\n");
        for expected in [
            "one/input.json: ",
            "one/expect.json: missing",
            "one/handoffs.yaml: chart/0: expected either `output` or `error`",
            "one/handoffs.yaml: chart/1: ",
            "two/handoffs.yaml: ",
            "outputs",
            "two/script.yaml:1:9: ",
            "three/input.yaml:2:4: 0.10000000000000001 given; a 64-bit number keeps only 0.1",
            "two/input.json: numbers that 64 bits cannot hold: /n: 18446744073709551616 given",
            "two/expect.json: /output/n/1: 1e400 given",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        let empty = tempfile::tempdir().unwrap();
        let shown = read(empty.path()).unwrap_err().to_string();
        assert!(shown.contains("has no test cases"), "{shown}");
    }
}
