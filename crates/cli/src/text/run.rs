//! The details of a run, and the result of a registration.

use std::fmt::Write as _;

use aod_api::capsules::RegisteredCapsule;
use aod_api::files::FileView;
use aod_api::runs::{LeftOutView, RefusalView, RunKind, RunView, SpentView};
use aod_domain::spending::Cost;
use jiff::Timestamp;

use super::{problem, units};

/// All details of a run.
pub(crate) fn details(view: &RunView) -> String {
    let run = &view.summary;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    line("run", &run.id.to_string());
    if let Some(parent) = run.parent {
        line("called by", &parent.to_string());
    }
    line(
        match run.kind {
            RunKind::Capsule => "capsule",
            RunKind::Build => "build of",
        },
        &run.capsule,
    );
    line("state", run.state.as_str());
    if let Some(reason) = &view.waits_for {
        line("waits for", reason);
    }
    if let Some(cancel) = &view.cancel {
        line(
            "cancelled",
            &format!("by {}: {}", cancel.requested_by, cancel.reason),
        );
    }
    line(
        "requested",
        &format!(
            "{} by {}",
            run.requested_at.strftime("%Y-%m-%d %H:%M:%SZ"),
            run.requested_by
        ),
    );
    if let Some(end) = run.ended_at {
        line("took", &units::between(run.requested_at, end));
    }
    if !view.deleted.is_empty() {
        line("deleted", &view.deleted.join(", "));
    }
    line("pool", view.pool.as_str());
    placement(&mut line, view);
    line(
        "attempts",
        &format!("{}, {} lost", run.attempts, view.attempts_lost),
    );
    if !view.retries.is_none() {
        let (retries, failed) = (view.retries, view.failed);
        line(
            "retries",
            &format!(
                "{} of {} after failures, {} of {} after timeouts",
                failed.capsule, retries.capsule, failed.time, retries.time
            ),
        );
    }
    deadlines(&mut line, view);
    models(&mut line, view);
    earlier(&mut line, view);
    if let Some(node) = run.node {
        line("node", &node.to_string());
    }
    for (name, value) in &run.labels {
        line("label", &format!("{name}={value}"));
    }
    line("arguments", &view.arguments.to_string());
    files(&mut text, "input file", &view.inputs);
    ending(&mut text, view);
    text
}

/// The requirements of the run, and the refusals of nodes.
fn placement(line: &mut impl FnMut(&str, &str), view: &RunView) {
    let requires = &view.requires;
    let devices = requires.devices.iter();
    let devices = devices.map(|(name, count)| format!("{count} {name}"));
    let cpus = requires.cpu_millis.map(|millis| {
        let cpus = f64::from(millis) / 1_000.0;
        format!("{cpus} processors")
    });
    let memory = requires
        .memory_bytes
        .map(|bytes| format!("{} memory", units::bytes(bytes)));
    let all = requires.attributes.iter().cloned().chain(devices);
    let all: Vec<String> = all.chain(cpus).chain(memory).collect();
    if !all.is_empty() {
        line("requires", &all.join(", "));
    }
    for refusal in &view.refusals {
        let RefusalView {
            node,
            code,
            message,
            ..
        } = refusal;
        line("refused", &format!("by {node}: {message} ({code})"));
    }
}

/// The earlier runs that the run is based on.
fn earlier(line: &mut impl FnMut(&str, &str), view: &RunView) {
    if let Some(old) = view.requeued_from {
        line("requeued", &format!("from the dead letter {old}"));
    }
    if let Some(old) = view.rerun_of {
        line("rerun", &format!("of {old}"));
    }
    if let Some(recorded) = view.reused_from {
        line("result", &format!("reused from {recorded}"));
    }
}

