//! Validates a capsule's directory by the gateway's rules, and reports the place of each problem.

mod dockerfile;
mod prices;
mod relations;
mod secrets;
mod sources;

use std::fmt;
use std::fs;
use std::path::Path;

use aod_domain::contract::{Contract, SCHEMA_SIZE_BYTES_MAX};
use aod_domain::json::{self, Unreadable};
use aod_domain::manifest::{AgentManifest, MANIFEST_SIZE_BYTES_MAX, Network, ToolsManifest, slug};
use aod_domain::task::{self, WORKFLOW_SIZE_BYTES_MAX};
use aod_domain::yaml;
use serde::Serialize;

use super::Error;
use super::contents::{Entry, contents};
use super::ignore::{ALWAYS_INCLUDED, Rules};
use super::place::{Place, place_of};

pub use self::prices::unpriced;
pub use self::relations::relations;

/// The workflow of a task.
const WORKFLOW: &str = "workflow.yaml";

/// Whether a finding makes the directory invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The gateway or Docker rejects the directory.
    Error,
    /// The capsule builds, but probably does not do what its author intends.
    Warning,
}

/// A problem in a capsule's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The directory as given, and the file in it.
    pub file: String,
    /// From 1; 0 if unknown.
    pub line: u64,
    /// In characters, from 1; 0 if unknown.
    pub column: u64,
    pub message: String,
}

impl Finding {
    /// A problem at `place` of `file`, a name in `directory`.
    pub(crate) fn new(
        severity: Severity,
        directory: &Path,
        file: &str,
        place: Place,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            file: directory.join(file).display().to_string(),
            line: place.line,
            column: place.column,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if self.line > 0 {
            write!(formatter, ":{}:{}", self.line, self.column)?;
        }
        let word = match self.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        write!(formatter, ": {word}{}", self.message)
    }
}

/// All problems in `directory`; empty for a valid capsule.
pub fn validate(directory: &Path) -> Result<Vec<Finding>, Error> {
    let metadata = fs::metadata(directory);
    let metadata = metadata.map_err(|source| Error::unreadable(directory, source))?;
    if !metadata.is_dir() {
        return Err(Error::refused(format!(
            "{} is not a directory",
            directory.display()
        )));
    }
    let (rules, findings) = Rules::read(directory)?;
    let entries = contents(directory, &rules)?.entries;
    let mut check = Check {
        directory,
        findings,
    };
    check.links(&entries);
    check.dockerfile();
    check.schema();
    check.agent();
    check.manifest("tools.yaml", MANIFEST_SIZE_BYTES_MAX, ToolsManifest::parse);
    if directory.join(WORKFLOW).exists() {
        check.manifest(WORKFLOW, WORKFLOW_SIZE_BYTES_MAX, |yaml| {
            task::read_runnable(WORKFLOW, yaml)
        });
    }
    check.secrets(&entries);
    check.sources();
    Ok(check.findings)
}

