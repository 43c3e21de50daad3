//! Events of the log, one per line.

use std::fmt::Write as _;

use aod_api::events::EventView;
use aod_domain::spending::Cost;
use serde_json::Value;

/// The type of the terminal event.
const RESULT_TYPE: &str = "dev.aod.run.ended.v1";

/// Whether `event` is the result of its run.
pub(crate) fn is_result(event: &EventView) -> bool {
    event.kind == RESULT_TYPE
}

/// `dev.aod.run.attempt_lost.v1` is `attempt_lost`, `dev.aod.spending.settled.v1` is `settled`.
fn name(event: &EventView) -> &str {
    word(&event.kind)
}

/// The last word of the type `kind`.
pub(crate) fn word(kind: &str) -> &str {
    let kind = kind.rsplit_once(".v").map_or(kind, |(name, _)| name);
    kind.rsplit_once('.').map_or(kind, |(_, word)| word)
}

/// The remark on an event, if it has details for people.
fn remark(event: &EventView) -> Option<String> {
    let text = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_str);
    match name(event) {
        "leased" => event
            .data
            .get("attempt")
            .map(|attempt| format!("attempt {attempt}")),
        "delivered" => {
            let number = event.data.pointer("/work/delivery");
            number.map(|number| format!("delivery {number}, no attempt yet"))
        }
        "attempt_lost" => text("/error/message").map(str::to_owned),
        "attempt_failed" => {
            let pause = event.data.get("pause_ms").and_then(Value::as_u64)?;
            let seconds = pause.div_ceil(1_000);
            Some(format!("{}; retry in {seconds} s", text("/error/message")?))
        }
        "step_ended" => Some(step_ended(event)?),
        "call_refused" => Some(format!("{}: {}", text("/target")?, text("/text")?)),
        "egress_closed" => {
            let number = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_u64);
            let place = format!("{}:{}", text("/host")?, number("/port")?);
            let (sent, received) = (number("/bytes_sent")?, number("/bytes_received")?);
            let milliseconds = number("/duration_ms")?;
            Some(format!(
                "{place}: {sent} bytes sent, {received} received in {milliseconds} ms"
            ))
        }
        "reserved" => {
            let tokens = event.data.pointer("/worst/tokens")?;
            Some(format!("{}: at most {tokens} tokens", model(event)?))
        }
        "settled" => settled(event),
        "sealed" => text("/public_key").map(|key| format!("by {key}")),
        "cancel_requested" => text("/requested_by")
            .map(|who| format!("by {who}: {}", text("/reason").unwrap_or_default())),
        "removed" | "policy_set" | "policy_removed" | "hold_removed" => {
            Some(format!("by {}", text("/requested_by")?))
        }
        "hold_placed" => Some(format!(
            "by {}: {}",
            text("/requested_by")?,
            text("/reason")?
        )),
        "deleted" => {
            let count = event.data.get("artifacts")?.as_array()?.len();
            Some(format!("{count} artifacts by {}", text("/requested_by")?))
        }
        "ended" => {
            let outcome = text("/outcome")?;
            Some(match text("/error/message") {
                Some(message) => format!("{outcome}: {message}"),
                None => outcome.to_owned(),
            })
        }
        _ => text("/text").or_else(|| text("/callee")).map(str::to_owned),
    }
}

/// Provider and model, as in `agent.yaml`.
fn model(event: &EventView) -> Option<String> {
    let text = |name: &str| event.data.get(name).and_then(Value::as_str);
    Some(format!("{}/{}", text("provider")?, text("model")?))
}

/// Tokens and cost of a call of a model, and the tools that the model requested.
fn settled(event: &EventView) -> Option<String> {
    let number = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_u64);
    let tokens = match (number("/tokens/input"), number("/tokens/output")) {
        (Some(input), Some(output)) => format!("{input} tokens in, {output} out"),
        _ => "tokens not reported".to_owned(),
    };
    let cost = number("/cost_picodollars").map(|cost| Cost::from_picodollars(cost).to_string());
    let status = number("/status").filter(|status| *status >= 300);
    let status = status.map(|status| format!("status {status}"));
    let tools = event.data.get("tools").and_then(Value::as_array);
    let tools: Vec<_> = tools
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let tools = (!tools.is_empty()).then(|| format!("requests {}", tools.join(", ")));
    let parts: Vec<_> = [Some(tokens), cost, status, tools]
        .into_iter()
        .flatten()
        .collect();
    Some(format!("{}: {}", model(event)?, parts.join(", ")))
}

