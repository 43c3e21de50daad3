//! The only capsule of a simulation: its arguments are the plan that it executes.

use std::path::Path;
use std::time::Duration;

use aod_ports::BoxError;
use aod_ports::container_runtime::ContainerSpec;
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::plan::policies;
use crate::world::World;

/// Its name.
pub(crate) const NAME: &str = "planned";

/// The name of the file that it sends and returns.
const FILE: &str = "note.txt";

/// Exit code of a run that is planned to fail.
const FAILURE_CODE: i32 = 3;

/// Exit code of a run that is retried.
const PASSING_CODE: i32 = 5;

/// Pause after a call that was not accepted.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Exit code of a run whose callee was dead-lettered, or not taken by a node in time.
const PLATFORM_CODE: i32 = 4;

/// Its `schema.json`.
pub(crate) fn schema() -> Value {
    json!({
        "input": {"type": "object", "properties": {
            "number": {"type": "integer"}, "milliseconds": {"type": "integer"},
            "parallel": {"type": "boolean"}, "fails": {"type": "boolean"}, "file": {"type": "boolean"},
            "children": {"type": "array", "items": {"type": "object"}},
            "failures": {"type": "integer"}, "silences": {"type": "integer"},
            "queue_seconds": {"type": "integer"}, "lane": {"type": "string"}, "note": {"type": "string", "format": "file_path"},
        }, "required": ["number"]},
        "output": {"type": "object", "properties": {
            "sum": {"type": "integer"}, "note": {"type": "string", "format": "file_path"},
        }, "required": ["sum"]},
    })
}

/// Runs the plan; returns the exit code.
pub(crate) async fn run(spec: ContainerSpec, world: World) -> i32 {
    let text = std::fs::read_to_string(&spec.io.input_json).unwrap_or_default();
    let Ok(input) = serde_json::from_str::<Value>(&text) else {
        return 1;
    };
    let milliseconds = input["milliseconds"].as_u64().unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(milliseconds / 2)).await;
    if input["fails"] == true {
        return FAILURE_CODE;
    }
    let below = match call_children(&spec, &input).await {
        Ok(below) => below,
        Err(code) => return code,
    };
    tokio::time::sleep(Duration::from_millis(milliseconds / 2)).await;
    if world.is_due(
        "silence",
        spec.run,
        input["silences"].as_u64().unwrap_or_default(),
    ) {
        return std::future::pending().await;
    }
    if world.is_due(
        "failure",
        spec.run,
        input["failures"].as_u64().unwrap_or_default(),
    ) {
        return PASSING_CODE;
    }
    let mut output = json!({"sum": input["number"].as_u64().unwrap_or_default() + below});
    if input["file"] == true {
        let written = std::fs::write(spec.io.outputs.join(FILE), number_text(&input));
        if written.is_err() {
            return 1;
        }
        output["note"] = FILE.into();
    }
    match std::fs::write(spec.io.io.join("output.json"), output.to_string()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn number_text(input: &Value) -> String {
    format!("the number is {}", input["number"])
}

/// The sum of the answers of the children.
async fn call_children(spec: &ContainerSpec, input: &Value) -> Result<u64, i32> {
    let children = input["children"].as_array().cloned().unwrap_or_default();
    let calls = children.into_iter().map(|child| call(spec, child));
    let answers = if input["parallel"] == true {
        join_all(calls).await
    } else {
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await);
        }
        answers
    };
    answers.into_iter().sum()
}

/// The result of one child: none if it fails by plan, or the exit code after an error.
async fn call(spec: &ContainerSpec, mut child: Value) -> Result<u64, i32> {
    let number = number_text(&child);
    let has_file = child["file"] == true;
    if has_file {
        let name = format!("{}-{FILE}", child["number"]);
        std::fs::write(spec.io.outgoing.join(&name), &number).map_err(|_| 1)?;
        child["note"] = name.into();
    }
    let (retries, limits) = policies(&child);
    let body = json!({"target": NAME, "args": child, "retries": retries, "limits": limits});
    let key = format!("child-{}", child["number"]);
    let answer = loop {
        let answer = handoff(&spec.io.channel, &key, &body).await;
        // The call was not accepted; a repetition with its key is the same call.
        let is_refused = answer["run_id"].is_null() && answer["error"]["retryable"] == true;
        if is_refused || answer["status"] == 503 {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        }
        break answer;
    };
    tracing::debug!(%answer, "answered");
    if answer["success"] != true {
        return match &answer["error"] {
            error if error["detail"]["code"] == FAILURE_CODE => Ok(0),
            error if error["source"] == "platform" => Err(PLATFORM_CODE),
            error if error["code"] == "queue_timed_out" => Err(PLATFORM_CODE),
            error if error["detail"]["code"] == PLATFORM_CODE => Err(PLATFORM_CODE),
            _ => Err(1),
        };
    }
    if has_file {
        let name = answer["output"]["note"].as_str().ok_or(1)?;
        let path = spec.io.incoming.join(name);
        // A returned file with another content fails to parse as the number.
        if std::fs::read_to_string(path).map_err(|_| 1)? != number {
            return Err(1);
        }
    }
    answer["output"]["sum"].as_u64().ok_or(1)
}

/// One call through the run's channel. Waits for the end of the run if the channel is unreachable.
async fn handoff(channel: &Path, key: &str, body: &Value) -> Value {
    match post(channel, key, body).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::debug!(%error, "the channel is unreachable");
            std::future::pending().await
        }
    }
}

async fn post(channel: &Path, key: &str, body: &Value) -> Result<Value, BoxError> {
    let stream = UnixStream::connect(channel.join("capsule.sock")).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    aod_services::program::spawn(connection);
    let request = hyper::Request::post("/handoff")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from(body.to_string())))?;
    let response = sender.send_request(request).await?;
    let whole = response.into_body().collect().await?.to_bytes();
    Ok(serde_json::from_slice(&whole)?)
}
