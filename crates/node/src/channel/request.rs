//! Parses calls of a capsule strictly, and reports all problems together.

use std::time::Duration;

use aod_api::IDEMPOTENCY_KEY_HEADER;
use aod_api::calls::CallBody;
use aod_api::compatibility::Execute;
use aod_api::problem::{Problem, ProblemItem};
use aod_api::strict::{self, Fields, Malformed};
use aod_domain::contract;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::Directory;
use aod_domain::run::{Limits, Retries};
use axum::http::HeaderMap;
use serde::Deserialize;

use super::answer::Style;
use crate::calls::Wish;

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

/// Parses the body of `POST /handoff`.
pub(crate) fn parse_handoff(
    body: &[u8],
    headers: &HeaderMap,
) -> Result<(Wish, Style), Box<Problem>> {
    let mut fields = Fields::parse(body).map_err(problem)?;
    let is_compatible = fields.has("session_id");
    let idempotency_key = key_of(headers, &mut fields);
    let read = CallBody::read(fields).map_err(problem);
    // agent-on-demand clients expect 422 for a malformed body.
    let read = if is_compatible {
        read.map_err(unprocessable)
    } else {
        read
    };
    let CallBody {
        target,
        arguments,
        timeout_seconds,
        retries,
        limits,
        pool,
    } = read?;
    let wish = Wish {
        target,
        arguments,
        idempotency_key,
        timeout_seconds,
        retries,
        limits,
        pool,
    };
    let style = if is_compatible {
        Style::Compatibility
    } else {
        Style::Standard
    };
    Ok((wish, style))
}

/// Parses the body of `POST /execute`, the call of agent-on-demand compatibility.
pub(crate) fn parse_execute(body: &[u8], headers: &HeaderMap) -> Result<Wish, Box<Problem>> {
    let mut fields = Fields::parse(body)
        .map_err(problem)
        .map_err(unprocessable)?;
    let idempotency_key = key_of(headers, &mut fields);
    // The input names the files, as in a handoff.
    let Execute { capsule, input, .. } = Execute::read(fields)
        .map_err(problem)
        .map_err(unprocessable)?;
    Ok(Wish {
        target: capsule,
        arguments: input,
        timeout_seconds: None,
        retries: Retries::default(),
        limits: Limits::default(),
        pool: None,
        idempotency_key,
    })
}

/// Refuses paths of a host in a call of agent-on-demand compatibility.
pub(super) fn check_paths(wish: &Wish, style: Style) -> Result<(), Box<Problem>> {
    let outside = contract::host_paths(&wish.arguments, Directory::Outgoing);
    if style == Style::Standard || outside.is_empty() {
        return Ok(());
    }
    let problem = Problem::new(
        ErrorCode::FileRefused,
        "the arguments name a path of a host",
    );
    let errors = outside
        .iter()
        .map(|outside| ProblemItem::within("", outside));
    Err(Box::new(problem.with_errors(errors.collect())))
}

fn key_of(headers: &HeaderMap, fields: &mut Fields) -> Option<String> {
    let value = headers.get(IDEMPOTENCY_KEY_HEADER)?;
    match strict::idempotency_key(value.as_bytes()) {
        Ok(key) => Some(key),
        Err(message) => {
            fields.error("", message);
            None
        }
    }
}

fn problem(malformed: Malformed) -> Box<Problem> {
    Box::new(malformed.into())
}

/// Adapts a problem of a malformed body to agent-on-demand clients.
fn unprocessable(problem: Box<Problem>) -> Box<Problem> {
    if problem.status == 400 {
        return Box::new(problem.with_status(422));
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &'static str) -> Result<(Wish, Style), Box<Problem>> {
        parse_handoff(body.as_bytes(), &HeaderMap::new())
    }

    #[test]
    fn call_with_target_and_args_is_parsed() {
        let (wish, style) =
            parse(r#"{"target": "Capsule B", "args": {"input_image": "graph.png"}}"#).unwrap();
        assert_eq!(
            (wish.target.as_str(), style),
            ("Capsule B", Style::Standard)
        );
        assert_eq!(wish.arguments["input_image"], "graph.png");
    }

    #[test]
    fn body_with_session_id_gets_compatibility_style() {
        let (_, style) = parse(r#"{"session_id": "x", "target": "b", "args": {}}"#).unwrap();
        assert_eq!(style, Style::Compatibility);
    }

    #[test]
    fn host_path_is_refused_only_in_compatibility_calls() {
        let (standard, style) = parse(r#"{"target": "b", "args": {"file": "/etc/x"}}"#).unwrap();
        assert_eq!(check_paths(&standard, style), Ok(()));
        let (mut wish, style) =
            parse(r#"{"session_id": "x", "target": "b", "args": {"file": "/etc/x"}}"#).unwrap();
        let refusal = check_paths(&wish, style).unwrap_err();
        assert_eq!(refusal.code, "file_refused");
        assert!(
            refusal.errors[0].message.contains("/io/handoff/outgoing"),
            "{refusal:?}"
        );
        wish.arguments["file"] = "x".into();
        assert_eq!(check_paths(&wish, style), Ok(()));
    }

    #[test]
    fn malformed_execute_body_is_rejected_with_422() {
        for body in ["{\"capsule\": ", "{}"] {
            assert_eq!(
                parse_execute(body.as_bytes(), &HeaderMap::new())
                    .unwrap_err()
                    .status,
                422
            );
        }
    }

    #[test]
    fn handoff_reports_all_problems_of_header_and_body_together() {
        let headers = HeaderMap::from_iter([(
            IDEMPOTENCY_KEY_HEADER.parse().unwrap(),
            "k".repeat(256).parse().unwrap(),
        )]);
        let body = br#"{"target": 7, "tarjet": "b"}"#;
        let problem = parse_handoff(body, &headers).unwrap_err();
        let pointers: Vec<&str> = problem
            .errors
            .iter()
            .map(|error| error.pointer.as_str())
            .collect();
        assert_eq!(pointers, ["", "/target", "/tarjet"]);
        assert_eq!(problem.status, 400);
    }

    #[test]
    fn handoff_with_number_that_64_bits_cannot_hold_is_rejected_with_its_pointer() {
        let problem =
            parse(r#"{"target": "b", "args": {"ids": [1, 18446744073709551616]}}"#).unwrap_err();
        assert_eq!(problem.code, "request_malformed");
        assert_eq!(problem.errors[0].pointer, "/args/ids/1");
        let message = &problem.errors[0].message;
        assert!(
            message.starts_with("18446744073709551616 given; "),
            "{message}"
        );
        let body = br#"{"capsule": "b", "input": {"n": 1e400}}"#;
        let problem = parse_execute(body, &HeaderMap::new()).unwrap_err();
        assert_eq!(
            (problem.status, problem.errors[0].pointer.as_str()),
            (422, "/input/n")
        );
    }

    #[test]
    fn truncated_body_is_rejected_as_malformed() {
        assert_eq!(
            parse(r#"{"target": "#).unwrap_err().code,
            "request_malformed"
        );
    }
}
