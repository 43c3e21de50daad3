//! Static checks of the `Dockerfile`.

use aod_domain::dockerfile::{Instruction, Word, instructions};

use super::Check;
use crate::place::Place;

const NAME: &str = "Dockerfile";

/// The options of instructions that the classic builder knows. Source: moby 20.10, `builder/dockerfile/dispatchers.go`.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("ADD", &["chown"]),
    ("COPY", &["chown", "from"]),
    ("FROM", &["platform"]),
    ("RUN", &[]),
];

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
        // Docker ignores a byte order mark, too.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let instructions = instructions(text);
        self.buildkit(text, &instructions);
        let first = instructions.iter().find(|found| found.word != "ARG");
        match first {
            Some(first) if first.word == "FROM" => (),
            Some(Instruction { line, word, .. }) => {
                let message = format!("{word} found; expected FROM first, or ARG before it");
                return self.add(NAME, place(*line), message);
            }
            None => {
                let message = "no FROM found; expected FROM with the base image";
                return self.add(NAME, Place::default(), message);
            }
        }
        let is_from = |found: &Instruction<'_>| found.word == "FROM";
        let last = instructions.iter().rposition(is_from).unwrap_or_default();
        let has_command = instructions[last..]
            .iter()
            .any(|found| found.word == "ENTRYPOINT" || found.word == "CMD");
        if !has_command {
            let message = "found neither ENTRYPOINT nor CMD; the capsule runs the command of the base image, if the base image has one";
            self.warn(NAME, place(instructions[last].line), message);
        }
    }

    /// Reports what only BuildKit understands: nodes build with the classic builder, which every engine has.
    fn buildkit(&mut self, text: &str, instructions: &[Instruction<'_>]) {
        let is_directive = |line: &str| {
            let comment = line.trim_start().strip_prefix('#').map(str::trim_start);
            comment.is_some_and(|comment| comment.to_ascii_lowercase().starts_with("syntax="))
        };
        if text.lines().next().is_some_and(is_directive) {
            let message = "\"syntax\" has no effect: AOD builds with Docker's classic builder";
            self.warn(NAME, place(1), message);
        }
        for Instruction {
            line,
            word,
            options,
            document,
            ..
        } in instructions
        {
            let known = OPTIONS.iter().find(|(name, _)| name == word);
            let known = known.map(|(_, known)| *known);
            for option in options.iter().filter_map(name) {
                if known.is_some_and(|known| !known.contains(&option)) {
                    let message = format!(
                        "{word} --{option} needs BuildKit, but AOD builds with Docker's classic builder; remove --{option}"
                    );
                    self.add(NAME, place(*line), message);
                }
            }
            if document.is_some() {
                let message = format!(
                    "a here-document (<<) needs BuildKit, but AOD builds with Docker's classic builder; write {word} without it"
                );
                self.add(NAME, place(*line), message);
            }
        }
    }
}

/// The name of an option, without dashes and value.
fn name<'a>(option: &Word<'a>) -> Option<&'a str> {
    let option = option.text.strip_prefix("--")?;
    Some(option.split_once('=').map_or(option, |(name, _)| name))
}

fn place(line: u64) -> Place {
    Place { line, column: 1 }
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
        check("\u{feff}FROM a\nCMD x\n", &[]);
    }

    #[test]
    fn syntax_of_buildkit_is_reported() {
        let builder = "needs BuildKit, but AOD builds with Docker's classic builder";
        check(
            "# syntax=docker/dockerfile:1\nFROM --platform=linux/amd64 a\nCMD x\n",
            &[":1:1: warning: \"syntax\" has no effect: AOD builds with Docker's classic builder"],
        );
        check(
            "FROM a\nRUN --mount=type=cache,target=/c \\\n  --network=none \\\n  pip --user x\nCMD x\n",
            &[
                &format!(":2:1: RUN --mount {builder}; remove --mount"),
                &format!(":2:1: RUN --network {builder}; remove --network"),
            ],
        );
        check(
            "FROM a\nCOPY --chown=1:1 --chmod=755 x y\nHEALTHCHECK --interval=5s CMD x\nCMD x\n",
            &[&format!(":2:1: COPY --chmod {builder}; remove --chmod")],
        );
        check(
            "FROM a\nRUN <<END\nFROM b\nEND\nCMD x\n",
            &[&format!(
                ":2:1: a here-document (<<) {builder}; write RUN without it"
            )],
        );
        check(
            "FROM a\nRUN x --mount=1 && cat <<< y && x=$((a << b ))\nCMD echo $((1 << 2))\n",
            &[],
        );
    }
}
