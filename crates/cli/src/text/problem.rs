//! Rejected requests and details of errors.

use aod_api::problem::Problem;
use serde_json::Value;

/// Maximum number of printed lines of an error's detail.
const DETAIL_LINES_MAX: usize = 40;

/// The message and the code of a problem.
pub(crate) fn headline(problem: &Problem) -> String {
    format!("{} ({})", problem.detail, problem.code)
}

/// All errors, one per line, each with its place.
pub(crate) fn details(problem: &Problem) -> Vec<String> {
    let line = |item: &aod_api::problem::ProblemItem| match item.pointer.as_str() {
        "" => item.message.clone(),
        pointer => format!("{pointer}: {}", item.message),
    };
    problem.errors.iter().map(line).collect()
}

/// The detail of an error: one line per member, texts without quotes. Leaves out what `message` says already.
pub(crate) fn detail_lines(detail: &Value, message: &str) -> Vec<String> {
    let mut lines = Vec::new();
    match detail {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !is_said(value, message));
            for (name, value) in members {
                push(&mut lines, name, value);
            }
        }
        value => push(&mut lines, "detail", value),
    }
    lines.truncate(DETAIL_LINES_MAX);
    lines
}

/// Whether the words of `message` contain the number or the text `value`.
fn is_said(value: &Value, message: &str) -> bool {
    let is_apart = |part: Option<char>| !part.is_some_and(char::is_alphanumeric);
    let text = match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return false,
    };
    message.match_indices(&text).any(|(start, found)| {
        let (before, after) = (&message[..start], &message[start + found.len()..]);
        is_apart(before.chars().next_back()) && is_apart(after.chars().next())
    })
}

fn push(lines: &mut Vec<String>, name: &str, value: &Value) {
    match value {
        Value::Null => (),
        Value::String(text) if text.is_empty() => (),
        Value::String(text) if !text.contains('\n') => lines.push(format!("{name}: {text}")),
        Value::String(text) => {
            lines.push(format!("{name}:"));
            lines.extend(text.lines().map(|line| format!("  {line}")));
        }
        Value::Array(items) if !items.is_empty() => {
            lines.push(format!("{name}:"));
            lines.extend(items.iter().map(|item| match item {
                Value::String(text) => format!("  {text}"),
                item => format!("  {item}"),
            }));
        }
        value => lines.push(format!("{name}: {value}")),
    }
}
