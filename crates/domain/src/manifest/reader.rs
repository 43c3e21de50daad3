//! Reads YAML into a tree with line and column of each node, and extracts typed fields.
//!
//! Derived deserialization would stop at the first mistake; this reader reports all mistakes of a file together.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::{MANIFEST_SIZE_BYTES_MAX, ManifestProblem};
use crate::text::{nearest, quoted};

/// Maximum nodes and replayed aliases of a file: aliases multiply the nodes of a file.
const NODES_MAX: usize = 50_000;

/// Maximum problems of one answer.
const PROBLEMS_MAX: usize = 50;

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    place: Place,
    content: Content,
}

/// The place of a value; of a list its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    line: u64,
    column: u64,
}

#[derive(Debug)]
enum Content {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug)]
struct Key {
    place: Place,
    text: String,
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

impl Node {
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.content, Content::List(_))
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }

    pub(super) fn into_json(self) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => value.into(),
            Content::Integer(value) => value.into(),
            Content::Float(value) => value.into(),
            Content::Text(text) => text.into(),
            Content::List(items) => items.into_iter().map(Self::into_json).collect(),
            Content::Mapping(entries) => entries
                .into_iter()
                .map(|(key, node)| (key.text, node.into_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The value, for a message.
    fn found(&self) -> String {
        match &self.content {
            Content::Null => "nothing".to_owned(),
            Content::Bool(value) => value.to_string(),
            Content::Integer(value) => value.to_string(),
            Content::Float(value) => value.to_string(),
            Content::Text(text) => quoted(text),
            Content::List(_) => "a list".to_owned(),
            Content::Mapping(_) => "a mapping".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self {
            place: spanned.referenced.into(),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Integer(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Content, E> {
        i64::try_from(value)
            .map(Content::Integer)
            .map_err(|_| E::custom("a number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut mapping = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let key = Key {
                place: key.referenced.into(),
                text: key.value,
            };
            mapping.push((key, entries.next_value()?));
        }
        Ok(Content::Mapping(mapping))
    }
}

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
        read: impl FnOnce(&mut Self, Option<Node>) -> T,
    ) -> Result<T, Vec<ManifestProblem>> {
        let mut reader = Self {
            file,
            problems: Vec::new(),
        };
        match reader.parse(yaml) {
            Ok(root) => {
                let manifest = read(&mut reader, root);
                reader
                    .problems
                    .sort_by_key(|problem| (problem.line, problem.column));
                reader.problems.truncate(PROBLEMS_MAX);
                if reader.problems.is_empty() {
                    Ok(manifest)
                } else {
                    Err(reader.problems)
                }
            }
            Err(problem) => Err(vec![problem]),
        }
    }

    fn parse(&self, yaml: &[u8]) -> Result<Option<Node>, ManifestProblem> {
        let nowhere = |message: String| self.at(Place::default(), message);
        if yaml.len() > MANIFEST_SIZE_BYTES_MAX {
            let size = yaml.len();
            let message = format!("{size} bytes; expected at most {MANIFEST_SIZE_BYTES_MAX}");
            return Err(nowhere(message));
        }
        let text = str::from_utf8(yaml)
            .map_err(|error| nowhere(format!("not UTF-8: {error}; expected YAML in UTF-8")))?;
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_nodes: NODES_MAX, max_documents: 1 },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: NODES_MAX },
            strict_booleans: true,
            with_snippet: false,
        };
        match serde_saphyr::from_str_with_options::<Option<Node>>(text, options) {
            Ok(root) => Ok(root.filter(|root| !root.is_null())),
            Err(error) => {
                let place = error.location().map(Place::from).unwrap_or_default();
                Err(self.at(place, one_line(&error.to_string())))
            }
        }
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
            Content::Bool(_) | Content::Integer(_) | Content::Float(_) => {
                self.mismatch(&node, "text: put quotes around it")
            }
            _ => self.mismatch(&node, "text"),
        }
    }

    /// Text, or a plain value converted to text, as in environment variables.
    pub(super) fn plain(&mut self, node: Node) -> Option<String> {
        match node.content {
            Content::Text(text) => Some(text),
            Content::Bool(_) | Content::Integer(_) | Content::Float(_) => Some(node.found()),
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

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
