//! `schema.json`: the input and output of a capsule, and the texts in them that name files.
//!
//! Checks a payload against its schema, fills in defaults, finds file references, and rewrites them when the files have
//! their final names. The caller reports which files exist, and copies them.
//!
//! A reference is *declared* if the schema has `"format": "file_path"` (or another name in [`FILE_FORMATS`]), and
//! *inferred* if any other text equals the name of an existing file. Only declared references are strict and may be
//! rewritten.

mod canonical;
mod describe;
mod limits;
mod problem;
mod references;
mod schema;
mod typing;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::file_name::{Directory, FileName};

pub use crate::text::QUOTED_LENGTH_MAX;
pub use canonical::canonical;
pub use limits::{
    BINARY_TEXT_BYTES_MAX, NESTING_DEPTH_MAX, OUTPUT_SIZE_BYTES_MAX, PAYLOAD_SIZE_BYTES_MAX,
    STRUCTURE_SIZE_BYTES_MAX,
};
pub use problem::{PROBLEMS_MAX, Problem, ProblemCode, pointer_part};
pub use references::{FILE_FORMATS, host_paths, rewrite};
pub use schema::{PATTERNS_MAX, SCHEMA_SIZE_BYTES_MAX};
pub use typing::{Given, untyped};
pub use walk::{STEPS_MAX, VALIDATION_DEPTH_MAX};

use schema::Schema;
use walk::Defaults;

/// The compiled `schema.json` of a capsule; a clone shares it.
///
/// Each side is its own schema, of draft 2020-12 unless `$schema` (there, or at the top of the file) names another.
/// References stay inside their side: `#`, `#/…` or an `$anchor`; `$dynamicRef`, nested `$id`s and remote references
/// are rejected. Patterns match in linear time, so look-around and back-references are rejected. `format` only asserts
/// what the draft requires (nothing in 2020-12), except for [`FILE_FORMATS`].
///
/// Checking a few values takes some 15 microseconds, 300 properties with 200 references less than 2 milliseconds. A
/// payload near the limits may take over a second, so do not check large payloads on the threads of an event loop.
#[derive(Clone)]
pub struct Contract(Arc<Sides>);

struct Sides {
    input: Schema,
    output: Schema,
}

/// A payload that matches its schema, with defaults, before references are rewritten.
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
    /// The name, without a prefix `./` or `/io/…`.
    pub name: FileName,
    /// Whether the schema declares it, or the text only equals the name of an existing file.
    pub declared: bool,
    pub kind: FileKind,
}

/// The kind of an existing name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
}

/// Reports what exists under a name, which is always a valid [`FileName`].
///
/// Called once for each text of a payload, so at most some ten thousand times.
pub type Exists<'a> = &'a dyn Fn(&str) -> Option<FileKind>;

impl Contract {
    /// Compiles `{"input": schema, "output": schema}`, at most [`SCHEMA_SIZE_BYTES_MAX`].
    ///
    /// # Errors
    /// All mistakes, as far as the parts are readable; pointers refer to the file.
    pub fn parse(schema_json: &[u8]) -> Result<Self, Vec<Problem>> {
        schema::parse(schema_json).map(|(input, output)| Self(Arc::new(Sides { input, output })))
    }

    pub fn input_schema(&self) -> &Value {
        &self.0.input.document
    }

    pub fn output_schema(&self) -> &Value {
        &self.0.output.document
    }

    /// Checks the arguments of a call; names are relative to `directory` ([`Directory::Outgoing`] for a handoff,
    /// [`Directory::Input`] otherwise).
    ///
    /// Applies the defaults of `properties`, at any depth, through `$ref` and `allOf`, in `items` and in
    /// `additionalProperties`; the first default found wins. Inside `anyOf`, `oneOf`, `if` and the like no default
    /// applies, because the matching branch is only known afterwards.
    pub fn check_input(
        &self,
        payload: Value,
        directory: Directory,
        exists: Exists<'_>,
    ) -> Result<Checked, Vec<Problem>> {
        check(&self.0.input, payload, Defaults::Fill, directory, exists)
    }

    /// The value of the argument `key`, given as text next to `arguments`; several values form a list.
    ///
    /// Text stays text if the schema permits it. Otherwise JSON in the text becomes its value.
    ///
    /// # Errors
    /// Numbers that would change; pointers refer to the arguments.
    pub fn typed_input(
        &self,
        arguments: &Map<String, Value>,
        key: &str,
        given: &[Given],
    ) -> Result<Value, Vec<Problem>> {
        typing::typed(&self.0.input, arguments, key, given)
    }

    /// Checks the output of a capsule; names are relative to [`Directory::Output`].
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

/// Limits come first, so that all later steps are bounded; the walk comes before the validation and bounds its time and
/// stack.
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
            crate::text::quoted_value(&payload)
        );
        return Err(vec![Problem::new("", ProblemCode::NotAnObject, message)]);
    }
    let size_bytes_max = match directory {
        Directory::Output => OUTPUT_SIZE_BYTES_MAX,
        _ => PAYLOAD_SIZE_BYTES_MAX,
    };
    limits::check(&payload, size_bytes_max)?;
    walk::walk(schema, &mut payload, defaults).map_err(|problem| vec![problem])?;
    limits::check(&payload, size_bytes_max)?;

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
