//! Reads a `Dockerfile`: its instructions, and the images outside of it that its stages use.
//!
//! Source: "Dockerfile reference", and moby 20.10, `frontend/dockerfile/parser` and `builder/dockerfile/dispatchers.go`.

use std::collections::BTreeMap;

/// An instruction with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// From 1.
    pub line: u64,
    /// Its name, in upper case.
    pub word: String,
    /// With dashes and values, as in `--from=builder`.
    pub options: Vec<Word<'a>>,
    /// The words after the options.
    pub arguments: Vec<Word<'a>>,
    /// The word that ends its here-document, as in `RUN <<END`.
    pub document: Option<String>,
}

/// A word, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    pub text: &'a str,
    /// Its first byte in the file.
    pub start: usize,
}

/// A use of an image outside of the `Dockerfile`: in `FROM`, or in `COPY --from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use<'a> {
    /// The reference, with the values of its variables.
    pub reference: String,
    /// The reference as the file has it.
    pub word: Word<'a>,
    /// Whether the last stage, which becomes the image, is based on it.
    pub is_final: bool,
}

/// All instructions.
pub fn instructions(text: &str) -> Vec<Instruction<'_>> {
    let escape = escape(text);
    let mut found: Vec<Instruction<'_>> = Vec::new();
    let mut is_continued = false;
    let mut document = None::<String>;
    for (number, line) in (1..).zip(lines(text)) {
        let trimmed = line.text.trim();
        if let Some(end) = &document {
            if trimmed == end {
                document = None;
            }
            continue;
        }
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let mut words = words(line);
        let continued = found.last_mut().filter(|_| is_continued);
        is_continued = trimmed.ends_with(escape);
        if let Some(last) = continued {
            last.take(words, escape);
            continue;
        }
        let word = words.next().map_or("", |word| word.text);
        let word = word.to_ascii_uppercase();
        document = here_document(&word, trimmed);
        let mut new = Instruction {
            line: number,
            word,
            options: Vec::new(),
            arguments: Vec::new(),
            document: document.clone(),
        };
        new.take(words, escape);
        found.push(new);
    }
    found
}

/// The uses of images outside of the file, in its order. Without those whose reference depends on an argument of the
/// builder, or is split between two lines.
pub fn uses(text: &str) -> Vec<Use<'_>> {
    let mut found = Found::default();
    for instruction in instructions(text) {
        match instruction.word.as_str() {
            "ARG" if found.stages.is_empty() => found.argument(&instruction),
            "FROM" => found.stage(&instruction),
            "COPY" => found.copy(&instruction),
            _ => (),
        }
    }
    found.finish()
}

/// The file with other references in place of those of `uses`. Each line keeps its number. Uses for which `image` has
/// nothing stay.
pub fn rewritten<'a>(
    text: &str,
    uses: &[Use<'_>],
    image: impl Fn(&str) -> Option<&'a str>,
) -> String {
    let mut new = String::with_capacity(text.len());
    let mut end = 0;
    for found in uses {
        let Some(image) = image(&found.reference) else {
            continue;
        };
        new.push_str(&text[end..found.word.start]);
        new.push_str(image);
        end = found.word.start + found.word.text.len();
    }
    new.push_str(&text[end..]);
    new
}

impl<'a> Instruction<'a> {
    /// Adds words of one line.
    fn take(&mut self, words: impl Iterator<Item = Word<'a>>, escape: char) {
        for word in words {
            let is_escape = word.text.strip_suffix(escape) == Some("");
            if self.arguments.is_empty() && word.text.starts_with("--") {
                self.options.push(word);
            } else if !is_escape {
                self.arguments.push(word);
            }
        }
    }
}

/// The first image of a stage.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Stage(usize),
    Use(usize),
    /// `scratch`, or a reference that cannot be read.
    Other,
}

/// A stage: its name in lower case, and its origin.
#[derive(Debug)]
struct Stage {
    name: Option<String>,
    origin: Origin,
}

/// Maximum length of a text with the values of its variables, in bytes: values of values could double with each line. A
/// reference has at most 255 bytes for its name, 128 for its tag and 72 for its digest. Source: distribution/reference.
const RESOLVED_BYTES_MAX: usize = 512;

/// What was read so far.
#[derive(Debug, Default)]
struct Found<'a> {
    uses: Vec<Use<'a>>,
    stages: Vec<Stage>,
    /// The arguments before the first stage: none if the value cannot be read.
    arguments: BTreeMap<&'a str, Option<String>>,
}

impl<'a> Found<'a> {
    fn argument(&mut self, instruction: &Instruction<'a>) {
        for word in &instruction.arguments {
            let (name, value) = word.text.split_once('=').unwrap_or((word.text, ""));
            let value = unquoted(value).and_then(|value| self.resolve(value));
            self.arguments.insert(name, value);
        }
    }

