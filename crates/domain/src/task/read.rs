//! Reads a workflow file, with all its problems and warnings.

mod check;
mod steps;

use std::collections::BTreeSet;

use super::{Input, InputType, Output, OutputType, Settings, Workflow};
use crate::text::quoted;
use crate::yaml::{Content, Mapping, Node, Outcome, Reader};

/// Largest workflow, in bytes: long prompts are files of the workspace.
pub const WORKFLOW_SIZE_BYTES_MAX: usize = 1 << 20;

/// Longest time limit, in seconds: the longest lifetime of a run, 30 days.
const TIMEOUT_SECONDS_MAX: i64 = 30 * 24 * 60 * 60;

/// Maximum of `loopLimit` and `maxIterations`.
const ITERATIONS_MAX: i64 = 10_000;

/// Reads a workflow of at most [`WORKFLOW_SIZE_BYTES_MAX`]. `file` names it in problems.
///
/// An unknown key is a warning, as are variables that can have no value. With `is_strict`, an output of type
/// `file` without `filename` is a problem.
pub fn read(file: &str, yaml: &[u8], is_strict: bool) -> Outcome<Workflow> {
    let outcome = Reader::outcome(file, yaml, WORKFLOW_SIZE_BYTES_MAX, |reader, root| {
        let Some(root) = root else {
            reader.problem_at(
                crate::yaml::Place::default(),
                "an empty file; expected a workflow".to_owned(),
            );
            return None;
        };
        let mut reading = Reading {
            reader,
            is_strict,
            seen: check::Seen::default(),
        };
        reading.workflow(root)
    });
    Outcome {
        value: outcome.value.flatten(),
        problems: outcome.problems,
        warnings: outcome.warnings,
    }
}

/// A file while it is read.
struct Reading<'a> {
    reader: &'a mut Reader,
    is_strict: bool,
    seen: check::Seen,
}

