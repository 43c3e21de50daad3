//! Lists as tables.

use aod_api::capsules::CapsuleView;
use aod_api::files::FileView;
use aod_api::nodes::{DevicesView, NodeView};
use aod_api::runs::{RunKind, RunSummary};
use aod_domain::spending::Cost;
use comfy_table::presets;
use comfy_table::{CellAlignment, Table};

use super::units;

/// A table without borders and as narrow as its text, so that `cut` and `awk` can read it.
pub(super) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}

/// The text of a table, without trailing spaces.
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

/// Runs, the latest first.
pub(crate) fn runs(runs: &[RunSummary]) -> String {
    if runs.is_empty() {
        return nothing("runs");
    }
    let mut table = plain(&[
        "RUN", "CAPSULE", "STATE", "STARTED", "TOOK", "COST", "BY", "ERROR",
    ]);
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
            run.leased_at
                .map(|start| start.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
                .unwrap_or_default(),
            run.ended_at
                .map(|end| units::between(run.requested_at, end))
                .unwrap_or_default(),
            run.cost_usd
                .and_then(Cost::from_dollars)
                .map(|cost| cost.to_string())
                .unwrap_or_default(),
            // Equal for all runs of a tree: printed for the root.
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

/// Files with their sizes.
pub(crate) fn files(files: &[FileView]) -> String {
    if files.is_empty() {
        return nothing("files");
    }
    let mut table = plain(&["FILE", "SIZE"]);
    for file in files {
        table.add_row([file.name.to_string(), units::bytes(file.size_bytes)]);
    }
    finish(&mut table)
}

/// Registered capsules.
pub(crate) fn capsules(capsules: &[CapsuleView]) -> String {
    if capsules.is_empty() {
        return nothing("capsules");
    }
    let mut table = plain(&[
        "CAPSULE", "TITLE", "POOL", "MEMORY", "TIMEOUT", "CALLS", "CONTENT",
    ]);
    for capsule in capsules {
        let calls = match &capsule.handoffs {
            None => "any capsule".to_owned(),
            Some(names) => names.join(", "),
        };
        table.add_row([
            capsule.name.clone(),
            capsule.title.clone().unwrap_or_default(),
            capsule.pool.clone(),
            units::bytes(capsule.resources.memory_bytes),
            format!("{} s", capsule.resources.timeout_seconds),
            calls,
            capsule.content.to_string().chars().take(12).collect(),
        ]);
    }
    finish(&mut table)
}

/// The attributes of a node, and its devices with the number of free ones.
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

/// The live nodes.
pub(crate) fn nodes(nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return nothing("nodes");
    }
    let mut table = plain(&[
        "NODE",
        "HOST",
        "POOLS",
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
            node.pools.join(", "),
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
