//! A run with everything that it called, drawn.

use aod_api::runs::{RunState, TreeNode};
use comfy_table::{CellAlignment, Table};
use jiff::{SignedDuration, Timestamp};

use super::{table, units};

/// Deepest tree that is drawn: calls are never nested so deep.
const DEPTH_MAX: usize = 64;

/// The columns of times: right-aligned, so that they compare.
const TIME_COLUMNS: std::ops::RangeInclusive<usize> = 2..=4;

/// The tree below and including `root`, as it stands at `now`.
pub(crate) fn draw(root: &TreeNode, now: Timestamp) -> String {
    let mut drawing = table::plain(&[
        "CAPSULE", "STATE", "TOOK", "QUEUED", "WAITED", "NODE", "RUN",
    ]);
    add(&mut drawing, root, now, "", "", 0);
    for index in TIME_COLUMNS {
        if let Some(column) = drawing.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table::finish(&mut drawing)
}

/// Adds `node` behind `branch`; what is below it stands behind `indent`.
fn add(
    drawing: &mut Table,
    node: &TreeNode,
    now: Timestamp,
    branch: &str,
    indent: &str,
    depth: usize,
) {
    let run = &node.run;
    let state = match &run.error {
        Some(error) => format!("{} ({})", run.state.as_str(), error.code),
        None => run.state.as_str().to_owned(),
    };
    drawing.add_row([
        format!("{branch}{}", run.capsule),
        state,
        units::between(run.requested_at, run.ended_at.unwrap_or(now)),
        queued(node, now),
        waited(node),
        run.node.map(|node| node.to_string()).unwrap_or_default(),
        run.id.to_string(),
    ]);
    if depth >= DEPTH_MAX {
        return;
    }
    let last = node.children.len().saturating_sub(1);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, below) = if index == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let branch = format!("{indent}{branch}");
        let below = format!("{indent}{below}");
        add(drawing, child, now, &branch, &below, depth + 1);
    }
}

/// How long no node had it; nothing where that is not known yet.
fn queued(node: &TreeNode, now: Timestamp) -> String {
    let requested = node.run.requested_at;
    match (&node.timings, node.run.state) {
        (Some(timings), _) => timings
            .leased_at
            .map(|leased| units::between(requested, leased))
            .unwrap_or_default(),
        (None, RunState::Queued) => units::between(requested, now),
        (None, _) => String::new(),
    }
}

/// How long it waited for what it called.
fn waited(node: &TreeNode) -> String {
    let waiting = node
        .timings
        .as_ref()
        .map_or(0, |timings| timings.waiting_milliseconds);
    match waiting {
        0 => String::new(),
        milliseconds => units::duration(SignedDuration::from_millis(
            i64::try_from(milliseconds).unwrap_or(i64::MAX),
        )),
    }
}
