//! Checks a capsule's directory as the gateway will, with the place of each problem in its file.

mod dockerfile;
mod prices;
mod relations;
mod secrets;
mod sources;

use std::fmt;
use std::fs;
use std::path::Path;

use aod_domain::contract::{Contract, SCHEMA_SIZE_BYTES_MAX};
use aod_domain::manifest::{
    AgentManifest, MANIFEST_SIZE_BYTES_MAX, ManifestProblem, Network, ToolsManifest, slug,
};
use serde::Serialize;

use super::pack;
use super::place::{Place, place_of};
use crate::failure::Failure;

pub(crate) use self::prices::unpriced;
pub(crate) use self::relations::relations;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// The gateway, or Docker, refuses the directory.
    Error,
    /// It can be built, and is probably not what its author means.
    Warning,
}

/// Something that is wrong with a capsule's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// As the directory was given, with the file in it.
    pub(crate) file: String,
    /// From 1; 0 when the place is not known.
    pub(crate) line: u64,
    /// In characters, from 1; 0 when the place is not known.
    pub(crate) column: u64,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            file,
            line,
            column,
            message,
        } = self;
        let word = match severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        match line {
            0 => write!(formatter, "{file}: {word}{message}"),
            _ => write!(formatter, "{file}:{line}:{column}: {word}{message}"),
        }
    }
}

/// All that is wrong with `directory`; nothing for one that follows the standard.
pub(crate) fn validate(directory: &Path) -> Result<Vec<Finding>, Failure> {
    let metadata = fs::metadata(directory).map_err(|error| {
        Failure::usage(format!("{} cannot be read", directory.display())).because(&error)
    })?;
    if !metadata.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory",
            directory.display()
        )));
    }
    let mut check = Check {
        directory,
        findings: Vec::new(),
    };
    let entries = pack::entries(directory)?;
    check.dockerfile();
    check.schema();
    check.agent();
    check.manifest("tools.yaml", ToolsManifest::parse);
    check.secrets(&entries);
    check.sources();
    Ok(check.findings)
}

/// All errors as one failure; warnings are none.
pub(crate) fn refuse(findings: &[Finding]) -> Result<(), Failure> {
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors: Vec<String> = findings
        .iter()
        .filter(is_error)
        .map(ToString::to_string)
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    let count = errors.len();
    let message = format!("{count} problem{} found", if count == 1 { "" } else { "s" });
    Err(Failure::usage(message).with_details(errors))
}

struct Check<'a> {
    directory: &'a Path,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn add(&mut self, file: &str, place: Place, message: impl Into<String>) {
        self.find(Severity::Error, file, place, message);
    }

    fn warn(&mut self, file: &str, place: Place, message: impl Into<String>) {
        self.find(Severity::Warning, file, place, message);
    }

    fn find(&mut self, severity: Severity, file: &str, place: Place, message: impl Into<String>) {
        let file = self.directory.join(file).display().to_string();
        self.findings.push(Finding {
            severity,
            file,
            line: place.line,
            column: place.column,
            message: message.into(),
        });
    }

    /// The bytes of a file; none if there is none, or if it is too large.
    fn read(&mut self, name: &str, size_max: usize) -> Option<Vec<u8>> {
        match fs::read(self.directory.join(name)) {
            Ok(bytes) if bytes.len() > size_max => {
                self.add(
                    name,
                    Place::default(),
                    format!("more than {size_max} bytes; expected at most that"),
                );
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

    fn schema(&mut self) {
        const NAME: &str = "schema.json";
        if !self.directory.join(NAME).exists() {
            return self.add(
                NAME,
                Place::default(),
                "missing; expected what the capsule takes and gives",
            );
        }
        let Some(bytes) = self.read(NAME, SCHEMA_SIZE_BYTES_MAX) else {
            return;
        };
        if let Err(error) = serde_json::from_slice::<serde_json::Value>(&bytes) {
            let place = Place {
                line: error.line() as u64,
                column: (error.column() as u64).max(1),
            };
            let text = error.to_string();
            // The library puts the place at the end; here it stands in front.
            let message = text.split(" at line ").next().unwrap_or_default();
            return self.add(NAME, place, format!("no JSON: {message}"));
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

    /// The gateway asks for a name: the manifest's, or one that follows from the directory's.
    fn agent(&mut self) {
        let Some(agent) = self.manifest("agent.yaml", AgentManifest::parse) else {
            return;
        };
        let path = self.directory.canonicalize().unwrap_or_default();
        let directory = path.file_name().unwrap_or_default().to_string_lossy();
        if agent.name.is_none() && slug(&directory).is_none() {
            let message = format!(
                "`name` is missing, and none follows from the directory's name {directory:?}"
            );
            self.add("agent.yaml", Place::default(), message);
        }
        if agent.network == Network::Egress && agent.egress.is_empty() {
            let message = "`network: egress` reaches no host; expected the hosts under `egress`";
            self.warn("agent.yaml", Place::default(), message);
        }
    }

    /// An absent manifest is as an empty one.
    fn manifest<T>(
        &mut self,
        name: &str,
        parse: fn(&[u8]) -> Result<T, Vec<ManifestProblem>>,
    ) -> Option<T> {
        let bytes = self.read(name, MANIFEST_SIZE_BYTES_MAX).unwrap_or_default();
        match parse(&bytes) {
            Ok(manifest) => Some(manifest),
            Err(problems) => {
                for ManifestProblem {
                    file,
                    line,
                    column,
                    message,
                } in problems
                {
                    self.add(&file, Place { line, column }, message);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_at_once_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "schema.json",
            "{\n  \"input\": {\"type\": \"objekt\"},\n  \"output\": {}\n}",
        );
        write("agent.yaml", "modle: x\n");
        let findings = validate(directory.path()).unwrap();
        let shown: Vec<_> = findings
            .iter()
            .map(|finding| {
                let file = Path::new(&finding.file)
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                (file, finding.line)
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("Dockerfile".to_owned(), 0),
                ("schema.json".to_owned(), 2),
                ("agent.yaml".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn words_of_other_languages_are_no_types() {
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
                    .ends_with(&format!("is \"{meant}\" meant?")),
                "{}",
                findings[0]
            );
        }
    }

    #[test]
    fn a_network_without_hosts_is_no_network() {
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
            findings[0].message.contains("reaches no host"),
            "{}",
            findings[0]
        );
        let findings = findings_of(&format!("{network}egress: [api.example.com]\n"));
        assert_eq!(findings.len(), 0, "{findings:?}");
    }

    #[test]
    fn broken_json_is_shown_where_it_breaks() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(
            directory.path().join("Dockerfile"),
            "FROM scratch\nCMD [\"/x\"]",
        )
        .unwrap();
        fs::write(directory.path().join("schema.json"), "{\n  \"input\": ]").unwrap();
        let findings = validate(directory.path()).unwrap();
        let shown: Vec<_> = findings
            .iter()
            .map(|finding| (finding.line, finding.column, finding.message.as_str()))
            .collect();
        assert_eq!(shown, [(2, 12, "no JSON: expected value")]);
    }
}
