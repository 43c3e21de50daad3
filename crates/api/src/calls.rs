//! The call of a capsule by a capsule, on the channel of its run: `POST /handoff`.

use aod_domain::launch::TIMEOUT_SECONDS_MAX;
use aod_domain::run::{Limits, Retries};
use aod_domain::subject::Pool;
use serde_json::{Map, Value};

use crate::strict::{Fields, Result};

/// A valid request for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallBody {
    /// Title, alias or name of the callee.
    pub target: String,
    pub arguments: Map<String, Value>,
    pub timeout_seconds: Option<u32>,
    pub retries: Retries,
    pub limits: Limits,
    pub pool: Option<Pool>,
}

impl CallBody {
    /// Reads the body. Ignores the session that clients of agent-on-demand name: the channel identifies the caller.
    pub fn read(mut fields: Fields) -> Result<Self> {
        let call = Self {
            target: fields.required_text("target"),
            arguments: fields.object("args").unwrap_or_default(),
            timeout_seconds: fields.number("timeout_seconds", 1..=TIMEOUT_SECONDS_MAX),
            retries: fields.domain("retries", Retries::read),
            limits: fields.domain("limits", Limits::read),
            pool: fields.word("pool"),
        };
        fields.ignore("session_id");
        fields.finish()?;
        Ok(call)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<CallBody> {
        CallBody::read(Fields::parse(body.to_string().as_bytes()).expect("an object"))
    }

    #[test]
    fn call_with_target_and_arguments_is_read() {
        let call = read(&json!({"target": "Capsule B", "args": {"input_image": "graph.png"}}));
        let call = call.expect("a call");
        assert_eq!(call.target, "Capsule B");
        assert_eq!(call.arguments["input_image"], "graph.png");
        assert!(read(&json!({"session_id": "x", "target": "b"})).is_ok());
    }

    #[test]
    fn all_problems_of_a_call_are_reported() {
        let body = json!({
            "target": 7,
            "args": [],
            "timeout_seconds": TIMEOUT_SECONDS_MAX + 1,
            "retries": {"time": -1},
            "pool": "no pool",
            "tarjet": "b",
        });
        let errors = read(&body).expect_err("problems").errors;
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = [
            "/target",
            "/args",
            "/timeout_seconds",
            "/retries/time",
            "/pool",
            "/tarjet",
        ];
        assert_eq!(pointers, expected, "{errors:?}");
    }
}
