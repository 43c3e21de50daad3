//! Problems of a schema or a payload, described so that the author can fix them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::shortened;

/// Maximum characters of a message: a schema's own texts (`enum`, `pattern`) may be long.
const MESSAGE_LENGTH_MAX: usize = 1_000;

/// Maximum characters of a key that [`pointer_part`] shows.
const POINTER_PART_LENGTH_MAX: usize = 80;

/// Maximum problems of one answer.
pub const PROBLEMS_MAX: usize = 50;

/// One mistake, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// JSON pointer (RFC 6901) into the payload, or into `schema.json`; empty for the whole.
    pub pointer: String,
    pub code: ProblemCode,
    /// The found and the expected value, without the place.
    pub message: String,
}

/// The kind of a [`Problem`]; programs can rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The schema file is not a JSON object with `input` and `output`.
    SchemaMalformed,
    /// A schema breaks the rules of its draft.
    SchemaInvalid,
    /// A `$ref` or similar keyword leaves its schema, or is not supported.
    SchemaReference,
    /// Checking the payload against the schema would be too expensive.
    TooComplex,
    /// The payload is not a JSON object.
    NotAnObject,
    /// The nesting exceeds the limit.
    TooDeep,
    /// The size exceeds the limit.
    TooLarge,
    /// 64 bits cannot hold the number: it would change.
    NumberInexact,
    /// The value does not match the schema.
    DoesNotFit,
    /// A declared file reference is not a file name.
    FileName,
    /// A declared file reference names a file that does not exist.
    FileMissing,
    /// A declared file reference names a directory instead of a file, or the reverse.
    FileKind,
    /// A file must be renamed, but the schema does not declare that this text is its name.
    FileUndeclared,
}

impl Problem {
    pub(crate) fn new(
        pointer: impl Into<String>,
        code: ProblemCode,
        message: impl AsRef<str>,
    ) -> Self {
        let message = shortened(message.as_ref(), MESSAGE_LENGTH_MAX);
        Self {
            pointer: pointer.into(),
            code,
            message,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "top level"
        } else {
            &self.pointer
        };
        write!(formatter, "{place}: {}", self.message)
    }
}

/// A key as a part of a JSON pointer, for an unexpected place of a request; a key longer than a line is cut.
pub fn pointer_part(key: &str) -> String {
    let shown: String = key.chars().take(POINTER_PART_LENGTH_MAX).collect();
    escaped(&shown)
}

fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// `pointer` with one more part.
pub(crate) fn pointer_join(pointer: &str, part: impl fmt::Display) -> String {
    format!("{pointer}/{}", escaped(&part.to_string()))
}
