//! Replaces the values of a run's secrets in stored and published data.
//!
//! The node searches for each line of a value separately, so it finds a key of many lines in any layout. It ignores
//! lines shorter than [`REDACTED_BYTES_MIN`], which would match everywhere.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aod_domain::error_code::ErrorSource;
use aod_domain::run::RunError;
use aod_ports::secrets::SecretValue;
use serde_json::{Map, Value};

/// The replacement of a value.
const REDACTED: &str = "***";

/// Maximum length of an escaped byte of UTF-8 in JSON: `\u00e4`.
const ESCAPE_BYTES: usize = 6;

/// Minimum length of a redacted line of a value, in bytes.
pub const REDACTED_BYTES_MIN: usize = 6;

/// Replaces the values, once they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redaction(Arc<OnceLock<Needles>>);

impl Redaction {
    /// Replaces `values` from now on. Called once, before any data can contain them.
    pub(crate) fn begin<'a>(&self, values: impl IntoIterator<Item = &'a SecretValue>) {
        let needles = Needles::of(values);
        if !needles.lines.is_empty() {
            let is_first = self.0.set(needles).is_ok();
            assert!(is_first, "an attempt gets its secrets once");
        }
    }

    pub(crate) fn text(&self, text: String) -> String {
        match self.0.get() {
            Some(needles) => needles.text(&text),
            None => text,
        }
    }

    /// Redacts all texts of `value`, including the names of fields.
    pub(crate) fn json(&self, value: Value) -> Value {
        match self.0.get() {
            Some(needles) => needles.json(value),
            None => value,
        }
    }

    pub(crate) fn error(&self, error: RunError) -> RunError {
        RunError {
            // The platform's codes are constants.
            code: match error.source {
                ErrorSource::Capsule => self.text(error.code),
                _ => error.code,
            },
            message: self.text(error.message),
            detail: error.detail.map(|detail| self.json(detail)),
            ..error
        }
    }

    /// The same redaction for JSON documents, whose texts may have escaped characters; also replaces `more`.
    pub(crate) fn in_json(&self, more: Option<&SecretValue>) -> Self {
        let known = self.0.get().map(Needles::values).unwrap_or_default();
        let more = more.into_iter().flat_map(lines);
        let mut values: Vec<_> = known.into_iter().chain(more).collect();
        // A document within a text of another document, such as the arguments of a tool, is escaped twice.
        for _ in 0..2 {
            let escaped: Vec<_> = values.iter().flat_map(in_text).collect();
            values.extend(escaped);
            values.sort_unstable_by(|one, other| one.expose().cmp(other.expose()));
            values.dedup_by(|one, other| one.expose() == other.expose());
        }
        let redaction = Self::default();
        redaction.begin(&values);
        redaction
    }

    /// Redacts the next `bytes` of a stream; `held` keeps a possible beginning of a value. None without secrets.
    pub(crate) fn stream(&self, held: &mut Vec<u8>, bytes: &[u8]) -> Option<Vec<u8>> {
        let needles = self.0.get()?;
        held.extend_from_slice(bytes);
        let mut redacted = Vec::with_capacity(held.len());
        let taken = needles.redact(held, End::Open, &mut redacted);
        held.drain(..taken);
        Some(redacted)
    }

    /// Redacts the rest in `held`, at the end of its stream.
    pub(crate) fn rest(&self, held: &mut Vec<u8>) -> Vec<u8> {
        let held = std::mem::take(held);
        let Some(needles) = self.0.get() else {
            return held;
        };
        let mut redacted = Vec::with_capacity(held.len());
        needles.redact(&held, End::Here, &mut redacted);
        redacted
    }
}

/// Whether more bytes may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Here,
}

/// The lines to replace, the longest first.
struct Needles {
    lines: Vec<(SecretValue, Range<usize>)>,
    /// Whether a line begins with this byte.
    begins: [bool; 256],
}

impl fmt::Debug for Needles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Needles({})", self.lines.len())
    }
}

impl Needles {
    fn of<'a>(values: impl IntoIterator<Item = &'a SecretValue>) -> Self {
        let mut lines = Vec::new();
        let mut begins = [false; 256];
        for value in values {
            let text = value.expose();
            for line in text.lines().filter(|line| line.len() >= REDACTED_BYTES_MIN) {
                let start = line.as_ptr().addr() - text.as_ptr().addr();
                begins[usize::from(line.as_bytes()[0])] = true;
                lines.push((value.clone(), start..start + line.len()));
            }
        }
        lines.sort_by_key(|(_, range)| std::cmp::Reverse(range.len()));
        Self { lines, begins }
    }

    /// Each line as a separate value.
    fn values(&self) -> Vec<SecretValue> {
        let line = |(value, range): &(SecretValue, Range<usize>)| {
            SecretValue::new(value.expose()[range.clone()].to_owned())
        };
        self.lines.iter().map(line).collect()
    }

    fn text(&self, text: &str) -> String {
        let mut redacted = Vec::with_capacity(text.len());
        self.redact(text.as_bytes(), End::Here, &mut redacted);
        // Values are texts, so no character is split.
        String::from_utf8_lossy(&redacted).into_owned()
    }

    fn json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let redacted = fields.map(|(name, value)| (self.text(&name), self.json(value)));
                Value::Object(redacted.collect::<Map<_, _>>())
            }
            other => other,
        }
    }

    /// Copies `input` with its values replaced; returns the number of bytes read: all, unless more may follow and the
    /// end may be the beginning of a value.
    fn redact(&self, input: &[u8], end: End, output: &mut Vec<u8>) -> usize {
        let mut position = 0;
        while let Some(&first) = input.get(position) {
            if !self.begins[usize::from(first)] {
                output.push(first);
                position += 1;
                continue;
            }
            match self.find(&input[position..], end) {
                Found::Whole(length) => {
                    output.extend_from_slice(REDACTED.as_bytes());
                    position += length;
                }
                Found::Beginning => return position,
                Found::Nothing => {
                    output.push(first);
                    position += 1;
                }
            }
        }
        position
    }

    fn find(&self, input: &[u8], end: End) -> Found {
        for (value, range) in &self.lines {
            let line = &value.expose().as_bytes()[range.clone()];
            if input.starts_with(line) {
                return Found::Whole(line.len());
            }
            if end == End::Open && line.starts_with(input) {
                return Found::Beginning;
            }
        }
        Found::Nothing
    }
}

