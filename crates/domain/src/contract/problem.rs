//! What is wrong with a schema or a payload, told so that its author can mend it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most characters of a value that a message shows: a line, never a file.
pub const QUOTED_LENGTH_MAX: usize = 120;

/// Most characters of a message: a schema's own texts (`enum`, `pattern`) may be long.
const MESSAGE_LENGTH_MAX: usize = 1_000;

/// Most characters of a key that [`pointer_part`] shows.
const POINTER_PART_LENGTH_MAX: usize = 80;

/// Most problems of one answer: whoever has more mends these first.
pub const PROBLEMS_MAX: usize = 50;

/// One thing that does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// JSON pointer (RFC 6901) into the payload, or into `schema.json`; empty for the whole.
    pub pointer: String,
    pub code: ProblemCode,
    /// What was found and what was expected, without the place.
    pub message: String,
}

/// The kind of a [`Problem`]; a word that programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The schema file is no JSON object with `input` and `output`.
    SchemaMalformed,
    /// A schema breaks the rules of its draft.
    SchemaInvalid,
    /// A `$ref` or the like that leads out of its schema, or that we do not follow.
    SchemaReference,
    /// Checking the payload against the schema would take more than we allow.
    TooComplex,
    /// The payload is not a JSON object.
    NotAnObject,
    /// More nesting than we take.
    TooDeep,
    /// More bytes than we take.
    TooLarge,
    /// The value does not fit the schema.
    DoesNotFit,
    /// A declared file reference is not a file name.
    FileName,
    /// A declared file reference names nothing that exists.
    FileMissing,
    /// A declared file reference names a directory where a file is expected, or the reverse.
    FileKind,
    /// A file has to be renamed, but the schema does not say that this text is its name.
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
            "the whole"
        } else {
            &self.pointer
        };
        write!(formatter, "{place}: {}", self.message)
    }
}

/// `text` in quotes, control characters escaped, at most [`QUOTED_LENGTH_MAX`] characters of it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text, QUOTED_LENGTH_MAX))
}

/// `value` as JSON, at most [`QUOTED_LENGTH_MAX`] characters of it.
pub(crate) fn quoted_value(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => quoted(text),
        value => shortened(&value.to_string(), QUOTED_LENGTH_MAX),
    }
}

fn shortened(text: &str, length_max: usize) -> String {
    match text.char_indices().nth(length_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A key as a part of a JSON pointer, for a place that a request should not have: what is longer than
/// a line is cut.
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
