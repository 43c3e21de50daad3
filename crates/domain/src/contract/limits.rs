//! How large and how deep a payload may be.

use std::io;

use serde_json::Value;

use super::problem::{PROBLEMS_MAX, Problem, ProblemCode, pointer_join};

/// Largest payload or output, in bytes of compact JSON: what a caller waits for and an event
/// stream can bear; anything larger is a file.
pub const PAYLOAD_SIZE_BYTES_MAX: usize = 256 * 1024;

/// Largest text in a payload, in bytes of UTF-8.
pub const STRING_SIZE_BYTES_MAX: usize = 64 * 1024;

/// Most objects and arrays inside one another: half of what `serde_json` reads (128), and far more
/// than anybody writes.
pub const NESTING_DEPTH_MAX: usize = 64;

/// All limits that `payload` breaks.
pub(crate) fn check(payload: &Value) -> Result<(), Vec<Problem>> {
    if let Some(problem) = too_deep(payload, "") {
        return Err(vec![problem]);
    }
    let mut problems = Vec::new();
    each_string(payload, &mut |pointer, text| {
        if text.len() > STRING_SIZE_BYTES_MAX && problems.len() < PROBLEMS_MAX {
            problems.push(long_string(pointer, text));
        }
    });
    let size = serialized_size_bytes(payload);
    if problems.is_empty() && size > PAYLOAD_SIZE_BYTES_MAX {
        let message = format!(
            "{size} bytes of JSON; expected at most {PAYLOAD_SIZE_BYTES_MAX}: \
             put large data into files and give their names"
        );
        problems.push(Problem::new("", ProblemCode::TooLarge, message));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// The first place with more than [`NESTING_DEPTH_MAX`] containers around and including it.
pub(crate) fn too_deep(value: &Value, pointer: &str) -> Option<Problem> {
    find_too_deep(value, pointer, NESTING_DEPTH_MAX).map(|pointer| {
        let message =
            format!("nested deeper than expected: at most {NESTING_DEPTH_MAX} levels are taken");
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

fn long_string(pointer: &str, text: &str) -> Problem {
    let found = if text.starts_with("data:") {
        "a data: URL"
    } else if is_base64(text) {
        "what looks like base64"
    } else {
        let message = format!(
            "a text of {} bytes; expected at most {STRING_SIZE_BYTES_MAX}: \
             put it into a file and give its name",
            text.len()
        );
        return Problem::new(pointer, ProblemCode::TooLarge, message);
    };
    let message = format!(
        "{found} of {} bytes; binary data belongs in a file: put it there and give its name",
        text.len()
    );
    Problem::new(pointer, ProblemCode::TooLarge, message)
}

/// Both alphabets, with or without padding and line ends; `text` is long, so no word by chance.
fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte))
}

/// The size of `value` as compact JSON.
pub(crate) fn serialized_size_bytes(value: &Value) -> usize {
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
