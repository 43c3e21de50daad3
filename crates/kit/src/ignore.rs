//! Decides which entries of a directory stay out of its package: the built-in list, the tests, and the lines of
//! `Dockerfile.dockerignore` or, without this file, of `.dockerignore`.
//!
//! Every entry on the built-in list needs its own exception: `!src` returns the directory `src`, but not
//! `src/__pycache__`; `!**/__pycache__` returns this directory, too.

mod pattern;

use std::fmt;
use std::fs;
use std::path::Path;

use self::pattern::Pattern;
use crate::Error;
use crate::place::Place;
use crate::validate::{Finding, Severity};

/// The ignore files; only the first existing one has an effect. Source: "Dockerfile reference" and "Build context" in
/// Docker's documentation.
const FILES: [&str; 2] = ["Dockerfile.dockerignore", ".dockerignore"];

/// The files that AOD or Docker reads. No line excludes them from the package; Docker itself removes the `Dockerfile`
/// and `.dockerignore` from the context of `COPY` if a line of `.dockerignore` matches them.
pub(crate) const ALWAYS_INCLUDED: [&str; 7] = [
    "Dockerfile",
    FILES[0],
    FILES[1],
    "agent.yaml",
    "schema.json",
    "tools.yaml",
    "workflow.yaml",
];

/// Files and directories that tools create: different on each machine.
const BUILT_IN: [&str; 7] = [
    ".DS_Store",
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
];

/// The directory of tests. Left out unless the `Dockerfile` names it, so a changed test does not change the image.
const TESTS: &str = "tests";

/// Why an entry is not in the package; the least expected reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The tests, which the `Dockerfile` does not name.
    Tests,
    /// A line of an ignore file.
    Line {
        file: &'static str,
        number: u64,
    },
    BuiltIn,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tests => formatter.write_str("not in the Dockerfile"),
            Self::Line { file, number } => write!(formatter, "{file}:{number}"),
            Self::BuiltIn => formatter.write_str("built-in list"),
        }
    }
}

/// The rules of one directory.
#[derive(Debug)]
pub(crate) struct Rules {
    includes_tests: bool,
    /// The valid lines of the ignore file.
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    reason: Reason,
    is_exception: bool,
    pattern: Pattern,
}

impl Rules {
    /// The built-in list alone.
    pub(crate) fn built_in() -> Self {
        Self {
            includes_tests: true,
            lines: Vec::new(),
        }
    }

    /// The rules of the capsule in `directory`, and the problems of its ignore file.
    pub(crate) fn read(directory: &Path) -> Result<(Self, Vec<Finding>), Error> {
        let mut rules = Self {
            includes_tests: names_tests(directory),
            lines: Vec::new(),
        };
        let mut findings = Vec::new();
        let Some((file, bytes)) = ignore_file(directory)? else {
            return Ok((rules, findings));
        };
        let mut problem = |line, column, message: String| {
            let place = Place { line, column };
            findings.push(Finding::new(
                Severity::Error,
                directory,
                file,
                place,
                message,
            ));
        };
        let Ok(text) = String::from_utf8(bytes) else {
            problem(0, 0, "not UTF-8 text".to_owned());
            return Ok((rules, findings));
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            match Line::parse(line.trim(), Reason::Line { file, number }) {
                Ok(line) => rules.lines.push(line),
                Err(message) => problem(number, 1, format!("{:?}: {message}", line.trim())),
            }
        }
        Ok((rules, findings))
    }

    /// Why the entry `name` is not in the package; none if it is.
    pub(crate) fn reason(&self, name: &str) -> Option<Reason> {
        if ALWAYS_INCLUDED.contains(&name) {
            return None;
        }
        let is_returned = |listed: &str| {
            let mut exceptions = self.exceptions();
            exceptions.any(|pattern| pattern.names(listed) && pattern.matches(name))
        };
        let mut listed = self.listed(name);
        if let Some((_, reason)) = listed.find(|(listed, _)| !is_returned(listed)) {
            return Some(reason);
        }
        let mut lines = self.lines.iter().rev();
        let last = lines.find(|line| line.pattern.matches(name))?;
        (!last.is_exception).then_some(last.reason)
    }

    /// Whether entries of `directory`, which is not in the package itself, can be in it.
    pub(crate) fn may_include_entries_of(&self, directory: &str) -> bool {
        let may_match = |pattern: &&Pattern| pattern.may_match_in(directory);
        let mut listed = self.listed(directory);
        self.exceptions().any(|pattern| may_match(&pattern))
            && listed.all(|(listed, _)| {
                let mut exceptions = self.exceptions().filter(may_match);
                exceptions.any(|pattern| pattern.names(listed))
            })
    }

    fn exceptions(&self) -> impl Iterator<Item = &Pattern> {
        let exceptions = self.lines.iter().filter(|line| line.is_exception);
        exceptions.map(|line| &line.pattern)
    }

    /// The entry and the directories above that are left out without an exception.
    fn listed<'a>(&self, name: &'a str) -> impl Iterator<Item = (&'a str, Reason)> {
        ancestors(name).filter_map(|name| {
            let path = Path::new(name);
            let is_compiled = path.extension().is_some_and(|end| end == "pyc");
            let last = path.file_name()?;
            if is_compiled || BUILT_IN.iter().any(|listed| last == *listed) {
                Some((name, Reason::BuiltIn))
            } else {
                (name == TESTS && !self.includes_tests).then_some((name, Reason::Tests))
            }
        })
    }
}

impl Line {
    fn parse(text: &str, reason: Reason) -> Result<Self, String> {
        let exception = text.strip_prefix('!').map(str::trim);
        if exception == Some("") {
            return Err("nothing follows !; expected a pattern".to_owned());
        }
        Ok(Self {
            reason,
            is_exception: exception.is_some(),
            pattern: Pattern::parse(exception.unwrap_or(text))?,
        })
    }
}

/// The directories above `name`, then `name`.
pub(crate) fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    let above = name.match_indices('/').map(|(end, _)| &name[..end]);
    above.chain(std::iter::once(name))
}

fn ignore_file(directory: &Path) -> Result<Option<(&'static str, Vec<u8>)>, Error> {
    for file in FILES {
        let path = directory.join(file);
        match fs::read(&path) {
            Ok(bytes) => return Ok(Some((file, bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
            Err(error) => return Err(Error::unreadable(&path, error)),
        }
    }
    Ok(None)
}

/// Whether the `Dockerfile` names the tests.
fn names_tests(directory: &Path) -> bool {
    let dockerfile = fs::read_to_string(directory.join("Dockerfile"));
    dockerfile.is_ok_and(|text| {
        let mut words = text.split(|character: char| !character.is_alphanumeric());
        words.any(|word| word == TESTS)
    })
}
