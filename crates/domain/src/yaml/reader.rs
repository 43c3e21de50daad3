//! Parses YAML and extracts typed fields.
//!
//! Derived deserialization would stop at the first mistake; this reader reports all mistakes of a file together.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::Problem;
use super::node::{self, Content, Key, Node, Place};
use crate::text::{nearest, quoted};

/// Maximum problems of one answer.
const PROBLEMS_MAX: usize = 50;

/// A mapping whose fields are extracted one by one; fields left at the end are unknown.
pub(crate) struct Mapping {
    pub(crate) place: Place,
    entries: Vec<(Key, Node)>,
    known: Vec<&'static str>,
}

impl Mapping {
    /// Whether `key` is there and was not taken.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(found, _)| found.text == key)
    }

    /// The value of `key`; none if `key` is absent or null.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.take_any(key).filter(|node| !node.is_null())
    }

    /// The value of `key`, which may be null; none if `key` is absent.
    pub(crate) fn take_any(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let position = self
            .entries
            .iter()
            .position(|(found, _)| found.text == key)?;
        Some(self.entries.swap_remove(position).1)
    }
}

/// Sorted by place, and not too many.
fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems.truncate(PROBLEMS_MAX);
    problems
}

/// Collects the problems of one file.
pub(crate) struct Reader {
    file: String,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// What was read of a file, with everything that its author should change.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<T> {
    /// None if there are problems.
    pub value: Option<T>,
    /// By place; at most 50.
    pub problems: Vec<Problem>,
    /// By place; at most 50.
    pub warnings: Vec<Problem>,
}

impl Reader {
    /// Parses `yaml` and converts it with `read`; none stands for an empty document.
    pub(crate) fn read<T>(
        file: &str,
        yaml: &[u8],
        size_bytes_max: usize,
        read: impl FnOnce(&mut Self, Option<Node>) -> T,
    ) -> Result<T, Vec<Problem>> {
        let outcome = Self::outcome(file, yaml, size_bytes_max, read);
        outcome.value.ok_or(outcome.problems)
    }

    /// As [`Reader::read`], with the warnings.
    pub(crate) fn outcome<T>(
        file: &str,
        yaml: &[u8],
        size_bytes_max: usize,
        read: impl FnOnce(&mut Self, Option<Node>) -> T,
    ) -> Outcome<T> {
        let mut reader = Self {
            file: file.to_owned(),
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        let read = match node::parse(yaml, size_bytes_max) {
            Ok(root) => Some(read(&mut reader, root)),
            Err(problems) => {
                for (place, message) in problems {
                    reader.problem_at(place, message);
                }
                None
            }
        };
        let [problems, warnings] = [reader.problems, reader.warnings].map(in_order);
        Outcome {
            value: read.filter(|_| problems.is_empty()),
            problems,
            warnings,
        }
    }

    fn at(&self, place: Place, message: String) -> Problem {
        Problem {
            file: self.file.clone(),
            line: place.line,
            column: place.column,
            message,
        }
    }

    pub(crate) fn problem(&mut self, node: &Node, message: String) {
        self.problem_at(node.place, message);
    }

    pub(crate) fn problem_at(&mut self, place: Place, message: String) {
        self.problems.push(self.at(place, message));
    }

    pub(crate) fn warn(&mut self, place: Place, message: String) {
        self.warnings.push(self.at(place, message));
    }

    fn mismatch<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        self.problem(node, format!("{} found; expected {expected}", node.found()));
        None
    }

    /// Reads the fields of a mapping; a field that `read` does not take is a problem.
    pub(crate) fn mapping<T>(
        &mut self,
        node: Node,
        read: impl FnOnce(&mut Self, &mut Mapping) -> T,
    ) -> Option<T> {
        let (value, unknown) = self.known_fields(node, read)?;
        self.problems.extend(unknown);
        Some(value)
    }

    /// As [`Reader::mapping`], but a field that `read` does not take is a warning.
    pub(crate) fn open_mapping<T>(
        &mut self,
        node: Node,
        read: impl FnOnce(&mut Self, &mut Mapping) -> T,
    ) -> Option<T> {
        let (value, unknown) = self.known_fields(node, read)?;
        self.warnings.extend(unknown);
        Some(value)
    }

    /// The value, and the fields that `read` does not take.
    fn known_fields<T>(
        &mut self,
        node: Node,
        read: impl FnOnce(&mut Self, &mut Mapping) -> T,
    ) -> Option<(T, Vec<Problem>)> {
        let Content::Mapping(entries) = node.content else {
            return self.mismatch(&node, "a mapping");
        };
        let mut mapping = Mapping {
            place: node.place,
            entries,
            known: Vec::new(),
        };
        let value = read(self, &mut mapping);
        let unknown = mapping.entries.iter().map(|(key, _)| {
            let meant = nearest(&key.text, mapping.known.iter().copied());
            let hint = meant.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
            let message = format!(
                "unknown key {}; expected one of {}{hint}",
                quoted(&key.text),
                mapping.known.join(", ")
            );
            self.at(key.place, message)
        });
        Some((value, unknown.collect()))
    }

