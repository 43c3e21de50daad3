//! Names that people give to capsules and rules: tokens of subjects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{quoted, token_text};

/// Longest name, in bytes: a DNS label, so that a name fits images, hosts and tools alike.
pub(crate) const CAPSULE_NAME_BYTES_MAX: usize = 63;

/// `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`: also the name of the image and of the tool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapsuleName(String);

/// A text that is not a [`CapsuleName`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid capsule name {text}; expected 1 to {CAPSULE_NAME_BYTES_MAX} of a-z, 0-9 and -, \
     without a - at either end"
)]
pub struct MalformedName {
    text: String,
}

impl CapsuleName {
    pub fn parse(text: &str) -> Result<Self, MalformedName> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_proper = text.len() <= CAPSULE_NAME_BYTES_MAX
            && text.bytes().all(|byte| is_plain(byte) || byte == b'-')
            && text.bytes().next().is_some_and(is_plain)
            && text.bytes().next_back().is_some_and(is_plain);
        if is_proper {
            Ok(Self(text.to_owned()))
        } else {
            Err(MalformedName { text: quoted(text) })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CapsuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for CapsuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for CapsuleName {
    type Err = MalformedName;

    fn from_str(text: &str) -> Result<Self, MalformedName> {
        Self::parse(text)
    }
}

impl TryFrom<String> for CapsuleName {
    type Error = MalformedName;

    fn try_from(text: String) -> Result<Self, MalformedName> {
        Self::parse(&text)
    }
}

impl From<CapsuleName> for String {
    fn from(name: CapsuleName) -> Self {
        name.0
    }
}

impl AsRef<str> for CapsuleName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The name of a rule: 1 to 63 of `a-z`, `0-9` and `-`, a token of subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleName(String);

token_text!(
    RuleName,
    /// A text that cannot be a [`RuleName`].
    MalformedRuleName,
    "name"
);
