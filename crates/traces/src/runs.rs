//! Spans of runs, their attempts, the calls between them, and their connections to external hosts.

use std::time::Duration;

use aod_domain::event::Recorded;
use aod_domain::run::{Event, Holder, Note, Work};
use aod_domain::spending::Spent;
use aod_domain::trace::{SpanId, TraceId};
use jiff::Timestamp;

use crate::history::{RunHistory, TreeHistory};
use crate::span::{Moment, Span};

/// The spans of all ended runs of `tree`.
pub(crate) fn spans(tree: &TreeHistory) -> Vec<Span> {
    let trace = tree.trace();
    let mut spans = Vec::new();
    for run in tree.runs.values() {
        let Some(ended) = run.ended() else { continue };
        spans.extend(handoff(trace, run, ended.time));
        spans.push(whole(trace, tree, run, ended.time));
        spans.extend(attempts(trace, run));
        spans.extend(connections(trace, run));
    }
    spans
}

/// The name of the capsule.
pub(crate) fn capsule(run: &RunHistory) -> &str {
    run.launched.event.work.name().as_str()
}

/// The call from the point of view of the caller.
fn handoff(trace: TraceId, run: &RunHistory, ended: Timestamp) -> Option<Span> {
    let parent = run.launched.event.parent.as_ref()?;
    let caller = SpanId::of_attempt(parent.run, parent.attempt);
    let name = format!("execute_tool {}", capsule(run));
    let span = Span::new(trace, SpanId::of_handoff(run.id), Some(caller), name).client();
    Some(
        span.during(run.launched.time, ended)
            .with("gen_ai.operation.name", "execute_tool")
            .with("gen_ai.tool.name", capsule(run))
            .with("aod.run.id", parent.run.to_string())
            .with("aod.handoff.id", parent.call_key.to_string())
            .failed(error_of(run)),
    )
}

/// From the launch to the result.
fn whole(trace: TraceId, tree: &TreeHistory, run: &RunHistory, ended: Timestamp) -> Span {
    let launched = &run.launched.event;
    let parent = match &launched.parent {
        Some(_) => Some(SpanId::of_handoff(run.id)),
        None => launched.trace.map(|origin| origin.parent),
    };
    let operation = match &launched.work {
        Work::Capsule {
            models: Some(_), ..
        } => "invoke_agent",
        Work::Capsule { .. } => "run",
        Work::Build { .. } => "build",
    };
    let name = format!("{operation} {}", capsule(run));
    let mut span = Span::new(trace, SpanId::of_run(run.id), parent, name)
        .during(run.launched.time, ended)
        .with("aod.run.id", run.id.to_string())
        .with("aod.root_run.id", tree.root.to_string())
        .with("aod.capsule.name", capsule(run));
    if let Work::Capsule { image, models, .. } = &launched.work {
        span = span.with("aod.capsule.image_digest", image.config_digest.clone());
        if models.is_some() {
            span = span
                .with("gen_ai.operation.name", operation)
                .with("gen_ai.agent.name", capsule(run));
        }
    }
    if let Some(ended) = run.ended() {
        span = span.with("aod.outcome", ended.event.outcome.as_str());
        if let Some(spent) = &ended.event.usage.models {
            span = spending(span, spent);
        }
    }
    span.failed(error_of(run))
}

fn spending(span: Span, spent: &Spent) -> Span {
    let mut span = span
        .with("gen_ai.usage.input_tokens", spent.input_tokens)
        .with("gen_ai.usage.output_tokens", spent.output_tokens);
    let cost = crate::span::Value::Number(spent.cost.dollars());
    span.attributes.push(("aod.cost_usd", cost));
    span
}

fn error_of(run: &RunHistory) -> Option<String> {
    run.ended()?
        .event
        .error
        .as_ref()
        .map(|error| error.code.clone())
}

