//! YAML as a tree with line and column of each node.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use crate::json::literal_problem;
use crate::text::{QUOTED_LENGTH_MAX, quoted, shortened};

/// Maximum nodes and replayed aliases of a file: aliases multiply the nodes of a file.
const NODES_MAX: usize = 50_000;

/// A value and its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    /// The bytes of its text; of an alias, of the text that it stands for.
    written: Range<usize>,
    /// A number as it is written; empty for all other values.
    pub(crate) literal: String,
    pub(crate) content: Content,
}

/// The place of a value; of a list its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// A problem and its place.
pub(crate) type ProblemAt = (Place, String);

#[derive(Debug)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Integer(i64),
    /// Larger than any [`Content::Integer`].
    Large(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) text: String,
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
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.content, Content::List(_))
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }

    pub(crate) fn into_json(self) -> Value {
        match self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => value.into(),
            Content::Integer(value) => value.into(),
            Content::Large(value) => value.into(),
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

    /// Sets all literals; adds the numbers that 64 bits cannot hold to `problems`.
    fn read_literals(&mut self, yaml: &str, problems: &mut Vec<ProblemAt>) {
        match &mut self.content {
            Content::Integer(_) | Content::Large(_) | Content::Float(_) => {
                let written = yaml.get(self.written.clone()).unwrap_or_default();
                written.clone_into(&mut self.literal);
            }
            Content::List(items) => items
                .iter_mut()
                .for_each(|node| node.read_literals(yaml, problems)),
            Content::Mapping(entries) => entries
                .iter_mut()
                .for_each(|(_, node)| node.read_literals(yaml, problems)),
            Content::Null | Content::Bool(_) | Content::Text(_) => (),
        }
        let problem = self.number_problem();
        problems.extend(problem.map(|message| (self.place, message)));
    }

    /// Why a number does not keep its value; none for all other values.
    fn number_problem(&self) -> Option<String> {
        let value = match self.content {
            Content::Integer(_) | Content::Large(_) => None,
            Content::Float(value) => Some(value),
            _ => return None,
        };
        let literal = self.literal.strip_prefix('+').unwrap_or(&self.literal);
        let shown = || shortened(literal, QUOTED_LENGTH_MAX);
        if !literal.starts_with(|first: char| first.is_ascii_digit() || "-.".contains(first)) {
            let message =
                "given with the tag of a number; expected a number without tag and quotes";
            return Some(format!("{} {message}", shown()));
        }
        if value?.is_finite() {
            let is_whole = !literal.contains(['.', 'e', 'E']);
            // The library reads whole numbers with zeros in front, and large ones, as 64-bit floating point numbers.
            literal_problem(literal)
                .or_else(|| is_whole.then(|| literal_problem(&format!("{literal}.0")))?)
        } else {
            Some(format!("{} given; expected a finite number", shown()))
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The value, for a message.
    pub(crate) fn found(&self) -> String {
        match &self.content {
            Content::Null => "nothing".to_owned(),
            Content::Bool(value) => value.to_string(),
            Content::Integer(_) | Content::Large(_) | Content::Float(_) => {
                shortened(&self.literal, QUOTED_LENGTH_MAX)
            }
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
            written: bytes(spanned.defined),
            literal: String::new(),
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

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(i64::try_from(value).map_or(Content::Large(value), Content::Integer))
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

fn bytes(place: Location) -> Range<usize> {
    let index = |found: Option<u64>| found.and_then(|found| usize::try_from(found).ok());
    let start = index(place.span().byte_offset()).unwrap_or_default();
    start..start + index(place.span().byte_len()).unwrap_or_default()
}

/// Parses `yaml`, one document of at most `size_bytes_max` bytes; none if it is empty.
///
/// # Errors
/// All numbers that 64 bits cannot hold, or else the first other problem.
pub(crate) fn parse(yaml: &[u8], size_bytes_max: usize) -> Result<Option<Node>, Vec<ProblemAt>> {
    let nowhere = |message: String| vec![(Place::default(), message)];
    let size = yaml.len();
    if size > size_bytes_max {
        return Err(nowhere(format!(
            "{size} bytes; expected at most {size_bytes_max}"
        )));
    }
    let text = str::from_utf8(yaml)
        .map_err(|error| nowhere(format!("not UTF-8: {error}; expected YAML in UTF-8")))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_documents: 1,
            max_total_scalar_bytes: 4 * size_bytes_max,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: NODES_MAX },
        strict_booleans: true,
        // Rejected together with all other numbers that do not keep their values.
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let root = serde_saphyr::from_str_with_options::<Option<Node>>(text, options);
    let mut root = root.map_err(|error| {
        let place = error.location().map(Place::from).unwrap_or_default();
        vec![(place, one_line(&error.to_string()))]
    })?;
    let mut problems = Vec::new();
    if let Some(root) = &mut root {
        root.read_literals(text, &mut problems);
    }
    if problems.is_empty() {
        Ok(root.filter(|root| !root.is_null()))
    } else {
        Err(problems)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
