//! The error of a failed run.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error_code::{CODE_LENGTH_MAX, ErrorCode, ErrorSource, is_wellformed};

/// Why a run failed, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// An [`ErrorCode`], or with `source` `capsule` a code of the capsule's own.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    pub retryable: bool,
    pub source: ErrorSource,
}

impl RunError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().into(),
            message: message.into(),
            detail: None,
            retryable: code.is_retryable(),
            source: code.source(),
        }
    }

    /// The capsule's own error in its output, `{"error": {code, message, …}}`.
    pub fn of_capsule(output: &Value) -> Option<Self> {
        let error = output.get("error")?.as_object()?;
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut message = text("message")?;
        let code = match text("code") {
            Some(code) if is_wellformed(&code) => code,
            invalid => {
                if let Some(code) = invalid {
                    let shown: String = code.chars().take(CODE_LENGTH_MAX).collect();
                    let _ = write!(
                        message,
                        " (invalid error code {shown:?}: expected a letter, then a-z, 0-9 and _, \
                         at most {CODE_LENGTH_MAX} characters)"
                    );
                }
                ErrorCode::CapsuleError.as_str().to_owned()
            }
        };
        Some(Self {
            code,
            message,
            detail: error
                .get("detail")
                .filter(|detail| !detail.is_null())
                .cloned(),
            retryable: error
                .get("retryable")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            source: ErrorSource::Capsule,
        })
    }

    /// The error, reduced to fit an event: texts are cut and end with `…`; of a large detail its size remains, and the
    /// last lines of output.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut(&mut self.code, ERROR_CODE_BYTES_MAX);
        cut(&mut self.message, ERROR_MESSAGE_BYTES_MAX);
        let size_bytes = |detail: &Value| detail.to_string().len();
        let is_too_large = |detail: &Value| size_bytes(detail) > ERROR_DETAIL_BYTES_MAX;
        if let Some(detail) = self.detail.take_if(|detail| is_too_large(detail)) {
            let mut reduced = json!({"omitted_bytes": size_bytes(&detail)});
            if let Some(lines) = detail
                .get("last_lines")
                .filter(|lines| !is_too_large(lines))
            {
                reduced["last_lines"] = lines.clone();
            }
            self.detail = Some(reduced);
        }
        self
    }

    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = Some(detail);
        self
    }
}

/// The message of an error with the last lines of output from its detail, for clients of agent-on-demand: they read
/// only a text.
pub fn error_text(message: &str, detail: Option<&Value>) -> String {
    let lines = detail.and_then(|detail| detail.get("last_lines")?.as_array());
    let lines = lines.into_iter().flatten().filter_map(Value::as_str);
    let lines: Vec<_> = std::iter::once(message).chain(lines).collect();
    lines.join("\n")
}

/// Maximum bytes of the parts of an error in an event, as JSON; together half of the maximum event.
const ERROR_CODE_BYTES_MAX: usize = 256;
const ERROR_MESSAGE_BYTES_MAX: usize = 4 * 1024;
const ERROR_DETAIL_BYTES_MAX: usize = 12 * 1024;

/// Shortens `text` until its JSON has at most `bytes_max` bytes.
pub(super) fn cut(text: &mut String, bytes_max: usize) {
    let json_bytes = |text: &str| Value::from(text).to_string().len();
    let mut length = text.chars().count();
    while json_bytes(text) > bytes_max {
        // First to `bytes_max` characters, then by half each time.
        length = (length / 2).min(bytes_max);
        *text = text.chars().take(length).chain(['…']).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_error_code_of_a_capsule_becomes_capsule_error_and_is_named_in_the_message() {
        let reported = |code: &str| {
            let output = json!({"error": {"code": code, "message": "the table has no rows"}});
            let error = RunError::of_capsule(&output).expect("an error");
            (error.code, error.message)
        };
        let message = "the table has no rows";
        for code in ["no_rows", "e2", &"x".repeat(64)] {
            assert_eq!(reported(code), (code.to_owned(), message.to_owned()));
        }
        for code in [
            "",
            "No rows",
            "2e",
            "_x",
            "a-b",
            "a\u{202e}b",
            "a\u{1b}]52;c;eA==\u{7}",
            &"x".repeat(65),
        ] {
            let (found, text) = reported(code);
            assert_eq!(found, "capsule_error", "{code:?}");
            assert!(
                text.starts_with(message) && text.contains("invalid error code"),
                "{text}"
            );
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        }
    }
}
