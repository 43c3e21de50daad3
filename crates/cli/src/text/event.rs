//! Events of the log as lines.

use aod_api::events::EventView;
use serde_json::Value;

/// The type of the one terminal event.
const RESULT_TYPE: &str = "dev.aod.run.result.v1";

/// Whether nothing comes after it that people wait for.
pub(crate) fn is_result(event: &EventView) -> bool {
    event.kind == RESULT_TYPE
}

/// `dev.aod.run.attempt_lost.v1` is `attempt_lost`.
fn name(event: &EventView) -> &str {
    let kind = event
        .kind
        .strip_prefix("dev.aod.run.")
        .unwrap_or(&event.kind);
    kind.rsplit_once(".v").map_or(kind, |(name, _)| name)
}

/// What an event says, where it says something for people.
fn remark(event: &EventView) -> Option<String> {
    let text = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_str);
    match name(event) {
        "lease" => event
            .data
            .get("attempt")
            .map(|attempt| format!("attempt {attempt}")),
        "delivered" => {
            let number = event.data.pointer("/work/delivery");
            number.map(|number| format!("delivery {number}, without an attempt so far"))
        }
        "attempt_lost" => text("/error/message").map(str::to_owned),
        "attempt_failed" => {
            let pause = event.data.get("pause_ms").and_then(Value::as_u64)?;
            let seconds = pause.div_ceil(1_000);
            Some(format!("{}; again in {seconds} s", text("/error/message")?))
        }
        "call_refused" => Some(format!("{}: {}", text("/target")?, text("/text")?)),
        "egress" => {
            let number = |pointer: &str| event.data.pointer(pointer).and_then(Value::as_u64);
            let place = format!("{}:{}", text("/host")?, number("/port")?);
            let (sent, received) = (number("/bytes_sent")?, number("/bytes_received")?);
            let milliseconds = number("/duration_ms")?;
            Some(format!(
                "{place}: {sent} bytes sent, {received} received in {milliseconds} ms"
            ))
        }
        "cancel" => text("/requested_by")
            .map(|who| format!("by {who}: {}", text("/reason").unwrap_or_default())),
        "result" => {
            let outcome = text("/outcome")?;
            Some(match text("/error/message") {
                Some(message) => format!("{outcome}: {message}"),
                None => outcome.to_owned(),
            })
        }
        _ => text("/text").or_else(|| text("/callee")).map(str::to_owned),
    }
}

/// For the line of a run that is waited for.
pub(crate) fn short(event: &EventView) -> String {
    let word = match name(event) {
        "launch" => "queued",
        "delivered" => "delivered, not taken on yet",
        "lease" => "taken on by a node",
        "attempt_lost" => "lost its node, waits for another",
        "attempt_failed" => "failed, rests before it is tried again",
        "waiting" => "waiting for what it called",
        "resumed" | "call_refused" | "egress" | "egress_refused" => "running",
        "result" => match event.data["outcome"].as_str() {
            Some("failed") => "failed",
            Some("cancelled") => "cancelled",
            Some("timed_out") => "timed out",
            _ => "ended",
        },
        word => word,
    };
    match remark(event).filter(|_| name(event) == "preparing") {
        Some(remark) => format!("{word} ({remark})"),
        None => word.to_owned(),
    }
}

/// For a list of events.
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
