//! The refusals of gateways.

use aod_api::problem::Problem;
use serde_json::Value;

/// Lines of an error's detail that are shown.
const DETAIL_LINES_MAX: usize = 40;

/// What was refused and why.
pub(crate) fn headline(problem: &Problem) -> String {
    format!("{} ({})", problem.detail, problem.code)
}

/// All that is wrong, a line each with its place.
pub(crate) fn details(problem: &Problem) -> Vec<String> {
    let line = |item: &aod_api::problem::ProblemItem| match item.pointer.as_str() {
        "" => item.message.clone(),
        pointer => format!("{pointer}: {}", item.message),
    };
    problem.errors.iter().map(line).collect()
}

/// What an error says besides its message: each member a line, texts as they are.
pub(crate) fn detail_lines(detail: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    match detail {
        Value::Object(members) => {
            for (name, value) in members {
                push(&mut lines, name, value);
            }
        }
        value => push(&mut lines, "detail", value),
    }
    lines.truncate(DETAIL_LINES_MAX);
    lines
}

fn push(lines: &mut Vec<String>, name: &str, value: &Value) {
    match value {
        // Nothing to say.
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