/// Each line of `value` as a separate value.
fn lines(value: &SecretValue) -> impl Iterator<Item = SecretValue> {
    let lines = value.expose().lines();
    lines.map(|line| SecretValue::new(line.to_owned()))
}

/// `line` in a JSON text: as most writers escape it, and as ASCII.
fn in_text(line: &SecretValue) -> [SecretValue; 2] {
    let quoted = serde_json::to_string(line.expose()).expect("a text is JSON");
    let quoted = SecretValue::new(quoted);
    let usual = quoted.expose();
    let usual = &usual[1..usual.len() - 1];
    let mut ascii = String::with_capacity(usual.len() * ESCAPE_BYTES);
    for character in usual.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    [usual.to_owned(), ascii].map(SecretValue::new)
}

enum Found {
    Whole(usize),
    Beginning,
    Nothing,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction(values: &[&str]) -> Redaction {
        let values: Vec<_> = values
            .iter()
            .map(|value| SecretValue::new((*value).to_owned()))
            .collect();
        let redaction = Redaction::default();
        redaction.begin(&values);
        redaction
    }

    fn text(values: &[&str], text: &str) -> String {
        redaction(values).text(text.to_owned())
    }

    #[test]
    fn values_are_redacted_anywhere_in_a_text() {
        let values = ["opensesame", "opens", "ünïcödé"];
        let taken = text(&values, "opensesame, x=opensesame! opens ünïcödé opensesam");
        assert_eq!(taken, "***, x=***! opens *** opensesam");
    }

    #[test]
    fn longest_matching_value_is_redacted() {
        let values = ["password", "password-of-bob"];
        assert_eq!(
            text(&values, "password-of-bob password-of-al"),
            "*** ***-of-al"
        );
    }

    #[test]
    fn value_below_minimum_length_is_not_redacted() {
        assert_eq!(text(&["12345", "123456"], "12345 123456"), "12345 ***");
    }

    #[test]
    fn lines_of_a_value_are_redacted_separately() {
        let key = "-----BEGIN KEY-----\r\nMIIEvQ\nab\n-----END KEY-----";
        let taken = text(&[key], "key: -----BEGIN KEY-----\n  MIIEvQ\n  ab\n");
        assert_eq!(taken, "key: ***\n  ***\n  ab\n");
    }

    #[test]
    fn value_split_at_any_position_is_redacted() {
        let redaction = redaction(&["opensesame", "opensesa"]);
        let whole = b"say opensesame or opensesa, openly: opense";
        for first in 0..whole.len() {
            for second in first..whole.len() {
                let mut held = Vec::new();
                let mut taken = Vec::new();
                for piece in [&whole[..first], &whole[first..second], &whole[second..]] {
                    taken.extend(redaction.stream(&mut held, piece).unwrap());
                }
                taken.extend(redaction.rest(&mut held));
                assert_eq!(
                    String::from_utf8(taken).unwrap(),
                    "say *** or ***, openly: opense"
                );
            }
        }
    }

    #[test]
    fn stream_holds_back_only_possible_values() {
        let redaction = redaction(&["opensesame"]);
        let mut held = Vec::new();
        assert_eq!(
            redaction.stream(&mut held, b"line\nope").unwrap(),
            b"line\n"
        );
        assert_eq!(redaction.stream(&mut held, b"ra\n").unwrap(), b"opera\n");
    }

    #[test]
    fn value_is_redacted_in_json_with_any_escaping() {
        let value = "pä\"ss\\wörd";
        let redaction = redaction(&[value]).in_json(Some(&SecretValue::new("the-key".into())));
        let document = json!({"a": value, "tool": json!({"b": value}).to_string()}).to_string();
        assert_eq!(
            redaction.text(document),
            r#"{"a":"***","tool":"{\"b\":\"***\"}"}"#
        );
        let ascii = r#"{"a":"p\u00e4\"ss\\w\u00f6rd","key":"the-key"}"#;
        assert_eq!(redaction.text(ascii.into()), r#"{"a":"***","key":"***"}"#);
        let nothing = Redaction::default().in_json(None);
        assert_eq!(nothing.text(ascii.into()), ascii);
    }

    #[test]
    fn names_and_texts_of_a_document_are_redacted() {
        let document = json!({"a": ["opensesame", 1], "the opensesame": {"b": "x opensesame"}});
        let taken = redaction(&["opensesame"]).json(document);
        assert_eq!(taken, json!({"a": ["***", 1], "the ***": {"b": "x ***"}}));
    }

    #[test]
    fn redaction_without_secrets_changes_nothing() {
        let redaction = redaction(&[]);
        assert_eq!(redaction.text("text".to_owned()), "text");
        assert!(redaction.stream(&mut Vec::new(), b"text").is_none());
        assert!(format!("{:?}", self::redaction(&["opensesame"])).contains("Needles(1)"));
    }
}
