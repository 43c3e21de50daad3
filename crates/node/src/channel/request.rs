//! Reads what a capsule asks for, strictly, with all that is wrong at once.

use std::time::Duration;

use aod_api::IDEMPOTENCY_KEY_HEADER;
use aod_api::problem::{Problem, ProblemItem};
use aod_domain::contract::{PROBLEMS_MAX, pointer_part};
use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Limits, Retries};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::Style;
use crate::calls::Wish;

/// A body as it came, or why it did not.
pub(crate) type Body = Result<Bytes, BytesRejection>;

/// Longest wait of a poll, in seconds.
const WAIT_SECONDS_MAX: u64 = 300;

/// The parameters of a poll.
#[derive(Debug, Deserialize)]
pub(super) struct PollParameters {
    #[serde(default)]
    wait: u64,
}

impl PollParameters {
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs(self.wait.min(WAIT_SECONDS_MAX))
    }
}

/// Reads the body of `POST /handoff`.
pub(crate) fn parse_handoff(
    body: Body,
    headers: &HeaderMap,
) -> Result<(Wish, Style), Box<Problem>> {
    let mut reader = Reader::new(body)?;
    let style = if reader.fields.contains_key("session_id") {
        Style::Original
    } else {
        Style::Standard
    };
    reader.fields.remove("session_id");
    let wish = Wish {
        target: reader.text("target"),
        arguments: reader.object("args"),
        timeout_seconds: reader.seconds("timeout_seconds"),
        retries: reader.retries("retries"),
        limits: reader.limits("limits"),
        label: reader.label("label"),
        idempotency_key: key_of(headers, &mut reader.errors),
    };
    // The original's clients are told of a malformed body by 422.
    let status = if style == Style::Original { 422 } else { 400 };
    reader.finish(status).map(|()| (wish, style))
}

/// Reads the body of `POST /execute`, the original's way to call.
pub(crate) fn parse_execute(body: Body, headers: &HeaderMap) -> Result<Wish, Box<Problem>> {
    let mut reader = Reader::new(body).map_err(unprocessable)?;
    // Files travel by their names in the input, as in a handoff.
    reader.fields.remove("files");
    let wish = Wish {
        target: reader.text("capsule"),
        arguments: reader.object("input"),
        timeout_seconds: None,
        retries: Retries::default(),
        limits: Limits::default(),
        label: None,
        idempotency_key: key_of(headers, &mut reader.errors),
    };
    reader.finish(422).map(|()| wish)
}

fn key_of(headers: &HeaderMap, errors: &mut Vec<ProblemItem>) -> Option<String> {
    let value = headers.get(IDEMPOTENCY_KEY_HEADER)?;
    match value.to_str() {
        Ok(text) if (1..=255).contains(&text.len()) => Some(text.to_owned()),
        _ => {
            let text = "the header Idempotency-Key is not 1 to 255 visible characters of ASCII";
            errors.push(ProblemItem::new("", text));
            None
        }
    }
}

/// Takes the fields of an object one by one and collects what is wrong with them.
struct Reader {
    fields: Map<String, Value>,
    errors: Vec<ProblemItem>,
    known: Vec<&'static str>,
}

impl Reader {
    fn new(body: Body) -> Result<Self, Box<Problem>> {
        let bytes = body.map_err(|rejection| {
            let code = match rejection.status().as_u16() {
                413 => ErrorCode::PayloadTooLarge,
                _ => ErrorCode::RequestMalformed,
            };
            Box::new(Problem::new(
                code,
                format!("{rejection}; pass large data as a file in /io/handoff/outgoing"),
            ))
        })?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => Ok(Self {
                fields,
                errors: Vec::new(),
                known: Vec::new(),
            }),
            Ok(_) => Err(malformed("the body is JSON but not an object".into())),
            Err(error) => Err(malformed(format!("the body is not JSON: {error}"))),
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    fn wrong(&mut self, name: &str, expected: &str, found: Option<&Value>) {
        let found = found.map_or_else(
            || "nothing".to_owned(),
            |value| value.to_string().chars().take(80).collect(),
        );
        self.errors.push(ProblemItem::new(
            format!("/{name}"),
            format!("expected {expected}, not {found}"),
        ));
    }

    fn text(&mut self, name: &'static str) -> String {
        match self.take(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => text,
            other => {
                self.wrong(name, "the name of a capsule", other.as_ref());
                String::new()
            }
        }
    }

    fn object(&mut self, name: &'static str) -> Map<String, Value> {
        match self.take(name) {
            Some(Value::Object(fields)) => fields,
            None => Map::new(),
            other => {
                self.wrong(name, "an object", other.as_ref());
                Map::new()
            }
        }
    }

    fn seconds(&mut self, name: &'static str) -> Option<u32> {
        let value = self.take(name)?;
        let seconds = value
            .as_u64()
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|&seconds| seconds > 0);
        if seconds.is_none() {
            self.wrong(name, "a whole number of seconds above 0", Some(&value));
        }
        seconds
    }

