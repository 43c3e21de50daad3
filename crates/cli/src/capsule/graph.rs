//! Who may call whom, and what speaks against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aod_domain::contract::{Contract, FileKind};
use aod_domain::file_name::Directory;
use aod_domain::manifest::CapsuleGrant;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::source::{Family, Source};

/// Capsules and the calls that their `tools.yaml` allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Graph {
    pub(crate) capsules: Vec<Node>,
    pub(crate) calls: Vec<Call>,
    /// Ways that lead back to where they begin, which is not repeated at the end.
    pub(crate) cycles: Vec<Vec<String>>,
}

/// A capsule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Whether its directory was found.
    pub(crate) is_known: bool,
}

/// A call that may be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Call {
    pub(crate) caller: String,
    pub(crate) callee: String,
    /// Why it cannot succeed, as far as that can be told without a call.
    pub(crate) problems: Vec<String>,
}

impl Graph {
    pub(crate) fn of(family: &Family) -> Self {
        let mut graph = Self::default();
        for source in &family.members {
            graph.capsules.push(Node {
                name: source.name.to_string(),
                is_known: true,
            });
            for grant in &source.tools.capsules {
                graph.calls.push(call(source, grant, family));
            }
        }
        let known: BTreeSet<String> = graph
            .capsules
            .iter()
            .map(|node| node.name.clone())
            .collect();
        let named: BTreeSet<&String> = graph.calls.iter().map(|call| &call.callee).collect();
        let unknown = named.into_iter().filter(|name| !known.contains(*name));
        graph.capsules.extend(unknown.map(|name| Node {
            name: name.clone(),
            is_known: false,
        }));
        graph.cycles = graph.find_cycles();
        graph
    }

    /// Whom `name` may call.
    pub(crate) fn callees<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.calls.iter().filter(move |call| call.caller == name);
        own.map(|call| call.callee.as_str())
    }

    /// The shortest cycle through each capsule that is on one, each once.
    fn find_cycles(&self) -> Vec<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for node in &self.capsules {
            let Some(cycle) = self.way_back(&node.name) else {
                continue;
            };
            let members: BTreeSet<String> = cycle.iter().cloned().collect();
            if seen.insert(members) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// The shortest way from `start` to itself.
    fn way_back(&self, start: &str) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut pending = VecDeque::from([start]);
        while let Some(name) = pending.pop_front() {
            for callee in self.callees(name) {
                if callee == start {
                    let mut way = vec![name.to_owned()];
                    let mut at = name;
                    while at != start {
                        at = came_from[at];
                        way.push(at.to_owned());
                    }
                    way.reverse();
                    return Some(way);
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
        None => vec!["there is no directory of it".to_owned()],
        Some(callee) => misfits(grant, callee),
    };
    Call {
        caller: caller.name.to_string(),
        callee: callee.map_or_else(|| grant.target.clone(), |callee| callee.name.to_string()),
        problems,
    }
}

/// What of the grant, or of the callee's own schema, makes every call fail.
fn misfits(grant: &CapsuleGrant, callee: &Source) -> Vec<String> {
    let Ok(contract) = Contract::parse(&callee.schema_json) else {
        return Vec::new();
    };
    let schema = contract.input_schema();
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&none);
    // With patterns or references anything may be meant.
    let is_closed = schema.get("additionalProperties") == Some(&json!(false))
        && !schema
            .as_object()
            .is_some_and(|schema| schema.contains_key("patternProperties"));
    let mut problems = Vec::new();
    if is_closed {
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !properties.contains_key(*name)) {
            problems.push(format!("its schema requires {name:?} and does not take it"));
        }
        for name in grant
            .args
            .keys()
            .filter(|name| !properties.contains_key(*name))
        {
            problems.push(format!(
                "`args` has {name:?}, which its schema does not take"
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

/// Why `value` does not fit `property`, a part of `schema`.
fn misfit(schema: &Value, property: &Value, value: &Value) -> Option<String> {
    let mut input = json!({"properties": {"value": property}});
    for keyword in ["$schema", "$defs", "definitions"] {
        if let Some(found) = schema.get(keyword) {
            input[keyword] = found.clone();
        }
    }
    let file = json!({"input": input, "output": {}});
    // References into other parts of the schema lead nowhere here: then nothing is known.
    let contract = Contract::parse(file.to_string().as_bytes()).ok()?;
    let payload = json!({ "value": value });
    let checked = contract.check_input(payload, Directory::Outgoing, &|_| Some(FileKind::File));
    Some(checked.err()?.first()?.message.clone())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A graph of these calls, without problems.
    pub(crate) fn graph(calls: &[(&str, &str)]) -> Graph {
        let names: BTreeSet<&str> = calls
            .iter()
            .flat_map(|(caller, callee)| [*caller, *callee])
            .collect();
        let mut graph = Graph {
            capsules: names
                .into_iter()
                .map(|name| Node {
                    name: name.to_owned(),
                    is_known: true,
                })
                .collect(),
            calls: calls
                .iter()
                .map(|(caller, callee)| Call {
                    caller: (*caller).to_owned(),
                    callee: (*callee).to_owned(),
                    problems: Vec::new(),
                })
                .collect(),
            cycles: Vec::new(),
        };
        graph.cycles = graph.find_cycles();
        graph
    }

    #[test]
    fn cycles_are_named_once() {
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
    fn calls_that_must_fail_are_told() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, schema: &Value, tools: &str| {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            let files = [
                ("Dockerfile", "FROM scratch\nCMD x\n"),
                ("schema.json", &schema.to_string()),
                ("tools.yaml", tools),
            ];
            for (file, text) in files {
                std::fs::write(directory.join(file), text).unwrap();
            }
            directory
        };
        let input = json!({
            "$defs": {"kind": {"enum": ["bar"]}}, "additionalProperties": false, "required": ["gone"],
            "properties": {"kind": {"$ref": "#/$defs/kind"}, "rows": {"type": "integer"}},
        });
        write("chart", &json!({"input": input, "output": {}}), "");
        let tools = "capsules:\n- {name: chart, args: {kind: pie, rows: 3, size: 1}}\n- report\n";
        let caller = write("survey", &json!({"input": {}, "output": {}}), tools);
        let graph = Graph::of(&Family::gather(&[caller], &[]).unwrap());
        let problems: Vec<&[String]> = graph
            .calls
            .iter()
            .map(|call| call.problems.as_slice())
            .collect();
        assert_eq!(problems[1], ["there is no directory of it"]);
        assert_eq!(
            problems[0][..2],
            [
                "its schema requires \"gone\" and does not take it",
                "`args` has \"size\", which its schema does not take"
            ]
        );
        assert!(problems[0][2].starts_with("`args` has \"kind\": "));
        assert_eq!(problems[0].len(), 3);
    }
}
