//! A run and all runs below it, drawn as a tree.

use aod_api::runs::{RunState, RunSummary, TreeNode};
use comfy_table::{CellAlignment, Table};
use jiff::{SignedDuration, Timestamp};

use super::{table, units};

/// Maximum depth of a drawn tree, above the maximum depth of calls.
const DEPTH_MAX: usize = 64;

/// The columns of times, right-aligned.
const TIME_COLUMNS: std::ops::RangeInclusive<usize> = 2..=4;

/// The tree of `root`, with times at `now`.
pub(crate) fn draw(root: &TreeNode, now: Timestamp) -> String {
    let mut drawing = table::plain(&[
        "CAPSULE", "STATE", "TOOK", "QUEUED", "WAITED", "NODE", "RUN",
    ]);
    let row = |node: &TreeNode, branch: &str| row(node, branch, now);
    add(&mut drawing, root, &|node| &node.children, &row);
    for index in TIME_COLUMNS {
        if let Some(column) = drawing.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table::finish(&mut drawing)
}

/// Adds `root` and all nodes below it; `row` gets the lines of the branch to its node.
pub(super) fn add<N>(
    drawing: &mut Table,
    root: &N,
    children: &impl Fn(&N) -> &[N],
    row: &impl Fn(&N, &str) -> Vec<String>,
) {
    let mut rows = Vec::new();
    collect(&mut rows, root, children, row, ["", ""], 0);
    drawing.add_rows(rows);
}

/// Adds `node` after `branch`, and the nodes below it after `indent`.
fn collect<N>(
    rows: &mut Vec<Vec<String>>,
    node: &N,
    children: &impl Fn(&N) -> &[N],
    row: &impl Fn(&N, &str) -> Vec<String>,
    [branch, indent]: [&str; 2],
    depth: usize,
) {
    rows.push(row(node, branch));
    if depth >= DEPTH_MAX {
        return;
    }
    let below = children(node);
    let last = below.len().saturating_sub(1);
    for (index, child) in below.iter().enumerate() {
        let (branch, below) = if index == last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let (branch, below) = (format!("{indent}{branch}"), format!("{indent}{below}"));
        collect(rows, child, children, row, [&branch, &below], depth + 1);
    }
}

/// A state, with its error code.
pub(super) fn state(run: &RunSummary) -> String {
    match &run.error {
        Some(error) => format!("{} ({})", run.state.as_str(), error.code),
        None => run.state.as_str().to_owned(),
    }
}

fn row(node: &TreeNode, branch: &str, now: Timestamp) -> Vec<String> {
    let run = &node.run;
    vec![
        format!("{branch}{}", run.capsule),
        match node.reused_from {
            Some(_) => format!("{}, reused", state(run)),
            None => state(run),
        },
        units::between(run.requested_at, run.ended_at.unwrap_or(now)),
        queued(node, now),
        waited(node),
        run.node.map(|node| node.to_string()).unwrap_or_default(),
        run.id.to_string(),
    ]
}

/// The time in the queue; empty if unknown.
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

/// The time of waiting for callees.
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
