//! The graph of permitted calls between capsules, and calls in it that must fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aod_domain::contract::{Contract, FileKind};
use aod_domain::file_name::Directory;
use aod_domain::manifest::CapsuleGrant;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::source::{Family, Source};

/// Capsules, and the calls that their `tools.yaml` permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Graph {
    pub capsules: Vec<Node>,
    pub calls: Vec<Call>,
    /// Cycles of calls; the first capsule is not repeated at the end.
    pub cycles: Vec<Vec<String>>,
}

/// A capsule, known or only named by a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    pub name: String,
    /// Whether `aod` found its directory.
    pub is_known: bool,
}

/// A permitted call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    pub caller: String,
    pub callee: String,
    /// The reasons why every such call must fail, found statically.
    pub problems: Vec<String>,
}

impl Call {
    /// A call without problems.
    pub fn new(caller: &str, callee: &str) -> Self {
        Self {
            caller: caller.to_owned(),
            callee: callee.to_owned(),
            problems: Vec::new(),
        }
    }
}

impl Graph {
    /// The graph of the capsules in `family`, and of the callees without a directory.
    pub fn of(family: &Family) -> Self {
        let members = family.members.iter();
        let known = members.clone().map(|source| source.name.to_string());
        let calls = members.flat_map(|source| {
            let grants = source.tools.capsules.iter();
            grants.map(|grant| call(source, grant, family))
        });
        Self::of_calls(known.collect(), calls.collect())
    }

    /// The graph of `calls`, with the capsules `known` and all other callees.
    pub fn of_calls(known: Vec<String>, calls: Vec<Call>) -> Self {
        let named: BTreeSet<&String> = calls.iter().map(|call| &call.callee).collect();
        let unknown = named.into_iter().filter(|name| !known.contains(name));
        let unknown: Vec<String> = unknown.cloned().collect();
        let known = known.into_iter().map(|name| (name, true));
        let capsules = known.chain(unknown.into_iter().map(|name| (name, false)));
        let mut graph = Self {
            capsules: capsules
                .map(|(name, is_known)| Node { name, is_known })
                .collect(),
            calls,
            cycles: Vec::new(),
        };
        graph.cycles = graph.find_cycles();
        graph
    }

    /// The callees of `name`.
    pub fn callees<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.calls.iter().filter(move |call| call.caller == name);
        own.map(|call| call.callee.as_str())
    }

    /// For each capsule in a cycle, the shortest cycle through it; each cycle once.
    fn find_cycles(&self) -> Vec<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for node in &self.capsules {
            let Some(cycle) = self.cycle_through(&node.name) else {
                continue;
            };
            let members: BTreeSet<String> = cycle.iter().cloned().collect();
            if seen.insert(members) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// The shortest path from `start` to itself.
    fn cycle_through(&self, start: &str) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut pending = VecDeque::from([start]);
        while let Some(name) = pending.pop_front() {
            for callee in self.callees(name) {
                if callee == start {
                    let mut path = vec![name.to_owned()];
                    let mut at = name;
                    while at != start {
                        at = came_from[at];
                        path.push(at.to_owned());
                    }
                    path.reverse();
                    return Some(path);
                }
                if !came_from.contains_key(callee) {
                    came_from.insert(callee, name);
                    pending.push_back(callee);
                }
            }
        }
        None
    }
}

fn call(caller: &Source, grant: &CapsuleGrant, family: &Family) -> Call {
    let callee = family.get(&grant.target);
    let problems = match callee {
        None => vec!["cannot find the directory of the callee".to_owned()],
        Some(callee) => misfits(grant, callee),
    };
    let callee = callee.map_or(grant.target.as_str(), |callee| callee.name.as_str());
    Call {
        problems,
        ..Call::new(caller.name.as_str(), callee)
    }
}

