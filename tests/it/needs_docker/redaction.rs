//! Removes varying values from answers.

use serde_json::Value;

/// The placeholder.
const LEFT_OUT: &str = "…";

/// Characters of the id of a root: 128 bits in Crockford base32.
const ID_LENGTH: usize = 26;

/// Longer texts are input of the case; only their length is shown.
const TEXT_LENGTH_BYTES_MAX: usize = 1_000;

/// Fields that contain an id, a time, a position in the log, or depend on the length of a script; null stays null.
const FIELDS: [&str; 16] = [
    "deadline",
    "ended_at",
    "exited_at",
    "hash",
    "id",
    "image",
    "input_bytes",
    "leased_at",
    "node",
    "request_id",
    "requested_at",
    "run_id",
    "sequence",
    "session_id",
    "started_at",
    "waiting_milliseconds",
];

/// `answer` without varying values.
pub(crate) fn redacted(mut answer: Value) -> Value {
    redact(&mut answer);
    answer
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if FIELDS.contains(&name.as_str()) && !field.is_null() {
                    *field = LEFT_OUT.into();
                } else {
                    redact(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) if text.len() > TEXT_LENGTH_BYTES_MAX => {
            *text = format!("{} bytes of text", text.len());
        }
        Value::String(text) => *text = without_ids(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// `text` with `run_…` for each run id.
pub(crate) fn without_ids(text: &str) -> String {
    let mut pieces = text.split("run_");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_of_id = |character: char| character.is_ascii_alphanumeric() || character == '-';
        let rest = piece.trim_start_matches(is_of_id);
        let id = &piece[..piece.len() - rest.len()];
        let shown = if id.len() >= ID_LENGTH { LEFT_OUT } else { id };
        result.extend(["run_", shown, rest]);
    }
    result
}