impl Reading<'_> {
    fn workflow(&mut self, root: Node) -> Option<Workflow> {
        let place = root.place;
        let workflow = self.open(root, |reading, fields| {
            // Older files have other versions or none; the format is the same.
            fields.take_any("version");
            let name = reading.required_text(fields, "name");
            let description = reading.optional_text(fields, "description");
            let inputs = reading.inputs(fields);
            let outputs = reading.outputs(fields);
            let (tool, model) = reading.defaults(fields);
            let config = reading.config(fields);
            let steps = reading.top_steps(fields);
            Some(Workflow {
                name: name?,
                description,
                inputs,
                outputs,
                settings: Settings {
                    tool,
                    model,
                    ..config
                },
                steps: steps?,
            })
        })??;
        check::whole(self, place, &workflow);
        Some(workflow)
    }

    /// Reads a mapping; fields that `read` does not take are warnings.
    fn open<T>(
        &mut self,
        node: Node,
        read: impl FnOnce(&mut Reading<'_>, &mut Mapping) -> T,
    ) -> Option<T> {
        let (is_strict, seen) = (self.is_strict, &mut self.seen);
        self.reader.open_mapping(node, |reader, fields| {
            let mut reading = Reading {
                reader,
                is_strict,
                seen: std::mem::take(seen),
            };
            let value = read(&mut reading, fields);
            *seen = reading.seen;
            value
        })
    }

    fn required_text(&mut self, fields: &mut Mapping, key: &'static str) -> Option<String> {
        self.reader.required(fields, key, |reader, node| {
            let (place, text) = (node.place, reader.text(node)?);
            if text.trim().is_empty() {
                reader.problem_at(place, format!("an empty {key}; expected a text"));
                return None;
            }
            Some(text)
        })
    }

    fn optional_text(&mut self, fields: &mut Mapping, key: &'static str) -> Option<String> {
        self.reader.field(fields, key, Reader::text)
    }

    fn flag(&mut self, fields: &mut Mapping, key: &'static str) -> bool {
        let flag = self.reader.field(fields, key, Reader::boolean);
        flag.unwrap_or_default()
    }

    fn seconds(&mut self, fields: &mut Mapping, key: &'static str) -> Option<u32> {
        self.reader.field(fields, key, |reader, node| {
            reader.integer(node, 1..=TIMEOUT_SECONDS_MAX)
        })
    }

    /// The items of a list; an absent list has none, and a list that is null is a problem.
    fn items<T>(
        &mut self,
        fields: &mut Mapping,
        key: &'static str,
        mut read: impl FnMut(&mut Reading<'_>, Node) -> Option<T>,
    ) -> Vec<T> {
        let Some(node) = fields.take_any(key) else {
            return Vec::new();
        };
        let Content::List(items) = node.content else {
            let found = node.found();
            let message = format!("{found} found; expected a list, or no key {key:?}");
            self.reader.problem_at(node.place, message);
            return Vec::new();
        };
        items
            .into_iter()
            .filter_map(|item| read(self, item))
            .collect()
    }

    fn inputs(&mut self, fields: &mut Mapping) -> Vec<Input> {
        const TYPES: [(&str, InputType); 3] = [
            ("string", InputType::Text),
            ("number", InputType::Number),
            ("boolean", InputType::Boolean),
        ];
        let mut names = BTreeSet::new();
        self.items(fields, "inputs", |reading, item| {
            let place = item.place;
            let input = reading.open(item, |reading, fields| {
                let name = reading.required_text(fields, "name");
                let description = reading.optional_text(fields, "description");
                let choice = |reader: &mut Reader, node| reader.choice(node, &TYPES);
                let kind = reading.reader.required(fields, "type", choice);
                let is_required = reading.reader.required(fields, "required", Reader::boolean);
                let default = fields.take("default").map(Node::into_json);
                Some(Input {
                    name: name?,
                    description,
                    kind: kind?,
                    is_required: is_required?,
                    default,
                })
            })??;
            if !names.insert(input.name.clone()) {
                let message = format!("the input {} is defined twice", quoted(&input.name));
                reading.reader.problem_at(place, message);
            }
            if let Some(default) = &input.default
                && !input.kind.accepts(default)
            {
                let message = format!(
                    "the default of {} does not have its type; expected {}",
                    quoted(&input.name),
                    input.kind.as_str()
                );
                reading.reader.problem_at(place, message);
            }
            Some(input)
        })
    }

    fn outputs(&mut self, fields: &mut Mapping) -> Vec<Output> {
        #[derive(Clone, Copy)]
        enum Type {
            Text,
            Number,
            Boolean,
            File,
        }
        const TYPES: [(&str, Type); 4] = [
            ("string", Type::Text),
            ("number", Type::Number),
            ("boolean", Type::Boolean),
            ("file", Type::File),
        ];
        self.items(fields, "outputs", |reading, item| {
            let place = item.place;
            reading.open(item, |reading, fields| {
                let name = reading.required_text(fields, "name");
                let description = reading.optional_text(fields, "description");
                let choice = |reader: &mut Reader, node| reader.choice(node, &TYPES);
                let kind = reading.reader.required(fields, "type", choice);
                let path = reading.optional_text(fields, "filename");
                let is_required = reading.flag(fields, "required");
                if reading.is_strict && path.is_none() && matches!(kind, Some(Type::File)) {
                    let text = "the required key \"filename\" of a file is missing";
                    reading.reader.problem_at(place, text.to_owned());
                }
                Some(Output {
                    name: name?,
                    description,
                    kind: match kind? {
                        Type::Text => OutputType::Text,
                        Type::Number => OutputType::Number,
                        Type::Boolean => OutputType::Boolean,
                        Type::File => OutputType::File(path),
                    },
                    is_required,
                })
            })?
        })
    }

    fn defaults(&mut self, fields: &mut Mapping) -> (Option<String>, Option<String>) {
        let node = fields.take("defaults");
        let defaults = node.and_then(|node| {
            self.open(node, |reading, fields| {
                let tool = reading.optional_text(fields, "tool");
                (tool, reading.optional_text(fields, "model"))
            })
        });
        defaults.unwrap_or_default()
    }

    fn config(&mut self, fields: &mut Mapping) -> Settings {
        let node = fields.take("config");
        let settings = node.and_then(|node| {
            self.open(node, |reading, fields| Settings {
                timeout_seconds: reading.seconds(fields, "timeout"),
                continues_on_error: reading.flag(fields, "continueOnError"),
                loop_limit: reading.reader.field(fields, "loopLimit", |reader, node| {
                    reader.integer(node, 1..=ITERATIONS_MAX)
                }),
                ..Settings::default()
            })
        });
        settings.unwrap_or_default()
    }
}