/// `review.2 failed: exit code 1`.
fn step_ended(event: &EventView) -> Option<String> {
    let text = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_str);
    let mut name = text("/position/step")?.to_owned();
    let iterations = event.data.pointer("/position/iterations");
    for iteration in iterations.and_then(Value::as_array).into_iter().flatten() {
        let _ = write!(name, ".{iteration}");
    }
    let ending = text("/ending")?;
    Some(match text("/error/message") {
        Some(message) => format!("{name} {ending}: {message}"),
        None => format!("{name} {ending}"),
    })
}

/// The state of a run after `event`, for the progress line.
pub(crate) fn short(event: &EventView) -> String {
    let word = match name(event) {
        "launched" => "queued",
        "delivered" => "delivered, no attempt yet",
        "leased" => "starting",
        "attempt_lost" => "attempt lost, waiting for another node",
        "attempt_failed" => "attempt failed, waiting for its retry",
        "cancel_requested" => "being cancelled",
        "wait_started" => "waiting for callees",
        "capsule_started" | "wait_ended" | "call_refused" | "egress_closed" | "egress_refused"
        | "reserved" | "settled" | "step_ended" => "running",
        "ended" => match event.data["outcome"].as_str() {
            Some("failed") => "failed",
            Some("cancelled") => "cancelled",
            Some("timed_out") => "timed out",
            _ => "ended",
        },
        "preparation_started" => "preparing",
        "collection_started" => "collecting outputs",
        word => word,
    };
    match remark(event).filter(|_| name(event) == "preparation_started") {
        Some(remark) => format!("{word} ({remark})"),
        None => word.to_owned(),
    }
}

/// A line in the list of events of a run.
pub(crate) fn line(event: &EventView) -> String {
    let time = event.time.strftime("%Y-%m-%d %H:%M:%S%.3fZ");
    let remark = remark(event).unwrap_or_default();
    format!(
        "{:>8}  {time}  {:<14}  {remark}",
        event.sequence,
        name(event)
    )
    .trim_end()
    .to_owned()
}

/// The columns of [`row`].
pub(crate) fn header() -> String {
    format!(
        "{:>8}  {:<24}  {:<14}  {:<57}  REMARK",
        "EVENT", "TIME", "TYPE", "ABOUT"
    )
}

/// A line in the list of events of the whole log: [`line`] with the column ABOUT.
pub(crate) fn row(event: &EventView) -> String {
    let time = event.time.strftime("%Y-%m-%d %H:%M:%S%.3fZ");
    let remark = remark(event).unwrap_or_default();
    format!(
        "{:>8}  {time}  {:<14}  {:<57}  {remark}",
        event.sequence,
        name(event),
        about(event)
    )
    .trim_end()
    .to_owned()
}

/// The run, the capsule or the node that an event is about.
fn about(event: &EventView) -> String {
    if let Some(run) = event.run {
        return run.to_string();
    }
    let mut members = ["/run", "/name", "/node", "/policy/name"].into_iter();
    let about = members.find_map(|member| event.data.pointer(member).and_then(Value::as_str));
    about.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(kind: &str, data: &Value) -> String {
        let event = json!({"sequence": 7, "id": "event_0", "type": kind, "time": "2026-01-02T03:04:05.678Z", "source": "/node/x",
            "hash": "0".repeat(64), "data": data});
        line(&serde_json::from_value(event).expect("an event"))
    }

    #[test]
    fn model_call_is_shown_with_tokens_cost_and_tools() {
        let settled = json!({"provider": "openai", "model": "tiny", "status": 200,
            "tokens": {"input": 100, "output": 20}, "cost_picodollars": 300_000_000, "tools": ["search", "read"]});
        assert_eq!(
            shown("dev.aod.spending.settled.v1", &settled),
            "       7  2026-01-02 03:04:05.678Z  settled         openai/tiny: 100 tokens in, 20 out, $0.00030, \
             requests search, read"
        );
        let refused = json!({"provider": "openai", "model": "tiny", "status": 503});
        assert_eq!(
            shown("dev.aod.spending.settled.v1", &refused),
            "       7  2026-01-02 03:04:05.678Z  settled         openai/tiny: tokens not reported, status 503"
        );
        let reserved = json!({"provider": "openai", "model": "tiny", "worst": {"tokens": 900}});
        assert_eq!(
            shown("dev.aod.spending.reserved.v1", &reserved),
            "       7  2026-01-02 03:04:05.678Z  reserved        openai/tiny: at most 900 tokens"
        );
    }
}
