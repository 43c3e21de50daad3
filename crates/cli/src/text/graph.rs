//! The graph of permitted calls, as text.

use std::fmt::Write as _;

use aod_kit::graph::Graph;

/// A line for each capsule with its callees, then problems of calls, then cycles.
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
