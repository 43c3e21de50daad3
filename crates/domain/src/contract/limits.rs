//! Maximum size and depth of a payload.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::problem::{PROBLEMS_MAX, Problem, ProblemCode, pointer_join};

/// Largest input, in bytes of compact JSON: clients of agent-on-demand send whole documents as texts. Anything larger is
/// a file.
pub const PAYLOAD_SIZE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest input without the contents of its texts: it bounds the number of values, and so the cost of a check.
pub const STRUCTURE_SIZE_BYTES_MAX: usize = 256 * 1024;

/// Largest output: the callers of a run keep all their answers in memory.
pub const OUTPUT_SIZE_BYTES_MAX: usize = 256 * 1024;

/// Largest text of binary data, in bytes of UTF-8.
pub const BINARY_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Maximum nesting of objects and arrays: half of what `serde_json` reads (128), far more than real payloads have.
pub const NESTING_DEPTH_MAX: usize = 64;

/// All limits that `payload` breaks; `size_bytes_max` is the largest size of its side.
pub(crate) fn check(payload: &Value, size_bytes_max: usize) -> Result<(), Vec<Problem>> {
    if let Some(problem) = too_deep(payload, "") {
        return Err(vec![problem]);
    }
    let mut problems = Vec::new();
    let mut structure = serialized_size_bytes(payload);
    let sizes = [(structure, size_bytes_max, "")];
    each_string(payload, &mut |pointer, text| {
        // The quotes are not content.
        structure -= serialized_size_bytes(text) - 2;
        if text.len() > BINARY_TEXT_BYTES_MAX && problems.len() < PROBLEMS_MAX {
            problems.extend(binary(pointer, text));
        }
    });
    let beside = (
        structure,
        STRUCTURE_SIZE_BYTES_MAX,
        " beside the contents of texts",
    );
    let mut sizes = sizes.into_iter().chain([beside]);
    if problems.is_empty()
        && let Some((size, expected, beside)) = sizes.find(|(size, max, _)| size > max)
    {
        let message = format!(
            "{size} bytes of JSON{beside}; expected at most {expected}: \
             put large data into files, and pass the names of the files"
        );
        problems.push(Problem::new("", ProblemCode::TooLarge, message));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// The first place with more than [`NESTING_DEPTH_MAX`] containers around it, itself included.
pub(crate) fn too_deep(value: &Value, pointer: &str) -> Option<Problem> {
    find_too_deep(value, pointer, NESTING_DEPTH_MAX).map(|pointer| {
        let message = format!("nested too deep; expected at most {NESTING_DEPTH_MAX} levels");
        Problem::new(pointer, ProblemCode::TooDeep, message)
    })
}

fn find_too_deep(value: &Value, pointer: &str, levels: usize) -> Option<String> {
    let below = |part: &dyn std::fmt::Display, child: &Value| {
        let is_container = child.is_object() || child.is_array();
        match levels.checked_sub(1) {
            _ if !is_container => None,
            None | Some(0) => Some(pointer_join(pointer, part)),
            Some(levels) => find_too_deep(child, &pointer_join(pointer, part), levels),
        }
    };
    match value {
        Value::Object(members) => members.iter().find_map(|(key, child)| below(key, child)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, child)| below(&i, child)),
        _ => None,
    }
}

/// Calls `found` with the pointer and the text of every string in `value`, keys not included.
///
/// Recurses: `value` must have passed [`too_deep`].
pub(crate) fn each_string(value: &Value, found: &mut dyn FnMut(&str, &str)) {
    fn visit(value: &Value, pointer: &mut String, found: &mut dyn FnMut(&str, &str)) {
        match value {
            Value::String(text) => found(pointer, text),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    below(item, &index.to_string(), pointer, found);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    below(member, key, pointer, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
    fn below(child: &Value, part: &str, pointer: &mut String, found: &mut dyn FnMut(&str, &str)) {
        let length = pointer.len();
        *pointer = pointer_join(pointer, part);
        visit(child, pointer, found);
        pointer.truncate(length);
    }
    visit(value, &mut String::new(), found);
}

/// The problem of a long text that is binary data.
fn binary(pointer: &str, text: &str) -> Option<Problem> {
    let found = if text.starts_with("data:") {
        "a data: URL"
    } else if is_base64(text) {
        "text in base64"
    } else {
        return None;
    };
    let message = format!(
        "{found} of {} bytes; put binary data into a file, and pass the name of the file",
        text.len()
    );
    Some(Problem::new(pointer, ProblemCode::TooLarge, message))
}

/// Both alphabets, with or without padding and line ends; `text` is long, so a match is no coincidence.
fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte))
}

/// The size of `value` as compact JSON.
pub(crate) fn serialized_size_bytes(value: &(impl Serialize + ?Sized)) -> usize {
    struct Counter(usize);

    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("counting cannot fail");
    counter.0
}
