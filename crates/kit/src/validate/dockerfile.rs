//! Static checks of the `Dockerfile`.

use super::Check;
use crate::place::Place;

const NAME: &str = "Dockerfile";

impl Check<'_> {
    pub(super) fn dockerfile(&mut self) {
        let bytes = match std::fs::read(self.directory.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = "missing; expected the build instructions of the image";
                return self.add(NAME, Place::default(), message);
            }
            Err(error) => {
                return self.add(NAME, Place::default(), format!("cannot be read: {error}"));
            }
        };
        let Ok(text) = String::from_utf8(bytes) else {
            return self.add(NAME, Place::default(), "not UTF-8 text");
        };
        let instructions = instructions(&text);
        let first = instructions.iter().find(|(_, word)| word != "ARG");
        match first {
            Some((_, word)) if word == "FROM" => (),
            Some((line, word)) => {
                let message = format!("{word} found; expected FROM first, or ARG before it");
                return self.add(NAME, place(*line), message);
            }
            None => {
                let message = "no FROM found; expected FROM with the base image";
                return self.add(NAME, Place::default(), message);
            }
        }
        let is_from = |(_, word): &(u64, String)| word == "FROM";
        let last = instructions.iter().rposition(is_from).unwrap_or_default();
        let has_command = instructions[last..]
            .iter()
            .any(|(_, word)| word == "ENTRYPOINT" || word == "CMD");
        if !has_command {
            let message = "found neither ENTRYPOINT nor CMD; the capsule runs the command of the base image, if the base image has one";
            self.warn(NAME, place(instructions[last].0), message);
        }
    }
}

fn place(line: u64) -> Place {
    Place { line, column: 1 }
}

/// The instructions with their line numbers, from 1. Source: "Dockerfile reference", format and escapes.
fn instructions(text: &str) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let (mut is_continued, mut document) = (false, None::<String>);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if let Some(end) = &document {
            if line == end {
                document = None;
            }
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !is_continued {
            let word = line.split_whitespace().next().unwrap_or_default();
            found.push((number, word.to_ascii_uppercase()));
            document = here_document(line);
        }
        is_continued = line.ends_with('\\');
    }
    found
}

/// The word that ends a here-document which starts on `line`, as in `RUN <<END`.
fn here_document(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("<<")?;
    let word = rest.trim_start_matches('-').split_whitespace().next()?;
    let word = word.trim_matches(['"', '\'']);
    let is_word = word
        .chars()
        .all(|character| character.is_alphanumeric() || character == '_');
    (is_word && !word.is_empty()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(NAME), text).unwrap();
        let mut check = Check {
            directory: directory.path(),
            findings: Vec::new(),
        };
        check.dockerfile();
        let prefix = format!("{}/{NAME}", directory.path().display());
        let found = check.findings.iter().map(ToString::to_string);
        let found: Vec<String> = found.map(|line| line.replace(&prefix, "")).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn dockerfile_without_from_or_command_is_reported() {
        check(
            "# x\nARG A\nfrom a\nRUN x \\\n  CMD\nENTRYPOINT [\"x\"]\n",
            &[],
        );
        check(
            "FROM a AS b\nCMD x\nFROM scratch\nCOPY --from=b a \\\n# no\n CMD\n",
            &[
                ":3:1: warning: found neither ENTRYPOINT nor CMD; the capsule runs the command of the base image, if the base image has one",
            ],
        );
        check(
            "\nRUN x\nFROM a\n",
            &[":2:1: RUN found; expected FROM first, or ARG before it"],
        );
        check(
            "# nothing\n",
            &[": no FROM found; expected FROM with the base image"],
        );
        check("FROM a\nRUN <<END\nFROM b\nEND\nCMD x\n", &[]);
    }
}