    fn retries(&mut self, name: &'static str) -> Retries {
        let given = self.object(name);
        Retries::read(&given).unwrap_or_else(|errors| {
            let item = |(pointer, message)| ProblemItem::new(format!("/{name}{pointer}"), message);
            self.errors.extend(errors.into_iter().map(item));
            Retries::default()
        })
    }

    fn limits(&mut self, name: &'static str) -> Limits {
        let given = self.object(name);
        Limits::read(&given).unwrap_or_else(|errors| {
            let item = |(pointer, message)| ProblemItem::new(format!("/{name}{pointer}"), message);
            self.errors.extend(errors.into_iter().map(item));
            Limits::default()
        })
    }

    fn label(&mut self, name: &'static str) -> Option<aod_domain::subject::Label> {
        let value = self.take(name)?;
        let label = value.as_str().and_then(|text| text.parse().ok());
        if label.is_none() {
            self.wrong(name, "1 to 63 of a-z, 0-9 and -", Some(&value));
        }
        label
    }

    fn finish(mut self, status: u16) -> Result<(), Box<Problem>> {
        let known = self.known.join(", ");
        for name in self.fields.keys().take(PROBLEMS_MAX) {
            let text = format!("unknown field; expected one of {known}");
            let pointer = format!("/{}", pointer_part(name));
            self.errors.push(ProblemItem::new(pointer, text));
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        let problem = Problem::new(ErrorCode::RequestMalformed, "the call cannot be read")
            .with_errors(self.errors);
        Err(Box::new(problem.with_status(status)))
    }
}

/// What the original's clients are told of a body that cannot be read.
fn unprocessable(problem: Box<Problem>) -> Box<Problem> {
    if problem.status == 400 {
        return Box::new(problem.with_status(422));
    }
    problem
}

fn malformed(text: String) -> Box<Problem> {
    Box::new(Problem::new(ErrorCode::RequestMalformed, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &'static str) -> Result<(Wish, Style), Box<Problem>> {
        parse_handoff(Ok(Bytes::from_static(body.as_bytes())), &HeaderMap::new())
    }

    #[test]
    fn the_call_of_the_seed_is_read() {
        let (wish, style) =
            parse(r#"{"target": "Capsule B", "args": {"input_image": "graph.png"}}"#).unwrap();
        assert_eq!(
            (wish.target.as_str(), style),
            ("Capsule B", Style::Standard)
        );
        assert_eq!(wish.arguments["input_image"], "graph.png");
    }

    #[test]
    fn the_originals_body_is_known_by_its_session() {
        let (_, style) = parse(r#"{"session_id": "x", "target": "b", "args": {}}"#).unwrap();
        assert_eq!(style, Style::Original);
    }

    #[test]
    fn the_originals_way_to_call_refuses_with_422() {
        for body in ["{\"capsule\": ", "{}"] {
            let body = Ok(Bytes::from_static(body.as_bytes()));
            assert_eq!(
                parse_execute(body, &HeaderMap::new()).unwrap_err().status,
                422
            );
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let problem =
            parse(r#"{"target": 7, "args": [], "timeout_seconds": 0, "tarjet": "b"}"#).unwrap_err();
        let pointers: Vec<&str> = problem
            .errors
            .iter()
            .map(|error| error.pointer.as_str())
            .collect();
        assert_eq!(
            pointers,
            ["/target", "/args", "/timeout_seconds", "/tarjet"]
        );
        assert_eq!(problem.status, 400);
    }

    #[test]
    fn many_long_fields_make_a_short_answer() {
        let names = (0..1_000).map(|number| format!("\"{number}/~{}\": 1", "x".repeat(200)));
        let body = format!("{{{}}}", names.collect::<Vec<_>>().join(", "));
        let problem = parse_handoff(Ok(body.into()), &HeaderMap::new()).unwrap_err();
        assert_eq!(problem.errors.len(), PROBLEMS_MAX);
        assert!(serde_json::to_vec(&problem).unwrap().len() < 16 * 1024);
    }

    #[test]
    fn half_a_body_is_malformed() {
        assert_eq!(
            parse(r#"{"target": "#).unwrap_err().code,
            "request_malformed"
        );
    }
}
