//! Parses YAML and extracts typed fields.
//!
//! Derived deserialization would stop at the first mistake; this reader reports all mistakes of a file together.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::ManifestProblem;
use super::node::{self, Content, Key, Node, Place};
use crate::text::{nearest, quoted};

/// Maximum problems of one answer.
const PROBLEMS_MAX: usize = 50;

/// A mapping whose fields are extracted one by one; fields left at the end are unknown.
pub(super) struct Mapping {
    place: Place,
    entries: Vec<(Key, Node)>,
    known: Vec<&'static str>,
}

impl Mapping {
    /// The value of `key`; none if `key` is absent or null.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let position = self
            .entries
            .iter()
            .position(|(found, _)| found.text == key)?;
        Some(self.entries.swap_remove(position).1).filter(|node| !node.is_null())
    }
}

/// Collects the problems of one file.
pub(super) struct Reader {
    file: &'static str,
    problems: Vec<ManifestProblem>,
}

impl Reader {
    /// Parses `yaml` and converts it with `read`; none stands for an empty document.
    pub(super) fn read<T>(
        file: &'static str,
        yaml: &[u8],
        size_bytes_max: usize,
        read: impl FnOnce(&mut Self, Option<Node>) -> T,
    ) -> Result<T, Vec<ManifestProblem>> {
        let mut reader = Self {
            file,
            problems: Vec::new(),
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
        let mut problems = reader.problems;
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.truncate(PROBLEMS_MAX);
        read.filter(|_| problems.is_empty()).ok_or(problems)
    }

    fn at(&self, place: Place, message: String) -> ManifestProblem {
        ManifestProblem {
            file: self.file.to_owned(),
            line: place.line,
            column: place.column,
            message,
        }
    }

    pub(super) fn problem(&mut self, node: &Node, message: String) {
        self.problem_at(node.place, message);
    }

    pub(super) fn problem_at(&mut self, place: Place, message: String) {
        self.problems.push(self.at(place, message));
    }

    fn mismatch<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        self.problem(node, format!("{} found; expected {expected}", node.found()));
        None
    }

    /// Reads the fields of a mapping; a field that `read` does not take is unknown.
    pub(super) fn mapping<T>(
        &mut self,
        node: Node,
        read: impl FnOnce(&mut Self, &mut Mapping) -> T,
    ) -> Option<T> {
        let Content::Mapping(entries) = node.content else {
            return self.mismatch(&node, "a mapping");
        };
        let mut mapping = Mapping {
            place: node.place,
            entries,
            known: Vec::new(),
        };
        let value = read(self, &mut mapping);
        for (key, _) in &mapping.entries {
            let meant = nearest(&key.text, mapping.known.iter().copied());
            let hint = meant.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
            let message = format!(
                "unknown key {}; expected one of {}{hint}",
                quoted(&key.text),
                mapping.known.join(", ")
            );
            self.problems.push(self.at(key.place, message));
        }
        Some(value)
    }

    /// The field `key`, if it exists and `read` accepts it.
    pub(super) fn field<T>(
        &mut self,
        mapping: &mut Mapping,
        key: &'static str,
        read: impl FnOnce(&mut Self, Node) -> Option<T>,
    ) -> Option<T> {
        mapping.take(key).and_then(|node| read(self, node))
    }

    /// As [`Reader::field`], but the absence of the field is a problem.
    pub(super) fn required<T>(
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

    pub(super) fn text(&mut self, node: Node) -> Option<String> {
        match node.content {
            Content::Text(text) => Some(text),
            Content::Bool(_) | Content::Integer(_) | Content::Large(_) | Content::Float(_) => {
                self.mismatch(&node, "text: put quotes around it")
            }
            _ => self.mismatch(&node, "text"),
        }
    }

    /// Text, or a plain value converted to text, as in environment variables.
    pub(super) fn plain(&mut self, node: Node) -> Option<String> {
        match node.content {
            Content::Text(text) => Some(text),
            Content::Bool(value) => Some(value.to_string()),
            Content::Integer(_) | Content::Large(_) | Content::Float(_) => Some(node.literal),
            _ => self.mismatch(&node, "text or a number"),
        }
    }

    /// Text that `parse` accepts; its error becomes the problem.
    pub(super) fn parsed<T, E: fmt::Display>(
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
    pub(super) fn choice<T: Copy>(&mut self, node: Node, choices: &[(&str, T)]) -> Option<T> {
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
    pub(super) fn boolean(&mut self, node: Node) -> Option<bool> {
        match node.content {
            Content::Bool(value) => Some(value),
            _ => self.mismatch(&node, "true or false"),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "all readers of a field have one shape"
    )]
    pub(super) fn integer<T: TryFrom<i64>>(
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
    pub(super) fn number(&mut self, node: Node, range: RangeInclusive<f64>) -> Option<f64> {
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

    pub(super) fn list<T>(
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
    pub(super) fn table<T>(
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
