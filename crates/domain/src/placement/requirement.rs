//! One requirement: the name of an attribute, and its condition. `zone=eu`, `gpu_memory>=24`, `ssd`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text;

/// Maximum bytes of a name, and of a value: every announcement of a node contains both.
const NAME_BYTES_MAX: usize = 63;
const VALUE_BYTES_MAX: usize = 63;

/// The name of an attribute, or of a kind of devices: 1 to 63 of `a-z`, `0-9`, `_` and `-`, a letter first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that is not a [`Name`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid name {0:?}; expected 1 to 63 of a-z, 0-9, _ and -, starting with a letter")]
pub struct MalformedName(String);

impl FromStr for Name {
    type Err = MalformedName;

    fn from_str(text: &str) -> Result<Self, MalformedName> {
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        };
        let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
        if begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(MalformedName(text.chars().take(80).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

/// A condition on an attribute. Stored and shown as the text that it is parsed from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    name: Name,
    test: Option<(Operator, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// As written; if one is a prefix of another, the longer one comes first.
const OPERATORS: [(&str, Operator); 6] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// Why a text is not a requirement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MalformedRequirement {
    #[error(transparent)]
    Name(#[from] MalformedName),
    #[error("invalid value {0:?}; expected 1 to 63 printable characters without spaces")]
    Value(String),
    #[error("{0:?} is not a number; the operators < <= > >= compare only numbers")]
    Number(String),
}

/// Checks that `text` can be the value of an attribute.
pub(super) fn check_value(text: &str) -> Result<(), MalformedRequirement> {
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    if (1..=VALUE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(());
    }
    let shown = text.chars().take(80).collect();
    Err(MalformedRequirement::Value(shown))
}

/// `text` as a number, if possible.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

impl Requirement {
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Whether a node with the value `found` for this attribute meets the requirement. Two numbers are compared as
    /// numbers, everything else as text; a missing attribute differs from every value, and is neither less nor greater.
    pub fn is_met(&self, found: Option<&str>) -> bool {
        let Some((operator, wanted)) = &self.test else {
            return found.is_some();
        };
        let Some(found) = found else {
            return *operator == Operator::NotEqual;
        };
        let numbers = number(found).zip(number(wanted));
        let order = numbers.and_then(|(found, wanted)| found.partial_cmp(&wanted));
        let is_equal = order.map_or(found == wanted, Ordering::is_eq);
        match operator {
            Operator::Equal => is_equal,
            Operator::NotEqual => !is_equal,
            Operator::Less => order.is_some_and(Ordering::is_lt),
            Operator::AtMost => order.is_some_and(Ordering::is_le),
            Operator::Greater => order.is_some_and(Ordering::is_gt),
            Operator::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

impl FromStr for Requirement {
    type Err = MalformedRequirement;

    fn from_str(text: &str) -> Result<Self, MalformedRequirement> {
        let Some(at) = text.find(['!', '<', '>', '=']) else {
            let name = text.parse()?;
            return Ok(Self { name, test: None });
        };
        let (name, rest) = text.split_at(at);
        let mut operators = OPERATORS.iter();
        let found = operators.find_map(|(word, operator)| {
            let value = rest.strip_prefix(word)?;
            Some((*operator, value))
        });
        // A lone `!` is not part of a name.
        let (operator, value) =
            found.ok_or_else(|| MalformedName(text.chars().take(80).collect()))?;
        let name = name.parse()?;
        check_value(value)?;
        let is_order = !matches!(operator, Operator::Equal | Operator::NotEqual);
        if is_order && number(value).is_none() {
            return Err(MalformedRequirement::Number(value.to_owned()));
        }
        let test = Some((operator, value.to_owned()));
        Ok(Self { name, test })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((operator, value)) = &self.test else {
            return self.name.fmt(formatter);
        };
        let word = OPERATORS.iter().find(|(_, known)| known == operator);
        let word = word.map_or("", |(word, _)| word);
        write!(formatter, "{}{word}{value}", self.name)
    }
}

impl Serialize for Requirement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Requirement {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}
