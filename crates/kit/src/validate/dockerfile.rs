//! Static checks of the `Dockerfile`.

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
        let is_from = |found: &Instruction| found.word == "FROM";
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
    fn buildkit(&mut self, text: &str, instructions: &[Instruction]) {
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
            is_here_document,
        } in instructions
        {
            let known = OPTIONS.iter().find(|(name, _)| name == word);
            let known = known.map(|(_, known)| *known);
            for option in options {
                if known.is_some_and(|known| !known.contains(&option.as_str())) {
                    let message = format!(
                        "{word} --{option} needs BuildKit, but AOD builds with Docker's classic builder; remove --{option}"
                    );
                    self.add(NAME, place(*line), message);
                }
            }
            if *is_here_document {
                let message = format!(
                    "a here-document (<<) needs BuildKit, but AOD builds with Docker's classic builder; write {word} without it"
                );
                self.add(NAME, place(*line), message);
            }
        }
    }
}

/// An instruction and what the classic builder may not know of it.
struct Instruction {
    /// From 1.
    line: u64,
    /// In upper case.
    word: String,
    /// The names of its options, without dashes and values.
    options: Vec<String>,
    is_here_document: bool,
}

impl Instruction {
    /// Adds the options of `words`; returns whether more may follow.
    fn take_options<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> bool {
        for word in words {
            let Some(option) = word.strip_prefix("--") else {
                return word == "\\";
            };
            let name = option.split_once('=').map_or(option, |(name, _)| name);
            self.options.push(name.to_owned());
        }
        true
    }
}

fn place(line: u64) -> Place {
    Place { line, column: 1 }
}

/// All instructions. Source: "Dockerfile reference", format and escapes.
fn instructions(text: &str) -> Vec<Instruction> {
    let mut found: Vec<Instruction> = Vec::new();
    let (mut is_continued, mut document) = (false, None::<String>);
    let mut has_options = false;
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
        let mut words = line.split_whitespace();
        if is_continued {
            if let Some(last) = found.last_mut().filter(|_| has_options) {
                has_options = last.take_options(words);
            }
        } else {
            let word = words.next().unwrap_or_default().to_ascii_uppercase();
            document = here_document(&word, line);
            let mut new = Instruction {
                line: number,
                word,
                options: Vec::new(),
                is_here_document: document.is_some(),
            };
            has_options = new.take_options(words);
            found.push(new);
        }
        is_continued = line.ends_with('\\');
    }
    found
}

/// The word that ends a here-document which starts on `line`, as in `RUN <<END`.
fn here_document(instruction: &str, line: &str) -> Option<String> {
    if !["ADD", "COPY", "RUN"].contains(&instruction) {
        return None;
    }
    line.split_whitespace().find_map(|token| {
        let token = token.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let word = token.strip_prefix("<<")?.trim_start_matches('-');
        let word = word.trim_matches(['"', '\'']);
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        (!word.is_empty() && word.chars().all(is_name)).then(|| word.to_owned())
    })
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