/// Fails with all errors; ignores warnings.
pub fn refuse(findings: &[Finding]) -> Result<(), Error> {
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors = findings.iter().filter(is_error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let count = errors.len();
    Err(Error::Refused {
        message: format!("{count} problem{} found", if count == 1 { "" } else { "s" }),
        details: errors,
        hint: None,
    })
}

struct Check<'a> {
    directory: &'a Path,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn add(&mut self, file: &str, place: Place, message: impl Into<String>) {
        let found = Finding::new(Severity::Error, self.directory, file, place, message);
        self.findings.push(found);
    }

    fn warn(&mut self, file: &str, place: Place, message: impl Into<String>) {
        let found = Finding::new(Severity::Warning, self.directory, file, place, message);
        self.findings.push(found);
    }

    /// The bytes of a file; none if it does not exist, or is too large.
    fn read(&mut self, name: &str, size_max: usize) -> Option<Vec<u8>> {
        match fs::read(self.directory.join(name)) {
            Ok(bytes) if bytes.len() > size_max => {
                let message = format!("too large; expected at most {size_max} bytes");
                self.add(name, Place::default(), message);
                None
            }
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                self.add(name, Place::default(), format!("cannot be read: {error}"));
                None
            }
        }
    }

    /// The gateway and Docker read these files from the package, which contains links as links.
    fn links(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.is_link()) {
            let name = entry.name.as_str();
            if ALWAYS_INCLUDED.contains(&name) {
                let message = "a symbolic link; expected a regular file";
                self.add(name, Place::default(), message);
            }
        }
    }

    fn schema(&mut self) {
        const NAME: &str = "schema.json";
        if !self.directory.join(NAME).exists() {
            let message = "missing; expected the JSON Schemas of input and output";
            return self.add(NAME, Place::default(), message);
        }
        let Some(bytes) = self.read(NAME, SCHEMA_SIZE_BYTES_MAX) else {
            return;
        };
        if let Err(Unreadable::Malformed(error)) = json::read::<serde_json::Value>(&bytes) {
            let place = Place {
                line: error.line() as u64,
                column: (error.column() as u64).max(1),
            };
            let text = error.to_string();
            // The finding has the place already.
            let message = text.split(" at line ").next().unwrap_or_default();
            return self.add(NAME, place, format!("invalid JSON: {message}"));
        }
        for problem in Contract::parse(&bytes).err().unwrap_or_default() {
            let place = place_of(&bytes, &problem.pointer).unwrap_or_default();
            let message = match problem.pointer.as_str() {
                "" => problem.message,
                pointer => format!("{pointer}: {}", problem.message),
            };
            self.add(NAME, place, message);
        }
    }

    /// The gateway requires a name: from the manifest, or from the name of the directory.
    fn agent(&mut self) {
        let Some(agent) =
            self.manifest("agent.yaml", MANIFEST_SIZE_BYTES_MAX, AgentManifest::parse)
        else {
            return;
        };
        let path = self.directory.canonicalize().unwrap_or_default();
        let directory = path.file_name().unwrap_or_default().to_string_lossy();
        if agent.name.is_none() && slug(&directory).is_none() {
            let message = format!(
                "`name` is missing, and the directory name {directory:?} is not a valid capsule name: set `name` in agent.yaml"
            );
            self.add("agent.yaml", Place::default(), message);
        }
        if agent.network == Network::Egress && agent.egress.is_empty() {
            let message =
                "`network: egress` without hosts; expected a list of hosts under `egress`";
            self.warn("agent.yaml", Place::default(), message);
        }
    }

    /// A missing manifest counts as an empty one.
    fn manifest<T>(
        &mut self,
        name: &str,
        size_bytes_max: usize,
        parse: fn(&[u8]) -> Result<T, Vec<yaml::Problem>>,
    ) -> Option<T> {
        let bytes = self.read(name, size_bytes_max).unwrap_or_default();
        match parse(&bytes) {
            Ok(manifest) => Some(manifest),
            Err(problems) => {
                for problem in problems {
                    let (line, column) = (problem.line, problem.column);
                    self.add(&problem.file, Place { line, column }, problem.message);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{pack, source};

    #[test]
    fn validate_reports_all_problems_with_their_places() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "schema.json",
            "{\n  \"input\": {\"type\": \"objekt\"},\n  \"output\": {}\n}",
        );
        write("agent.yaml", "modle: x\n");
        let findings = validate(directory.path()).unwrap();
        let places = findings.iter().map(|found| (&found.file, found.line));
        let expected = [("Dockerfile", 0), ("schema.json", 2), ("agent.yaml", 1)]
            .map(|(name, line)| (directory.path().join(name).display().to_string(), line));
        assert!(
            places.eq(expected.iter().map(|(file, line)| (file, *line))),
            "{findings:?}"
        );
    }

    #[test]
    fn type_names_of_other_languages_get_a_suggestion() {
        let directory = tempfile::tempdir().unwrap();
        let words = [
            ("int", "integer"),
            ("float", "number"),
            ("bool", "boolean"),
            ("dict", "object"),
            ("list", "array"),
        ];
        fs::write(directory.path().join("Dockerfile"), "FROM scratch\nCMD x").unwrap();
        for (word, meant) in words {
            let text = format!(
                "{{\"input\": {{}},\n\"output\": {{\"properties\": {{\"x\": {{\"type\": \"{word}\"}}}}}}}}"
            );
            fs::write(directory.path().join("schema.json"), text).unwrap();
            let findings = validate(directory.path()).unwrap();
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!((findings[0].line, findings[0].column), (2, 41));
            assert!(
                findings[0]
                    .message
                    .ends_with(&format!("did you mean \"{meant}\"?")),
                "{}",
                findings[0]
            );
        }
    }

    #[test]
    fn network_without_hosts_gets_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("Dockerfile", "FROM scratch\nCMD [\"/x\"]");
        write("schema.json", "{\"input\": {}, \"output\": {}}");
        let findings_of = |agent: &str| {
            write("agent.yaml", agent);
            validate(directory.path()).unwrap()
        };
        let network = "name: x\nresources: {network: egress}\n";
        let findings = findings_of(network);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Warning);
        assert!(
            findings[0].message.contains("without hosts"),
            "{}",
            findings[0]
        );
        let findings = findings_of(&format!("{network}egress: [api.example.com]\n"));
        assert_eq!(findings.len(), 0, "{findings:?}");
    }

    #[test]
    fn invalid_ignore_lines_are_reported_together() {
        let directory = tempfile::tempdir().unwrap();
        let directory = source::tests::write(directory.path(), "x", "", "");
        let shown = |text: &[u8]| {
            fs::write(directory.join(".dockerignore"), text).unwrap();
            let findings = validate(&directory).unwrap();
            let Err(Error::Refused { details, .. }) = pack(&directory) else {
                panic!("an invalid ignore file cannot be used");
            };
            let shown: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(shown, details);
            let prefix = format!("{}/", directory.display());
            let names = shown.iter().map(|line| line.replace(&prefix, ""));
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            shown(b"a\n!\n# [\nb[a-\n ! [z-a] \n\\"),
            [
                r#".dockerignore:2:1: "!": nothing follows !; expected a pattern"#,
                r#".dockerignore:4:1: "b[a-": invalid [; expected characters or ranges, then ], as in [a-z0-9]"#,
                r#".dockerignore:5:1: "! [z-a]": range z-a; expected the lower character first"#,
                r#".dockerignore:6:1: "\\": nothing follows the last \; expected a character"#,
            ]
        );
        assert_eq!(shown(b"\xff\xfea\0"), [".dockerignore: not UTF-8 text"]);
    }

    #[test]
    fn key_in_excluded_file_gets_no_warning() {
        let directory = tempfile::tempdir().unwrap();
        let directory = source::tests::write(directory.path(), "x", "", "");
        // In two parts, so that secret scanners ignore this file.
        let key = format!("KEY=sk-{}\n", "abcd1234abcd1234");
        for name in [".env", "other.env"] {
            fs::write(directory.join(name), &key).unwrap();
        }
        let warned = || {
            let findings = validate(&directory).unwrap();
            let files = findings.iter().map(|finding| Path::new(&finding.file));
            files
                .filter_map(|file| Some(file.file_name()?.to_str()?.to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(warned(), [".env", "other.env"]);
        fs::write(directory.join(".dockerignore"), ".env").unwrap();
        assert_eq!(warned(), ["other.env"]);
    }

    #[test]
    fn linked_file_that_aod_reads_is_rejected() {
        for name in ALWAYS_INCLUDED {
            let root = tempfile::tempdir().unwrap();
            let directory = source::tests::write(root.path(), "x", "", "");
            fs::write(directory.join(".dockerignore"), "").unwrap();
            fs::write(directory.join("Dockerfile.dockerignore"), "").unwrap();
            let workflow = "name: w\nsteps: [{id: a, type: command, command: 'true'}]\n";
            fs::write(directory.join(WORKFLOW), workflow).unwrap();
            let target = directory.join("other");
            fs::rename(directory.join(name), &target).unwrap();
            symlink("other", directory.join(name)).unwrap();
            let findings = validate(&directory).unwrap();
            let found = findings
                .iter()
                .map(|finding| (&finding.file, finding.message.as_str()));
            let path = directory.join(name).display().to_string();
            assert!(
                found.eq([(&path, "a symbolic link; expected a regular file")]),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn json_error_is_reported_at_its_place() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("Dockerfile"), "FROM scratch\nCMD x").unwrap();
        fs::write(directory.path().join("schema.json"), "{\n  \"input\": ]").unwrap();
        let findings = validate(directory.path()).unwrap();
        let shown: Vec<_> = findings
            .iter()
            .map(|finding| (finding.line, finding.column, finding.message.as_str()))
            .collect();
        assert_eq!(shown, [(2, 12, "invalid JSON: expected value")]);
    }
}
