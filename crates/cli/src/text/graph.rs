//! Who may call whom, as lines.

use std::fmt::Write as _;

use crate::capsule::graph::Graph;

/// A line for each capsule with those that it may call, then what speaks against calls, then cycles.
pub(crate) fn lines(graph: &Graph) -> String {
    let mut text = String::new();
    // Writing to memory does not fail.
    for node in graph.capsules.iter().filter(|node| node.is_known) {
        let callees: Vec<&str> = graph.callees(&node.name).collect();
        let _ = match callees[..] {
            [] => writeln!(text, "{}", node.name),
            _ => writeln!(text, "{} -> {}", node.name, callees.join(", ")),
        };
    }
    for call in &graph.calls {
        for problem in &call.problems {
            let _ = writeln!(text, "{} -> {}: {problem}", call.caller, call.callee);
        }
    }
    for cycle in &graph.cycles {
        let _ = writeln!(text, "cycle: {} -> {}", cycle.join(" -> "), cycle[0]);
    }
    text
}