/// The budget of the tree, and its spending on models.
fn models(line: &mut impl FnMut(&str, &str), view: &RunView) {
    if !view.budget.is_none() {
        let dollars = view.budget.cost_usd.map(|dollars| format!("${dollars}"));
        let tokens = view.budget.tokens.map(|tokens| format!("{tokens} tokens"));
        let parts: Vec<_> = dollars.into_iter().chain(tokens).collect();
        line(
            "budget",
            &format!("{} for the whole tree", parts.join(", ")),
        );
    }
    let Some(spending) = &view.spending else {
        return;
    };
    line("models", &spent(&spending.own));
    if spending.tree != spending.own {
        line("in the tree", &spent(&spending.tree));
    }
}

/// `3 calls, 5 tools, 4000 tokens in, 350 out, $0.0041`.
fn spent(spent: &SpentView) -> String {
    let mut text = format!(
        "{} calls, {} tools, {} tokens in, {} out, {}",
        spent.model_calls,
        spent.tool_calls,
        spent.input_tokens,
        spent.output_tokens,
        Cost::from_dollars(spent.cost_usd).unwrap_or_default()
    );
    if spent.unreported_tokens > 0 {
        let _ = write!(
            text,
            ", {} tokens reserved but not reported",
            spent.unreported_tokens
        );
    }
    if spent.unpriced_calls > 0 {
        let _ = write!(text, ", {} calls without a price", spent.unpriced_calls);
    }
    text
}

/// The deadlines of the run and of its time in the queue, and its time limits.
fn deadlines(line: &mut impl FnMut(&str, &str), view: &RunView) {
    let time = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    line("deadline", &time(view.deadline));
    let taken_by = view.queued_until.map_or_else(
        || "until its deadline".to_owned(),
        |until| format!("until {}", time(until)),
    );
    line("queued", &taken_by);
    line("limits", &limits(view));
}

/// The time limit of each part of a run, including parts without a limit.
fn limits(view: &RunView) -> String {
    let seconds = |limit: Option<u32>| {
        limit.map_or_else(|| "no limit".to_owned(), |seconds| format!("{seconds} s"))
    };
    let limits = &view.limits;
    format!(
        "preparation {}, run {} s, heartbeat {}, collection {}",
        seconds(limits.preparation_seconds),
        view.timeout_seconds,
        seconds(limits.heartbeat_seconds),
        seconds(limits.collection_seconds)
    )
}

fn ending(text: &mut String, view: &RunView) {
    let Some(result) = &view.result else { return };
    if let Some(output) = &result.output {
        let _ = writeln!(text, "{:<12}{output}", "output");
    }
    files(text, "output file", &result.files);
    for line in result.left_out.iter().flat_map(left_out) {
        let _ = writeln!(text, "{:<12}{line}", "left out");
    }
    if let Some(error) = &result.error {
        let _ = writeln!(text, "{:<12}{} ({})", "error", error.message, error.code);
        let detail = error.detail.iter();
        for line in detail.flat_map(|detail| problem::detail_lines(detail, &error.message)) {
            let _ = writeln!(text, "{:<12}{line}", "");
        }
    }
}

/// A line for each file that is not stored, as far as the result names them.
pub(crate) fn left_out(left_out: &LeftOutView) -> Vec<String> {
    let mut lines = left_out.reasons.clone();
    let more = left_out.count.saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(format!("{more} more files"));
    }
    lines
}

fn files(text: &mut String, name: &str, files: &[FileView]) {
    for file in files {
        let _ = writeln!(
            text,
            "{name:<12}{}  {}",
            file.name,
            units::bytes(file.size_bytes)
        );
    }
}

/// The result of a registration.
pub(crate) fn registered(registered: &RegisteredCapsule) -> String {
    let capsule = &registered.capsule;
    let content: String = capsule.content.to_string().chars().take(12).collect();
    let what = if registered.is_unchanged {
        "is already registered"
    } else {
        "is registered"
    };
    format!(
        "{} {what}: content {content}, pool {}",
        capsule.name, capsule.pool
    )
}
