//! Spans of model calls, and of the tools that models request.

use std::collections::BTreeMap;
use std::time::Duration;

use aod_domain::id::{EventId, RunId};
use aod_domain::spending::{Answered, Event, Settled};
use aod_domain::trace::{SpanId, TraceId};
use jiff::Timestamp;

use crate::history::{RunHistory, TreeHistory};
use crate::runs::{before, capsule};
use crate::span::{Span, Value};

/// A call with its duration.
struct Call<'a> {
    settled: &'a Settled,
    began: Timestamp,
    ended: Timestamp,
}

/// The spans of all finished calls.
pub(crate) fn spans(tree: &TreeHistory) -> Vec<Span> {
    let trace = tree.trace();
    let mut spans = Vec::new();
    for calls in calls(tree).values() {
        for (index, call) in calls.iter().enumerate() {
            spans.push(chat(trace, call));
            let until = calls.get(index + 1).map(|next| next.began);
            spans.extend(tools(trace, tree, call, until));
        }
    }
    spans
}

/// The calls of each attempt, in the order in which they began.
fn calls(tree: &TreeHistory) -> BTreeMap<(RunId, u32), Vec<Call<'_>>> {
    let mut reserved: BTreeMap<EventId, Timestamp> = BTreeMap::new();
    let mut calls: BTreeMap<(RunId, u32), Vec<Call<'_>>> = BTreeMap::new();
    for recorded in &tree.spending {
        match &recorded.event {
            Event::Reserved { call, .. } => {
                reserved.insert(call.id, recorded.time);
            }
            Event::Settled(settled) => {
                // The settlement may have been stored long after the end of the call.
                let stored = before(recorded.time, settled.duration_ms);
                let began = reserved.get(&settled.call.id).copied().unwrap_or(stored);
                let duration = Duration::from_millis(settled.duration_ms);
                let ended = began.checked_add(duration).unwrap_or(began);
                let of = (settled.call.run, settled.call.attempt);
                calls.entry(of).or_default().push(Call {
                    settled,
                    began,
                    ended,
                });
            }
        }
    }
    for calls in calls.values_mut() {
        calls.sort_by_key(|call| call.began);
    }
    calls
}

fn attempt_of(settled: &Settled) -> SpanId {
    SpanId::of_attempt(settled.call.run, settled.call.attempt)
}

fn chat(trace: TraceId, call: &Call<'_>) -> Span {
    let settled = call.settled;
    let id = SpanId::of_event(settled.call.id);
    let name = format!("chat {}", settled.call.model);
    let mut span = Span::new(trace, id, Some(attempt_of(settled)), name)
        .client()
        .during(call.began, call.ended)
        .with("gen_ai.operation.name", "chat")
        .with("gen_ai.provider.name", settled.call.provider.as_str())
        .with("gen_ai.request.model", settled.call.model.as_str())
        .with("aod.run.id", settled.call.run.to_string());
    if let Some(status) = settled.status {
        span = span.with("http.response.status_code", u32::from(status));
    }
    if let Some(tokens) = settled.tokens {
        span = span
            .with("gen_ai.usage.input_tokens", tokens.input)
            .with("gen_ai.usage.output_tokens", tokens.output);
    }
    if let Some(cost) = settled.cost {
        let cost = Value::Number(cost.dollars());
        span.attributes.push(("aod.cost_usd", cost));
    }
    let streamed = Value::Truth(settled.is_streamed);
    span.attributes.push(("aod.is_streamed", streamed));
    let error = match (settled.answered, settled.status) {
        (Answered::Whole, _) => None,
        (Answered::Refused, Some(status)) => Some(status.to_string()),
        (Answered::Refused, None) => Some("not_answered".to_owned()),
        (Answered::Broken, _) => Some("broken_answer".to_owned()),
    };
    span.failed(error)
}

/// The tools that the model requested. AOD sees the request, not the execution: the span of a tool ends with the next
/// request to a model, or with its attempt. Calls of capsules have their own spans.
fn tools(
    trace: TraceId,
    tree: &TreeHistory,
    call: &Call<'_>,
    until: Option<Timestamp>,
) -> Vec<Span> {
    let settled = call.settled;
    let run = tree.runs.get(&settled.call.run);
    let ended = run.and_then(RunHistory::ended).map(|ended| ended.time);
    let until = until.or(ended).unwrap_or(call.ended);
    let callees: Vec<String> = tree
        .runs
        .values()
        .filter(|callee| {
            let parent = callee.launched.event.parent.as_ref();
            let time = callee.launched.time;
            parent.is_some_and(|parent| parent.run == settled.call.run)
                && time >= call.began
                && time <= until
        })
        .map(|callee| capsule(callee).replace('-', "_"))
        .collect();
    let named = settled.tools.iter().zip(0_u32..);
    named
        .filter(|(tool, _)| !callees.contains(&tool.replace('-', "_")))
        .map(|(tool, index)| {
            let id = SpanId::of_tool(settled.call.id, index);
            let name = format!("execute_tool {tool}");
            Span::new(trace, id, Some(attempt_of(settled)), name)
                .during(call.ended, until)
                .with("gen_ai.operation.name", "execute_tool")
                .with("gen_ai.tool.name", tool.as_str())
                .with("aod.run.id", settled.call.run.to_string())
        })
        .collect()
}
