//! The name of a capsule, and how a caller's word for it is understood.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::nearest;
use crate::contract::quoted;

/// Longest name, in bytes: a label of DNS, so that it fits images, hosts and tools alike.
const NAME_LENGTH_BYTES_MAX: usize = 63;

/// `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`: also the name of the image and of the tool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapsuleName(String);

/// A text that is not a [`CapsuleName`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text} is no capsule name; expected 1 to {NAME_LENGTH_BYTES_MAX} of a-z, 0-9 and -, \
     without a - at either end"
)]
pub struct MalformedName {
    text: String,
}

impl CapsuleName {
    pub fn parse(text: &str) -> Result<Self, MalformedName> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_proper = text.len() <= NAME_LENGTH_BYTES_MAX
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

/// The name that a title stands for: `Capsule B` is `capsule-b`.
///
/// A name stands for itself. Of other texts letters become lower case, everything else one `-`, and
/// what is too long is cut; none when no letter or digit of ASCII is left.
pub fn slug(title: &str) -> Option<CapsuleName> {
    if let Ok(name) = CapsuleName::parse(title) {
        return Some(name);
    }
    let lower = title.to_ascii_lowercase();
    let words = lower.split(|character: char| !character.is_ascii_alphanumeric());
    let mut name = words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    name.truncate(NAME_LENGTH_BYTES_MAX);
    CapsuleName::parse(name.trim_end_matches('-')).ok()
}

/// A capsule that a target may mean.
#[derive(Clone, Copy, Debug)]
pub struct Registered<'a> {
    pub name: &'a CapsuleName,
    pub title: Option<&'a str>,
    pub aliases: &'a [String],
}

/// Why a target means no one capsule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("no capsule is called {target}{hint}")]
    Unknown { target: String, hint: String },
    #[error("{target} is the title or an alias of several capsules ({names}); expected one")]
    Ambiguous { target: String, names: String },
}

/// The capsule that `target` means: the one with exactly that title or alias, else the one whose
/// name is the [`slug`] of it.
///
/// # Errors
/// [`ResolveError::Ambiguous`] when a title or alias belongs to several; registration refuses those.
pub fn resolve<'a>(
    target: &str,
    registered: impl IntoIterator<Item = Registered<'a>>,
) -> Result<&'a CapsuleName, ResolveError> {
    let registered: Vec<_> = registered.into_iter().collect();
    let is_called_so = |capsule: &&Registered<'_>| {
        capsule.title == Some(target) || capsule.aliases.iter().any(|alias| alias == target)
    };
    let mut exact: Vec<_> = registered
        .iter()
        .filter(is_called_so)
        .map(|capsule| capsule.name)
        .collect();
    exact.sort_unstable();
    exact.dedup();
    match exact[..] {
        [name] => Ok(name),
        [] => {
            let meant = slug(target);
            let mut names = registered.iter().map(|capsule| capsule.name);
            names
                .find(|&name| Some(name) == meant.as_ref())
                .ok_or_else(|| unknown(target, &registered))
        }
        _ => Err(ResolveError::Ambiguous {
            target: quoted(target),
            names: exact
                .iter()
                .map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

fn unknown(target: &str, registered: &[Registered<'_>]) -> ResolveError {
    let known = registered.iter().flat_map(|capsule| {
        let aliases = capsule.aliases.iter().map(String::as_str);
        capsule
            .title
            .into_iter()
            .chain(aliases)
            .chain([capsule.name.as_str()])
    });
    let hint = nearest(target, known)
        .map_or_else(String::new, |name| format!("; is {} meant?", quoted(name)));
    ResolveError::Unknown {
        target: quoted(target),
        hint,
    }
}
