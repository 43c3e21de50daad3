//! `schema.json`: what a capsule takes and gives, and which texts in it name files.
//!
//! Here a payload is held against its schema, defaults are filled in, and file references are
//! found and, once the files have their final names, rewritten. Which files exist is asked of the
//! caller; copying them is the caller's work too.
//!
//! A reference is *declared* where the schema says `"format": "file_path"` (or one of the other
//! names in [`FILE_FORMATS`]) and *inferred* where any other text equals the name of an existing
//! file. Declared ones are strict and may be rewritten; inferred ones are neither.

mod canonical;
mod describe;
mod limits;
mod problem;
mod references;
mod schema;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::file_name::{Directory, FileName};

pub use canonical::canonical;
pub use limits::{NESTING_DEPTH_MAX, PAYLOAD_SIZE_BYTES_MAX, STRING_SIZE_BYTES_MAX};
pub use problem::{PROBLEMS_MAX, Problem, ProblemCode, QUOTED_LENGTH_MAX, pointer_part};
pub use references::{FILE_FORMATS, rewrite};
pub use schema::{PATTERNS_MAX, SCHEMA_SIZE_BYTES_MAX};
pub use walk::{STEPS_MAX, VALIDATION_DEPTH_MAX};

pub(crate) use problem::quoted;

use schema::Schema;
use walk::Defaults;

/// The compiled `schema.json` of a capsule; a clone shares it.
///
/// Each side is a schema of its own, of draft 2020-12 unless `$schema` (there, or at the top of
/// the file) names another. References stay inside their side: `#`, `#/…` or an `$anchor`;
/// `$dynamicRef`, nested `$id`s and anything remote are refused. Patterns are matched in linear
/// time, so look-around and back-references are refused. `format` asserts only what the draft says
/// (nothing in 2020-12), except for [`FILE_FORMATS`].
///
/// Checking a few values takes some 15 microseconds, 300 properties with 200 references less than
/// 2 milliseconds; what comes near the limits may take over a second, so large payloads are not for
/// the threads of an event loop.
#[derive(Clone)]
pub struct Contract(Arc<Sides>);

struct Sides {
    input: Schema,
    output: Schema,
}

/// A payload that fits its schema, defaults filled in, nothing rewritten yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    pub payload: Value,
    /// In the order of their pointers; one for each place.
    pub references: Vec<Reference>,
}

/// A text in a payload that names a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// JSON pointer (RFC 6901) of the text.
    pub pointer: String,
    /// The name, without `./` or `/io/…` before it.
    pub name: FileName,
    /// Whether the schema says so, or the text only equals the name of an existing file.
    pub declared: bool,
    pub kind: FileKind,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
}

/// Tells what exists under a name, which is always a proper [`FileName`].
///
/// Asked once for each text of a payload, so at most some ten thousand times.
pub type Exists<'a> = &'a dyn Fn(&str) -> Option<FileKind>;

impl Contract {
    /// Compiles `{"input": schema, "output": schema}`, at most [`SCHEMA_SIZE_BYTES_MAX`].
    ///
    /// # Errors
    /// What is wrong, all at once as far as the parts can be told apart; pointers lead into the file.
    pub fn parse(schema_json: &[u8]) -> Result<Self, Vec<Problem>> {
        schema::parse(schema_json).map(|(input, output)| Self(Arc::new(Sides { input, output })))
    }

    pub fn input_schema(&self) -> &Value {
        &self.0.input.document
    }

    pub fn output_schema(&self) -> &Value {
        &self.0.output.document
    }

    /// Checks what a capsule is to be called with; names are relative to `directory`
    /// ([`Directory::Outgoing`] for a handoff, [`Directory::Input`] otherwise).
    ///
    /// Defaults are those of `properties`, at any depth, through `$ref` and `allOf`, in `items` and
    /// in `additionalProperties`; the first one found wins. Inside `anyOf`, `oneOf`, `if` and the
    /// like none is applied, since which branch holds is only known afterwards.
    pub fn check_input(
        &self,
        payload: Value,
        directory: Directory,
        exists: Exists<'_>,
    ) -> Result<Checked, Vec<Problem>> {
        check(&self.0.input, payload, Defaults::Fill, directory, exists)
    }

    /// Checks what a capsule answered; names are relative to [`Directory::Output`].
    pub fn check_output(&self, output: Value, exists: Exists<'_>) -> Result<Checked, Vec<Problem>> {
        check(
            &self.0.output,
            output,
            Defaults::Leave,
            Directory::Output,
            exists,
        )
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Contract")
            .field("input", self.input_schema())
            .field("output", self.output_schema())
            .finish()
    }
}

/// Limits come first, so that everything after them is bounded; the walk comes before the
/// validation, whose time and stack it foresees.
fn check(
    schema: &Schema,
    mut payload: Value,
    defaults: Defaults,
    directory: Directory,
    exists: Exists<'_>,
) -> Result<Checked, Vec<Problem>> {
    if !payload.is_object() {
        let message = format!(
            "{} given; expected a JSON object",
            problem::quoted_value(&payload)
        );
        return Err(vec![Problem::new("", ProblemCode::NotAnObject, message)]);
    }
    limits::check(&payload)?;
    walk::walk(schema, &mut payload, defaults).map_err(|problem| vec![problem])?;
    limits::check(&payload)?;

    let evaluation = schema.validator.evaluate(&payload);
    if !evaluation.is_valid() {
        return Err(describe::misfits(schema, &payload));
    }
    let references = references::find(&payload, &evaluation, directory, exists)?;
    Ok(Checked {
        payload,
        references,
    })
}
