//! Frequent mistakes outside the contract: the code that the bridge calls, the test cases, and misspelled formats
//! in schema.json.

use std::fs;

use aod_domain::contract::FILE_FORMATS;
use serde_json::Value;

use super::Check;
use crate::cases;
use crate::place::{Place, below, place_of};

/// Formats that do not mean files. Source: JSON Schema 2020-12, "Defined Formats".
const OTHER_FORMATS: [&str; 19] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

/// Maximum edit distance of a misspelled word.
const DISTANCE_MAX: usize = 2;

impl Check<'_> {
    pub(super) fn sources(&mut self) {
        self.python();
        self.formats();
        for problem in cases::problems(self.directory) {
            let (file, message) = problem.split_once(": ").unwrap_or(("tests", &problem));
            let file = std::path::Path::new(file);
            let file = file.strip_prefix(self.directory).unwrap_or(file);
            self.warn(&file.display().to_string(), Place::default(), message);
        }
    }

    /// The SDK's bridge calls `execute` in src/main.py.
    fn python(&mut self) {
        const MAIN: &str = "src/main.py";
        let bridge = fs::read_to_string(self.directory.join("run.py"));
        if !bridge.is_ok_and(|text| text.contains("aod.run(")) {
            return;
        }
        let Ok(text) = fs::read_to_string(self.directory.join(MAIN)) else {
            let message = "missing; run.py calls the function `execute` of this file";
            return self.warn(MAIN, Place::default(), message);
        };
        let has_execute = text.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("def execute(")
                || line.starts_with("async def execute(")
                || line.starts_with("execute =")
                || (line.starts_with("from ") && line.contains("execute"))
        });
        if !has_execute {
            let message = "no function `execute` found; run.py calls this function: expected def execute(inputs) or def execute(inputs, ctx)";
            self.warn(MAIN, Place::default(), message);
        }
    }

    fn formats(&mut self) {
        const SCHEMA: &str = "schema.json";
        let bytes = fs::read(self.directory.join(SCHEMA)).unwrap_or_default();
        let Ok(schema) = serde_json::from_slice::<Value>(&bytes) else {
            return;
        };
        let mut found = Vec::new();
        formats("", &schema, &mut found);
        for (pointer, format) in found {
            if OTHER_FORMATS.contains(&format) || FILE_FORMATS.contains(&format) {
                continue;
            }
            let nearest = FILE_FORMATS
                .iter()
                .min_by_key(|known| strsim::levenshtein(format, known))
                .filter(|known| strsim::levenshtein(format, known) <= DISTANCE_MAX);
            if let Some(nearest) = nearest {
                let place = place_of(&bytes, &pointer).unwrap_or_default();
                let message =
                    format!("{pointer}: unknown format {format:?}; did you mean {nearest:?}?");
                self.warn(SCHEMA, place, message);
            }
        }
    }
}

/// All formats in a schema, with their pointers.
fn formats<'a>(pointer: &str, value: &'a Value, found: &mut Vec<(String, &'a str)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let pointer = below(pointer, name);
                match member {
                    Value::String(format) if name == "format" => found.push((pointer, format)),
                    member => formats(&pointer, member, found),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                formats(&format!("{pointer}/{index}"), item, found);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut check = Check {
            directory: directory.path(),
            findings: Vec::new(),
        };
        check.sources();
        let prefix = format!("{}/", directory.path().display());
        let found = check.findings.iter().map(ToString::to_string);
        found.map(|line| line.replace(&prefix, "")).collect()
    }

    #[test]
    fn bridge_without_execute_gets_a_warning() {
        let bridge = ("run.py", "import aod\n\naod.run()\n");
        let found = findings(&[bridge]);
        assert_eq!(
            found,
            ["src/main.py: warning: missing; run.py calls the function `execute` of this file"]
        );
        let found = findings(&[bridge, ("src/main.py", "def exec(inputs):\n    pass\n")]);
        assert!(
            found[0].starts_with("src/main.py: warning: no function `execute` found"),
            "{found:?}"
        );
        let main = ("src/main.py", "async def execute(inputs, ctx):\n    pass\n");
        assert_eq!(findings(&[bridge, main]), [""; 0]);
        assert_eq!(findings(&[("run.py", "print()")]), [""; 0]);
    }

    #[test]
    fn misspelled_file_format_gets_a_suggestion() {
        let text = "{\"input\": {\"properties\": {\n\"a\": {\"format\": \"filepath\"}, \"b\": {\"format\": \"date\"}}}}";
        assert_eq!(
            findings(&[("schema.json", text)]),
            [
                "schema.json:2:17: warning: /input/properties/a/format: unknown format \"filepath\"; did you mean \"file_path\"?"
            ]
        );
    }

    #[test]
    fn invalid_test_case_gets_a_warning() {
        let found = findings(&[
            ("tests/cases/one/input.json", "{}"),
            ("tests/cases/one/expect.json", "{}"),
        ]);
        assert_eq!(
            found,
            [
                "tests/cases/one/expect.json: warning: the expectation is empty; expected output, output_subset, output_schema, files or error"
            ]
        );
    }
}
