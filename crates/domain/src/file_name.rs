//! Names of the files that travel with a run: relative paths that cannot leave their directory.
//!
//! Names are checked once, here. A program that opens a file still opens it beneath a directory handle, because the
//! tree belongs to a capsule. A name cannot be part of a broker subject: `*` and `>` are ordinary file names.

mod unique;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::quoted;

pub use unique::unique_name;

/// Longest component of a name, in bytes. Source: `NAME_MAX` of Linux.
pub const COMPONENT_LENGTH_BYTES_MAX: usize = 255;

/// Longest name, in bytes: a quarter of Linux' `PATH_MAX`, so that AOD's own directories fit before it.
pub const NAME_LENGTH_BYTES_MAX: usize = 1_024;

/// Maximum components of a name: real outputs are not deeper, and walks stay bounded.
pub const NAME_DEPTH_MAX: usize = 16;

/// A relative path of normal components, in UTF-8 without control characters.
///
/// At most [`NAME_LENGTH_BYTES_MAX`] bytes, [`NAME_DEPTH_MAX`] components, and [`COMPONENT_LENGTH_BYTES_MAX`] bytes a
/// component. A backslash is an ordinary character, as on Linux.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileName(String);

/// Why a text is not a [`FileName`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    #[error("a file name is empty; expected a relative path such as \"report.pdf\"")]
    Empty,
    #[error("file name {name} is not UTF-8; expected UTF-8")]
    NotUtf8 { name: String },
    #[error("file name {name} has {length} bytes; expected at most {NAME_LENGTH_BYTES_MAX}")]
    TooLong { name: String, length: usize },
    #[error("file name {name} is absolute; expected a path relative to the directory of the files")]
    Absolute { name: String },
    #[error("file name {name} has {depth} components; expected at most {NAME_DEPTH_MAX}")]
    TooDeep { name: String, depth: usize },
    #[error("file name {name} has an empty component; expected neither // nor a / at the end")]
    EmptyComponent { name: String },
    #[error("file name {name} has the component {component:?}; expected neither \".\" nor \"..\"")]
    NotNormal { name: String, component: String },
    #[error(
        "file name {name} has a component of {length} bytes; \
         expected at most {COMPONENT_LENGTH_BYTES_MAX}"
    )]
    ComponentTooLong { name: String, length: usize },
    #[error("file name {name} contains the control character {character:?}; expected none")]
    ControlCharacter { name: String, character: char },
}

impl FileName {
    /// Checks `name`; [`Directory::relative`] must have removed `./` and `/io/…` before.
    pub fn parse(name: &str) -> Result<Self, Rejection> {
        if name.is_empty() {
            return Err(Rejection::Empty);
        }
        if name.len() > NAME_LENGTH_BYTES_MAX {
            return Err(Rejection::TooLong {
                name: quoted(name),
                length: name.len(),
            });
        }
        if let Some(character) = name.chars().find(|character| character.is_control()) {
            return Err(Rejection::ControlCharacter {
                name: quoted(name),
                character,
            });
        }
        if name.starts_with('/') {
            return Err(Rejection::Absolute { name: quoted(name) });
        }
        let depth = name.split('/').count();
        if depth > NAME_DEPTH_MAX {
            return Err(Rejection::TooDeep {
                name: quoted(name),
                depth,
            });
        }
        name.split('/')
            .try_for_each(|component| check_component(name, component))?;
        Ok(Self(name.to_owned()))
    }

    /// As [`FileName::parse`], for a name that comes from a file system.
    pub fn from_bytes(name: &[u8]) -> Result<Self, Rejection> {
        let text = str::from_utf8(name).map_err(|_| Rejection::NotUtf8 {
            name: quoted(&String::from_utf8_lossy(name)),
        })?;
        Self::parse(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the slashes; at least one, and none is empty, `.` or `..`.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }
}

fn check_component(name: &str, component: &str) -> Result<(), Rejection> {
    match component {
        "" => Err(Rejection::EmptyComponent { name: quoted(name) }),
        "." | ".." => Err(Rejection::NotNormal {
            name: quoted(name),
            component: component.to_owned(),
        }),
        _ if component.len() > COMPONENT_LENGTH_BYTES_MAX => Err(Rejection::ComponentTooLong {
            name: quoted(name),
            length: component.len(),
        }),
        _ => Ok(()),
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl FromStr for FileName {
    type Err = Rejection;

    fn from_str(name: &str) -> Result<Self, Rejection> {
        Self::parse(name)
    }
}

impl TryFrom<String> for FileName {
    type Error = Rejection;

    fn try_from(name: String) -> Result<Self, Rejection> {
        Self::parse(&name)
    }
}

impl From<FileName> for String {
    fn from(name: FileName) -> Self {
        name.0
    }
}

impl AsRef<str> for FileName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for FileName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The directories of a container that have named files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Directory {
    /// The input files of a run.
    Input,
    /// The output files of a run.
    Output,
    /// The files that a caller hands to its callees.
    Outgoing,
    /// The files that a caller receives from its callees.
    Incoming,
}

impl Directory {
    /// The path of the directory in a container, without a slash at the end.
    pub fn path(self) -> &'static str {
        match self {
            Self::Input => "/io/input",
            Self::Output => "/io/output",
            Self::Outgoing => "/io/handoff/outgoing",
            Self::Incoming => "/io/handoff/incoming",
        }
    }

    /// `text` without the path of this directory and without `./` at its beginning.
    ///
    /// The path of another directory stays, so that the name is rejected as absolute.
    pub fn relative(self, text: &str) -> &str {
        let name = text
            .strip_prefix(self.path())
            .and_then(|rest| rest.strip_prefix('/'))
            .unwrap_or(text);
        name.strip_prefix("./").unwrap_or(name)
    }
}