    fn stage(&mut self, instruction: &Instruction<'a>) {
        let name = match instruction.arguments[..] {
            [_, word, name, ..] if word.text.eq_ignore_ascii_case("as") => {
                Some(name.text.to_lowercase())
            }
            _ => None,
        };
        // For another platform, the name stands for another image: the builder looks for it.
        let is_platform = |word: &Word<'_>| word.text.starts_with("--platform");
        let has_platform = instruction.options.iter().any(is_platform);
        let origin = instruction.arguments.first().filter(|_| !has_platform);
        let origin = origin.map_or(Origin::Other, |&word| {
            let reference = unquoted(word.text).and_then(|text| self.resolve(text));
            reference.map_or(Origin::Other, |reference| self.origin(reference, word))
        });
        self.stages.push(Stage { name, origin });
    }

    fn copy(&mut self, instruction: &Instruction<'a>) {
        for word in &instruction.options {
            let Some(reference) = word.text.strip_prefix("--from=") else {
                continue;
            };
            // A number names a stage; and Docker replaces no variables here.
            if reference.parse::<u64>().is_err() {
                let start = word.start + word.text.len() - reference.len();
                let text = reference;
                self.origin(reference.to_owned(), Word { text, start });
            }
        }
    }

    /// What `reference` names; adds an image to the uses.
    fn origin(&mut self, reference: String, word: Word<'a>) -> Origin {
        let name = reference.to_lowercase();
        let is_named = |stage: &Stage| stage.name.as_ref() == Some(&name);
        if let Some(stage) = self.stages.iter().rposition(is_named) {
            return Origin::Stage(stage);
        }
        if name == "scratch" || !is_reference(&reference) {
            return Origin::Other;
        }
        self.uses.push(Use {
            reference,
            word,
            is_final: false,
        });
        Origin::Use(self.uses.len() - 1)
    }

    fn finish(mut self) -> Vec<Use<'a>> {
        let mut origin = self.stages.last().map(|stage| stage.origin);
        while let Some(Origin::Stage(stage)) = origin {
            origin = Some(self.stages[stage].origin);
        }
        if let Some(Origin::Use(number)) = origin {
            self.uses[number].is_final = true;
        }
        self.uses
    }

    /// `text` with the values of its variables; none if one of them is unknown, or if the text has another syntax.
    fn resolve(&self, text: &str) -> Option<String> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            resolved.push_str(before);
            let (name, default, remaining) = match after.strip_prefix('{') {
                Some(braced) => {
                    let (inside, remaining) = braced.split_once('}')?;
                    let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
                    (name, default, remaining)
                }
                None => {
                    let end = after.find(|letter| !is_of_name(letter));
                    let (name, remaining) = after.split_at(end.unwrap_or(after.len()));
                    (name, "", remaining)
                }
            };
            let value = self.arguments.get(name)?.as_deref()?;
            resolved.push_str(if value.is_empty() { default } else { value });
            if resolved.len() > RESOLVED_BYTES_MAX {
                return None;
            }
            rest = remaining;
        }
        resolved.push_str(rest);
        (resolved.len() <= RESOLVED_BYTES_MAX).then_some(resolved)
    }
}

/// Whether Docker could read the text as the name of an image. Source: distribution/reference, "Grammar".
fn is_reference(text: &str) -> bool {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && text.chars().all(is_known)
}

const fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The text without the quotes around it; none if it has others.
fn unquoted(text: &str) -> Option<&str> {
    let inside = ['"', '\''].into_iter().find_map(|quote| {
        let rest = text.strip_prefix(quote)?;
        rest.strip_suffix(quote)
    });
    let inside = inside.unwrap_or(text);
    (!inside.contains(['"', '\'', '\\', '`'])).then_some(inside)
}

/// The character that continues a line: a backslash, unless a comment at the beginning sets another one.
fn escape(text: &str) -> char {
    let directives = lines(text).map_while(|line| line.text.trim().strip_prefix('#'));
    let directives = directives.map_while(|comment| comment.split_once('='));
    for (name, value) in directives {
        if name.trim().eq_ignore_ascii_case("escape") && value.trim() == "`" {
            return '`';
        }
    }
    '\\'
}

/// The lines with their places, without a byte order mark, which Docker ignores.
fn lines(text: &str) -> impl Iterator<Item = Word<'_>> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut start = text.len() - body.len();
    body.split_inclusive('\n').map(move |text| {
        let line = Word { text, start };
        start += text.len();
        line
    })
}

/// The words of a line with their places.
fn words(line: Word<'_>) -> impl Iterator<Item = Word<'_>> {
    let mut end = 0;
    line.text.split_whitespace().map(move |text| {
        let gap = line.text[end..].find(text).unwrap_or_default();
        let start = end + gap;
        end = start + text.len();
        let start = line.start + start;
        Word { text, start }
    })
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
mod tests;