/// From each lease to the event that ended it.
fn attempts(trace: TraceId, run: &RunHistory) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Option<Span> = None;
    for Recorded { time, event, .. } in &run.events {
        let end = |span: Span, error: Option<String>| {
            let began = span.began;
            span.during(began, *time).failed(error)
        };
        match event {
            Event::Leased(lease) => {
                let taken_over = Some("node_lost".to_owned());
                spans.extend(open.take().map(|span| end(span, taken_over)));
                open = Some(attempt(trace, run, lease.attempt, &lease.holder).during(*time, *time));
            }
            Event::AttemptLost(lost) => {
                spans.extend(
                    open.take()
                        .map(|span| end(span, Some(lost.error.code.clone()))),
                );
            }
            Event::AttemptRefused(refused) => {
                let error = Some(refused.error.code.clone());
                spans.extend(open.take().map(|span| end(span, error)));
            }
            Event::AttemptFailed(failed) => {
                spans.extend(
                    open.take()
                        .map(|span| end(span, Some(failed.error.code.clone()))),
                );
            }
            Event::Ended(_) => spans.extend(open.take().map(|span| end(span, error_of(run)))),
            Event::Launched(_)
            | Event::Requested(_)
            | Event::Admitted(_)
            | Event::AdmissionReturned(_)
            | Event::Reused(_)
            | Event::Delivered(_)
            | Event::StepEnded(_)
            | Event::CancelRequested(_)
            | Event::Sealed(_) => (),
        }
    }
    spans
}

fn attempt(trace: TraceId, run: &RunHistory, number: u32, holder: &Holder) -> Span {
    let parent = Some(SpanId::of_run(run.id));
    let name = format!("attempt {number}");
    let span = Span::new(trace, SpanId::of_attempt(run.id, number), parent, name)
        .with("aod.run.id", run.id.to_string())
        .with("aod.attempt", number);
    let mut span = match holder {
        Holder::Node { node, .. } => span.with("aod.node.id", node.to_string()),
        Holder::Gateway { gateway } => span.with("aod.gateway.id", gateway.to_string()),
    };
    let notes = run.notes.iter();
    let mine = notes.filter(|note| note.event.kind().attempt == number);
    span.moments = mine.filter_map(moment).collect();
    span
}

/// Refused calls and connections are moments; successful connections are spans.
fn moment(note: &Recorded<Note>) -> Option<Moment> {
    let attributes = match &note.event {
        Note::EgressClosed(_) => return None,
        Note::CallRefused(refused) => vec![
            ("gen_ai.tool.name", refused.target.as_str().into()),
            ("error.type", refused.code.as_str().into()),
        ],
        Note::EgressRefused(refused) => vec![
            ("server.address", refused.host.as_str().into()),
            ("error.type", refused.code.as_str().into()),
        ],
        Note::PreparationStarted(_)
        | Note::CapsuleStarted(_)
        | Note::WaitStarted(_)
        | Note::WaitEnded(_)
        | Note::CollectionStarted(_) => Vec::new(),
    };
    Some(Moment {
        name: note.event.token().to_owned(),
        at: note.time,
        attributes,
    })
}

/// Connections to external hosts.
fn connections(trace: TraceId, run: &RunHistory) -> impl Iterator<Item = Span> {
    run.notes.iter().filter_map(move |note| {
        let Note::EgressClosed(egress) = &note.event else {
            return None;
        };
        let attempt = SpanId::of_attempt(run.id, egress.kind.attempt);
        let name = format!("connect {}", egress.host);
        let span = Span::new(trace, SpanId::of_event(note.id), Some(attempt), name).client();
        Some(
            span.during(before(note.time, egress.duration_ms), note.time)
                .with("server.address", egress.host.as_str())
                .with("server.port", u32::from(egress.port))
                .with("network.peer.address", egress.address.to_string())
                .with("aod.bytes_sent", egress.bytes_sent)
                .with("aod.bytes_received", egress.bytes_received),
        )
    })
}

/// `milliseconds` before `time`.
pub(crate) fn before(time: Timestamp, milliseconds: u64) -> Timestamp {
    time.checked_sub(Duration::from_millis(milliseconds))
        .unwrap_or(Timestamp::MIN)
}
