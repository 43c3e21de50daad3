//! YAML that people write: each problem has its line and column, and all problems of a file are reported together.

mod node;
mod reader;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::node::{Content, Node, Place};
pub use self::reader::Outcome;
pub(crate) use self::reader::{Mapping, Reader};

/// One mistake in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The name of the file, as its reader was told.
    pub file: String,
    /// From 1; 0 if the place is unknown.
    pub line: u64,
    /// In characters, from 1; 0 if the place is unknown.
    pub column: u64,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        match line {
            0 => write!(formatter, "{file}: {message}"),
            _ => write!(formatter, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// The value of a YAML file of a capsule's author, whose numbers must keep their values; null if the file is empty.
/// `file` names it in problems.
///
/// # Errors
/// All numbers that 64 bits cannot hold, or else the first other problem.
pub fn read(file: &str, yaml: &[u8], size_bytes_max: usize) -> Result<Value, Vec<Problem>> {
    Reader::read(file, yaml, size_bytes_max, |_, root| {
        root.map_or(Value::Null, Node::into_json)
    })
}
