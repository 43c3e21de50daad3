//! Lists as tables.

use aod_api::capsules::CapsuleView;
use aod_api::nodes::{DevicesView, NodeView};
use aod_api::runs::{RunKind, RunSummary};
use comfy_table::presets;
use comfy_table::{CellAlignment, Table};
use jiff::Timestamp;

use super::units;

/// A table without lines, which is easy to cut, and never wider than its text.
pub(super) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// The text of a table: no blanks at the ends of lines.
pub(super) fn finish(table: &mut Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

pub(super) fn nothing(what: &str) -> String {
    format!("no {what}")
}

/// Runs, the latest first, as they stand at `now`.
pub(crate) fn runs(runs: &[RunSummary], now: Timestamp) -> String {
    if runs.is_empty() {
        return nothing("runs");
    }
    let mut table = plain(&["RUN", "CAPSULE", "STATE", "AGE", "TOOK", "BY", "ERROR"]);
    for run in runs {
        let capsule = match run.kind {
            RunKind::Capsule => run.capsule.clone(),
            RunKind::Build => format!("{} (build)", run.capsule),
        };
        let error = run
            .error
            .as_ref()
            .map(|error| error.code.clone())
            .unwrap_or_default();
        table.add_row([
            run.id.to_string(),
            capsule,
            run.state.as_str().to_owned(),
            units::between(run.requested_at, now),
            run.ended_at
                .map(|end| units::between(run.requested_at, end))
                .unwrap_or_default(),
            // Who called stands in the id already.
            if run.parent.is_none() {
                run.requested_by.clone()
            } else {
                String::new()
            },
            error,
        ]);
    }
    finish(&mut table)
}

/// Registered capsules.
pub(crate) fn capsules(capsules: &[CapsuleView]) -> String {
    if capsules.is_empty() {
        return nothing("capsules");
    }
    let mut table = plain(&[
        "CAPSULE", "TITLE", "LABEL", "MEMORY", "TIMEOUT", "CALLS", "CONTENT",
    ]);
    for capsule in capsules {
        let calls = match &capsule.handoffs {
            None => "everyone".to_owned(),
            Some(names) => names.join(", "),
        };
        table.add_row([
            capsule.name.clone(),
            capsule.title.clone().unwrap_or_default(),
            capsule.label.clone(),
            units::bytes(capsule.resources.memory_bytes),
            format!("{} s", capsule.resources.timeout_seconds),
            calls,
            capsule.content.to_string().chars().take(12).collect(),
        ]);
    }
    finish(&mut table)
}

/// Its attributes, and its devices with how many of them are free.
fn equipment(node: &NodeView) -> String {
    let attributes = node.attributes.iter();
    let attributes = attributes.map(|(name, value)| format!("{name}={value}"));
    let devices = node.devices.iter();
    let devices = devices.map(|(name, devices)| {
        let DevicesView { count, free } = devices;
        format!("{free} of {count} {name}")
    });
    let all: Vec<String> = attributes.chain(devices).collect();
    all.join(", ")
}

/// Nodes that are there.
pub(crate) fn nodes(nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return nothing("nodes");
    }
    let mut table = plain(&[
        "NODE",
        "HOST",
        "LABELS",
        "HAS",
        "SLOTS",
        "RUNNING",
        "WAITING",
        "CONTAINERS",
        "STATE",
    ]);
    for node in nodes {
        let state = match (&node.not_ready, node.draining) {
            (Some(reason), _) => format!("not ready: {reason}"),
            (None, true) => "draining".to_owned(),
            (None, false) => match &node.no_roots {
                Some(reason) => format!("no new trees: {reason}"),
                None => "ready".to_owned(),
            },
        };
        table.add_row([
            node.id.to_string(),
            node.host.clone(),
            node.labels.join(", "),
            equipment(node),
            node.slots.to_string(),
            node.running.to_string(),
            node.waiting.to_string(),
            node.containers.to_string(),
            state,
        ]);
    }
    for index in 4..=7 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    finish(&mut table)
}
