//! Output lines of capsules, for people: time, level and text.

use std::fmt::Write as _;

use aod_api::events::{LogLineView, LogOutput};
use aod_domain::id::RunId;
use aod_domain::json;
use serde_json::{Map, Value};

/// Number of characters of a short id: enough to distinguish the runs of one tree.
const SHORT_ID_LENGTH: usize = 6;

/// `12:00:01.200Z  info     read  rows=344`. A line that is no JSON log line, or has numbers that would change, is shown
/// as it is, with its output as its level. The line of a task has the name of its step before the text.
pub(crate) fn line(line: &LogLineView) -> String {
    let logged = json::read(line.text.as_bytes()).ok().and_then(logged);
    let (level, text) = logged.unwrap_or_else(|| {
        let output = match line.output {
            LogOutput::Stdout => "stdout",
            LogOutput::Stderr => "stderr",
        };
        (output.to_owned(), line.text.clone())
    });
    let time = line.at.strftime("%H:%M:%S%.3fZ");
    let step = line.step.as_ref().map(|step| format!("{step}  "));
    let step = step.unwrap_or_default();
    format!("{time}  {level:<7}  {step}{text}")
        .trim_end()
        .to_owned()
}

/// Level and text of a log line as JSON loggers write it; none for other objects.
fn logged(mut line: Map<String, Value>) -> Option<(String, String)> {
    let mut take = |names: [&str; 2]| match names.iter().find_map(|name| line.remove(*name))? {
        Value::String(text) => Some(text),
        _ => None,
    };
    let level = take(["level", "severity"])?.to_lowercase();
    let mut text = take(["message", "msg"])?;
    if let Some(Value::Object(fields)) = line.get("fields") {
        for (name, value) in fields {
            let _ = match value {
                Value::String(value) => write!(text, "  {name}={value}"),
                value => write!(text, "  {name}={value}"),
            };
        }
    }
    Some((level, text))
}

/// The last characters of an id.
pub(crate) fn short_id(run: RunId) -> String {
    let id = run.to_string();
    id[id.len() - SHORT_ID_LENGTH..].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(text: &str) -> String {
        let view = json!({"attempt": 1, "number": 1, "at": "2026-03-01T12:00:01.2Z", "output": "stderr", "text": text});
        line(&serde_json::from_value(view).expect("a line"))
    }

    #[test]
    fn json_log_line_is_shown_with_level_and_fields() {
        let text = r#"{"time": "2026-03-01T12:00:01Z", "level": "info", "message": "read", "run_id": "run_1", "fields": {"rows": 344, "table": "a.csv"}}"#;
        assert_eq!(
            shown(text),
            "12:00:01.200Z  info     read  rows=344  table=a.csv"
        );
        assert_eq!(
            shown(r#"{"level": "WARNING", "msg": "slow"}"#),
            "12:00:01.200Z  warning  slow"
        );
    }

    #[test]
    fn log_line_keeps_the_digits_of_its_numbers() {
        let text = r#"{"level": "info", "msg": "read", "fields": {"id": 18446744073709551616}}"#;
        assert_eq!(shown(text), format!("12:00:01.200Z  stderr   {text}"));
    }

    #[test]
    fn other_line_is_shown_with_its_output() {
        assert_eq!(shown("reading"), "12:00:01.200Z  stderr   reading");
        assert_eq!(
            shown(r#"{"rows": 1}"#),
            "12:00:01.200Z  stderr   {\"rows\": 1}"
        );
        assert_eq!(shown(""), "12:00:01.200Z  stderr");
    }
}