    /// The field `key`, if it exists and `read` accepts it.
    pub(crate) fn field<T>(
        &mut self,
        mapping: &mut Mapping,
        key: &'static str,
        read: impl FnOnce(&mut Self, Node) -> Option<T>,
    ) -> Option<T> {
        mapping.take(key).and_then(|node| read(self, node))
    }

    /// As [`Reader::field`], but the absence of the field is a problem.
    pub(crate) fn required<T>(
        &mut self,
        mapping: &mut Mapping,
        key: &'static str,
        read: impl FnOnce(&mut Self, Node) -> Option<T>,
    ) -> Option<T> {
        let Some(node) = mapping.take(key) else {
            let message = format!("the required key {key:?} is missing");
            self.problems.push(self.at(mapping.place, message));
            return None;
        };
        read(self, node)
    }

    pub(crate) fn text(&mut self, node: Node) -> Option<String> {
        match node.content {
            Content::Text(text) => Some(text),
            Content::Bool(_) | Content::Integer(_) | Content::Large(_) | Content::Float(_) => {
                self.mismatch(&node, "text: put quotes around it")
            }
            _ => self.mismatch(&node, "text"),
        }
    }

    /// Text, or a plain value converted to text, as in environment variables.
    pub(crate) fn plain(&mut self, node: Node) -> Option<String> {
        match node.content {
            Content::Text(text) => Some(text),
            Content::Bool(value) => Some(value.to_string()),
            Content::Integer(_) | Content::Large(_) | Content::Float(_) => Some(node.literal),
            _ => self.mismatch(&node, "text or a number"),
        }
    }

    /// Text that `parse` accepts; its error becomes the problem.
    pub(crate) fn parsed<T, E: fmt::Display>(
        &mut self,
        node: Node,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let place = node.place;
        let text = self.text(node)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problems.push(self.at(place, error.to_string()));
                None
            }
        }
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(&mut self, node: Node, choices: &[(&str, T)]) -> Option<T> {
        self.parsed(node, |text| {
            let found = choices.iter().find(|(word, _)| *word == text);
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            let expected = || {
                format!(
                    "{} found; expected one of {}",
                    quoted(text),
                    words.join(", ")
                )
            };
            found.map(|&(_, value)| value).ok_or_else(expected)
        })
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "all readers of a field have one shape"
    )]
    pub(crate) fn boolean(&mut self, node: Node) -> Option<bool> {
        match node.content {
            Content::Bool(value) => Some(value),
            _ => self.mismatch(&node, "true or false"),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "all readers of a field have one shape"
    )]
    pub(crate) fn integer<T: TryFrom<i64>>(
        &mut self,
        node: Node,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        match node.content {
            Content::Integer(value) if range.contains(&value) => match T::try_from(value) {
                Ok(value) => Some(value),
                Err(_) => self.mismatch(&node, &expected()),
            },
            _ => self.mismatch(&node, &expected()),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "all readers of a field have one shape"
    )]
    pub(crate) fn number(&mut self, node: Node, range: RangeInclusive<f64>) -> Option<f64> {
        let value = match node.content {
            #[expect(clippy::cast_precision_loss, reason = "the ranges asked for are small")]
            Content::Integer(value) => Some(value as f64),
            Content::Float(value) => Some(value),
            _ => None,
        };
        value.filter(|value| range.contains(value)).or_else(|| {
            self.mismatch(
                &node,
                &format!("a number from {} to {}", range.start(), range.end()),
            )
        })
    }

    pub(crate) fn list<T>(
        &mut self,
        node: Node,
        mut read: impl FnMut(&mut Self, Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Content::List(items) = node.content else {
            return self.mismatch(&node, "a list");
        };
        Some(
            items
                .into_iter()
                .filter_map(|item| read(self, item))
                .collect(),
        )
    }

    /// A mapping with keys that the author chooses.
    pub(crate) fn table<T>(
        &mut self,
        node: Node,
        mut read: impl FnMut(&mut Self, Node) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let Content::Mapping(entries) = node.content else {
            return self.mismatch(&node, "a mapping");
        };
        let entries = entries.into_iter();
        Some(
            entries
                .filter_map(|(key, node)| Some((key.text, read(self, node)?)))
                .collect(),
        )
    }
}