/// The parts of the grant or of the callee's schema that make every call fail.
fn misfits(grant: &CapsuleGrant, callee: &Source) -> Vec<String> {
    let Ok(contract) = Contract::parse(&callee.schema_json) else {
        return Vec::new();
    };
    let schema = contract.input_schema();
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&none);
    // A schema with patterns can accept any name.
    let is_closed = schema.get("additionalProperties") == Some(&json!(false))
        && !schema
            .as_object()
            .is_some_and(|schema| schema.contains_key("patternProperties"));
    let mut problems = Vec::new();
    if is_closed {
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !properties.contains_key(*name)) {
            problems.push(format!(
                "the schema of the callee requires {name:?}, but does not allow this property"
            ));
        }
        for name in grant
            .args
            .keys()
            .filter(|name| !properties.contains_key(*name))
        {
            problems.push(format!(
                "`args` has {name:?}, which the schema of the callee does not allow"
            ));
        }
    }
    for (name, value) in &grant.args {
        if let Some(property) = properties.get(name)
            && let Some(problem) = misfit(schema, property, value)
        {
            problems.push(format!("`args` has {name:?}: {problem}"));
        }
    }
    problems
}

/// Why `value` does not match `property`, a part of `schema`.
fn misfit(schema: &Value, property: &Value, value: &Value) -> Option<String> {
    let mut input = json!({"properties": {"value": property}});
    for keyword in ["$schema", "$defs", "definitions"] {
        if let Some(found) = schema.get(keyword) {
            input[keyword] = found.clone();
        }
    }
    let file = json!({"input": input, "output": {}});
    // A reference into another part of the schema cannot be resolved here: then report nothing.
    let contract = Contract::parse(file.to_string().as_bytes()).ok()?;
    let payload = json!({ "value": value });
    let checked = contract.check_input(payload, Directory::Outgoing, &|_| Some(FileKind::File));
    Some(checked.err()?.first()?.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::write;

    /// A graph of these calls, without problems.
    fn graph(calls: &[(&str, &str)]) -> Graph {
        let names: BTreeSet<&str> = calls.iter().flat_map(|&(from, to)| [from, to]).collect();
        let calls = calls.iter().map(|&(from, to)| Call::new(from, to));
        Graph::of_calls(
            names.into_iter().map(str::to_owned).collect(),
            calls.collect(),
        )
    }

    #[test]
    fn each_cycle_is_reported_once() {
        assert_eq!(
            graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]).cycles,
            Vec::<Vec<String>>::new()
        );
        assert_eq!(
            graph(&[
                ("a", "b"),
                ("b", "c"),
                ("c", "a"),
                ("c", "b"),
                ("d", "d"),
                ("d", "a")
            ])
            .cycles,
            [vec!["a", "b", "c"], vec!["b", "c"], vec!["d"]]
        );
    }

    #[test]
    fn calls_that_must_fail_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let input = json!({
            "$defs": {"kind": {"enum": ["bar"]}}, "additionalProperties": false, "required": ["gone"],
            "properties": {"kind": {"$ref": "#/$defs/kind"}, "rows": {"type": "integer"}},
        });
        let schema = json!({"input": input, "output": {}}).to_string();
        let callee = write(root.path(), "chart", "", "");
        std::fs::write(callee.join("schema.json"), schema).unwrap();
        let tools = "capsules:\n- {name: chart, args: {kind: pie, rows: 3, size: 1}}\n- report\n";
        let caller = write(root.path(), "survey", "", tools);
        let graph = Graph::of(&Family::gather(&[caller], &[]).unwrap());
        let problems: Vec<&[String]> = graph
            .calls
            .iter()
            .map(|call| call.problems.as_slice())
            .collect();
        assert_eq!(problems[1], ["cannot find the directory of the callee"]);
        assert_eq!(
            problems[0][..2],
            [
                "the schema of the callee requires \"gone\", but does not allow this property",
                "`args` has \"size\", which the schema of the callee does not allow"
            ]
        );
        assert!(problems[0][2].starts_with("`args` has \"kind\": "));
        assert_eq!(problems[0].len(), 3);
    }
}
