//! The graph of permitted calls as an SVG picture: capsules in rows, callers above their callees.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aod_kit::graph::{Call, Graph, Node};

/// Lengths are in pixels.
const BOX_HEIGHT: usize = 34;
const ROW_HEIGHT: usize = 96;
const GAP: usize = 28;
const MARGIN: usize = 40;
/// Maximum width of a letter of the monospaced font, and the space around a name.
const LETTER_WIDTH: usize = 9;
const PADDING: usize = 24;

/// The position of a capsule.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
}

impl Place {
    fn middle(self) -> usize {
        self.x + self.width / 2
    }
}

/// The graph as an SVG document.
pub(crate) fn svg(graph: &Graph) -> String {
    let rows = rows(graph);
    let width_of = |row: &Vec<&Node>| {
        let boxes: usize = row.iter().map(|node| width(node)).sum();
        boxes + GAP * row.len().saturating_sub(1)
    };
    let widest = rows.iter().map(width_of).max().unwrap_or_default();
    let (width, height) = (
        widest + 2 * MARGIN,
        rows.len().saturating_sub(1) * ROW_HEIGHT + BOX_HEIGHT + 2 * MARGIN,
    );
    let mut places = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let mut x = MARGIN + (widest - width_of(row)) / 2;
        for node in row {
            let place = Place {
                x,
                y: MARGIN + number * ROW_HEIGHT,
                width: self::width(node),
            };
            x += place.width + GAP;
            places.insert(node.name.as_str(), place);
        }
    }
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"14\">\n{HEAD}"
    );
    for call in &graph.calls {
        arrow(&mut text, call, &places);
    }
    for node in rows.iter().flatten() {
        capsule(&mut text, node, places[node.name.as_str()]);
    }
    text + "</svg>\n"
}

const HEAD: &str = "  <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
    markerHeight=\"8\" orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" fill=\"#456\"/></marker></defs>\n  \
    <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";

fn width(node: &Node) -> usize {
    node.name.chars().count() * LETTER_WIDTH + PADDING
}

/// Places each capsule one row below its lowest caller; ignores calls that close a cycle.
fn rows(graph: &Graph) -> Vec<Vec<&Node>> {
    let mut row_of: BTreeMap<&str, usize> = BTreeMap::new();
    let called = |node: &&Node| graph.calls.iter().any(|call| call.callee == node.name);
    let roots = graph.capsules.iter().filter(|node| !called(node));
    // A cycle without a caller outside has no root: start at any capsule of it.
    for node in roots.chain(&graph.capsules) {
        if !row_of.contains_key(node.name.as_str()) {
            sink(graph, &node.name, 0, &mut Vec::new(), &mut row_of);
        }
    }
    let count = row_of.values().max().map_or(0, |row| row + 1);
    let mut rows = vec![Vec::new(); count];
    for node in &graph.capsules {
        rows[row_of[node.name.as_str()]].push(node);
    }
    rows
}

/// Moves `name` down to `row` if it is above, and its callees below it.
fn sink<'g>(
    graph: &'g Graph,
    name: &'g str,
    row: usize,
    callers: &mut Vec<&'g str>,
    row_of: &mut BTreeMap<&'g str, usize>,
) {
    if callers.contains(&name) || row_of.get(name).is_some_and(|&known| known >= row) {
        return;
    }
    row_of.insert(name, row);
    callers.push(name);
    for callee in graph.callees(name) {
        sink(graph, callee, row + 1, callers, row_of);
    }
    callers.pop();
}

/// An arrow to the next row, around the rows between to a lower row, or dashed to a higher row.
fn arrow(text: &mut String, call: &Call, places: &BTreeMap<&str, Place>) {
    let (from, to) = (places[call.caller.as_str()], places[call.callee.as_str()]);
    let colour = if call.problems.is_empty() {
        "#456"
    } else {
        "#c33"
    };
    let style = format!("fill=\"none\" stroke=\"{colour}\" marker-end=\"url(#end)\"");
    let (start, end) = (from.y + BOX_HEIGHT, to.y);
    // Writing to memory does not fail.
    let _ = if end > start && end - start < ROW_HEIGHT {
        let half = usize::midpoint(start, end);
        let (x, y) = (from.middle(), to.middle());
        writeln!(
            text,
            "  <path d=\"M{x} {start}C{x} {half} {y} {half} {y} {end}\" {style}/>"
        )
    } else if end > start {
        // Along the left edge, because boxes of the rows between would hide the arrow.
        let (x, y) = (from.x, to.x);
        let (from, to) = (from.y + BOX_HEIGHT / 2, to.y + BOX_HEIGHT / 2);
        writeln!(
            text,
            "  <path d=\"M{x} {from}C0 {from} 0 {to} {y} {to}\" {style}/>"
        )
    } else {
        let (x, y) = (from.x + from.width, to.x + to.width);
        let side = x.max(y) + MARGIN;
        let (from, to) = (from.y + BOX_HEIGHT / 2, to.y + BOX_HEIGHT / 4);
        writeln!(
            text,
            "  <path d=\"M{x} {from}C{side} {from} {side} {to} {y} {to}\" {style} stroke-dasharray=\"5 4\"/>"
        )
    };
}

/// A box with a name; a dashed one for a capsule without a directory.
fn capsule(text: &mut String, node: &Node, place: Place) {
    let Place { x, y, width } = place;
    let dashes = if node.is_known {
        ""
    } else {
        " stroke-dasharray=\"5 4\""
    };
    let (middle, line) = (place.middle(), y + BOX_HEIGHT / 2 + 5);
    let name = node.name.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        text,
        "  <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"6\" fill=\"#eef3f8\" stroke=\"#456\"{dashes}/>\n  \
         <text x=\"{middle}\" y=\"{line}\" text-anchor=\"middle\" fill=\"#123\">{name}</text>"
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A graph of these calls, without problems.
    fn graph(calls: &[(&str, &str)]) -> Graph {
        let names: BTreeSet<&str> = calls.iter().flat_map(|&(from, to)| [from, to]).collect();
        let calls = calls.iter().map(|&(from, to)| Call::new(from, to));
        Graph::of_calls(
            names.into_iter().map(str::to_owned).collect(),
            calls.collect(),
        )
    }

    fn names(graph: &Graph) -> Vec<Vec<&str>> {
        let rows = rows(graph).into_iter();
        rows.map(|row| row.iter().map(|node| node.name.as_str()).collect())
            .collect()
    }

    #[test]
    fn callers_are_drawn_above_their_callees() {
        let calls = [
            ("survey", "chart"),
            ("survey", "report"),
            ("report", "chart"),
        ];
        assert_eq!(
            names(&graph(&calls)),
            [vec!["survey"], vec!["report"], vec!["chart"]]
        );
        let cycle = [("a", "b"), ("b", "c"), ("c", "a")];
        assert_eq!(names(&graph(&cycle)), [vec!["a"], vec!["b"], vec!["c"]]);
    }

    #[test]
    fn picture_has_a_box_per_capsule_and_an_arrow_per_call() {
        let mut graph = graph(&[("survey", "chart"), ("chart", "survey")]);
        graph.capsules[0].is_known = false;
        graph.calls[0].problems.push("no".into());
        insta::assert_snapshot!(svg(&graph));
    }
}
