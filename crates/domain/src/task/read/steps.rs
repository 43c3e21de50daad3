//! Reads the steps of a workflow.

use super::{ITERATIONS_MAX, Reading};
use crate::task::{Agent, Command, Condition, Kind, Limits, Loop, Step, StepId, Template};
use crate::yaml::{Mapping, Node, Place, Reader};

/// Maximum steps of a workflow, also those inside other steps.
const STEPS_MAX: usize = 1_000;

/// Maximum depth of steps inside each other.
const DEPTH_MAX: usize = 8;

/// Iterations of a loop that sets no maximum.
const ITERATIONS: u32 = 3;

/// Maximum retries of a step.
const RETRIES_MAX: i64 = 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Agent,
    Command,
    Loop,
    Parallel,
    Conditional,
    Capsule,
}

const TYPES: [(&str, Type); 6] = [
    ("agent", Type::Agent),
    ("command", Type::Command),
    ("loop", Type::Loop),
    ("parallel", Type::Parallel),
    ("conditional", Type::Conditional),
    ("capsule", Type::Capsule),
];

impl Reading<'_> {
    pub(super) fn top_steps(&mut self, fields: &mut Mapping) -> Option<Vec<Step>> {
        let place = fields.place;
        let steps = self.steps(fields, "steps", 0)?;
        if steps.is_empty() && self.seen.is_empty() {
            let text = "the workflow has no steps, so it does nothing".to_owned();
            self.reader.warn(place, text);
        }
        Some(steps)
    }

    /// The required steps of a workflow, or of a step inside other steps.
    fn steps(
        &mut self,
        fields: &mut Mapping,
        key: &'static str,
        depth: usize,
    ) -> Option<Vec<Step>> {
        if !fields.has(key) {
            let message = format!("the required key {key:?} is missing");
            self.reader.problem_at(fields.place, message);
            return None;
        }
        Some(self.items(fields, key, |reading, item| reading.step(item, depth)))
    }

    fn step(&mut self, node: Node, depth: usize) -> Option<Step> {
        if depth == DEPTH_MAX {
            let message = format!("steps inside each other more than {DEPTH_MAX} deep");
            self.reader.problem_at(node.place, message);
            return None;
        }
        self.open(node, |reading, fields| {
            let id = reading.id(fields);
            let name = reading.optional_text(fields, "name");
            let kind = match fields.take("type") {
                Some(node) => reading.reader.choice(node, &TYPES),
                None => Some(Type::Agent),
            };
            let condition = reading.reader.field(fields, "if", read_condition);
            let limits = reading.limits(fields);
            let kind = reading.kind(kind?, fields, depth + 1);
            let id = id?;
            Some(Step {
                name: name.unwrap_or_else(|| id.to_string()),
                id,
                condition,
                limits,
                kind: kind?,
            })
        })?
    }

    fn id(&mut self, fields: &mut Mapping) -> Option<StepId> {
        let mut place = Place::default();
        let id = self.reader.required(fields, "id", |reader, node| {
            place = node.place;
            reader.parsed(node, StepId::parse)
        })?;
        if self.seen.len() == STEPS_MAX {
            let message = format!("more than {STEPS_MAX} steps");
            self.reader.problem_at(place, message);
        }
        if let Some(first) = self.seen.add(&id, place) {
            let (id, line) = (id.as_str(), first.line);
            let message = format!("the id {id:?} is used twice; first in line {line}");
            self.reader.problem_at(place, message);
        }
        Some(id)
    }

    fn limits(&mut self, fields: &mut Mapping) -> Limits {
        let limits = fields.take("config").and_then(|node| {
            self.open(node, |reading, fields| Limits {
                timeout_seconds: reading.seconds(fields, "timeout"),
                retries: reading.reader.field(fields, "retries", |reader, node| {
                    reader.integer(node, 0..=RETRIES_MAX)
                }),
            })
        });
        limits.unwrap_or_default()
    }

    /// The fields of one type of step; steps inside it are `inner` deep.
    fn kind(&mut self, kind: Type, fields: &mut Mapping, inner: usize) -> Option<Kind> {
        match kind {
            Type::Agent => self.agent(fields).map(Kind::Agent),
            Type::Command => self.command(fields).map(Kind::Command),
            Type::Loop => self.repeated(fields, inner).map(Kind::Loop),
            Type::Parallel => self.parallel(fields, inner).map(Kind::Parallel),
            Type::Conditional => self.conditional(fields, inner),
            Type::Capsule => self.capsule(fields),
        }
    }

    fn agent(&mut self, fields: &mut Mapping) -> Option<Agent> {
        let prompt = self.required_template(fields, "prompt");
        let tool = self.optional_text(fields, "tool");
        let model = self.optional_text(fields, "model");
        let outputs = self.outputs(fields);
        Some(Agent {
            prompt: prompt?,
            tool,
            model,
            outputs,
        })
    }

    fn command(&mut self, fields: &mut Mapping) -> Option<Command> {
        let command = self.required_template(fields, "command");
        let arguments = self.reader.field(fields, "args", |reader, node| {
            // A number is the argument as it is written.
            reader.list(node, |reader, node| {
                Some(Template::parse(&reader.plain(node)?))
            })
        });
        let may_fail = self.flag(fields, "allow_failure");
        Some(Command {
            command: command?,
            arguments,
            may_fail,
        })
    }

    fn repeated(&mut self, fields: &mut Mapping, inner: usize) -> Option<Loop> {
        let steps = self.steps(fields, "steps", inner);
        let until = self.reader.required(fields, "until", read_condition);
        let iterations_max = self.reader.field(fields, "maxIterations", |reader, node| {
            reader.integer(node, 1..=ITERATIONS_MAX)
        });
        Some(Loop {
            steps: steps?,
            until: until?,
            iterations_max: iterations_max.unwrap_or(ITERATIONS),
        })
    }

    fn parallel(&mut self, fields: &mut Mapping, inner: usize) -> Option<Vec<Step>> {
        let place = fields.place;
        let steps = self.steps(fields, "steps", inner)?;
        for step in steps.iter().filter(|step| step.has_steps()) {
            let message = format!(
                "the step {:?} cannot run in parallel with others; expected the type agent, command or capsule",
                step.id.as_str()
            );
            let place = self.seen.place(&step.id).unwrap_or(place);
            self.reader.problem_at(place, message);
        }
        Some(steps)
    }

    fn conditional(&mut self, fields: &mut Mapping, inner: usize) -> Option<Kind> {
        let condition = self.reader.required(fields, "condition", read_condition);
        let then = self.steps(fields, "then", inner);
        let otherwise = self.items(fields, "else", |reading, item| reading.step(item, inner));
        Some(Kind::Conditional {
            condition: condition?,
            then: then?,
            otherwise,
        })
    }

    fn capsule(&mut self, fields: &mut Mapping) -> Option<Kind> {
        let capsule = self.required_text(fields, "capsule");
        let arguments = self.reader.field(fields, "args", |reader, node| {
            reader.table(node, |_, node| Some(node.into_json()))
        });
        let files = self.reader.field(fields, "files", |reader, node| {
            reader.table(node, Reader::text)
        });
        Some(Kind::Capsule {
            capsule: capsule?,
            arguments: arguments.unwrap_or_default(),
            files: files.unwrap_or_default(),
        })
    }

    fn required_template(&mut self, fields: &mut Mapping, key: &'static str) -> Option<Template> {
        let text = self.reader.required(fields, key, Reader::text)?;
        Some(Template::parse(&text))
    }
}

fn read_condition(reader: &mut Reader, node: Node) -> Option<Condition> {
    reader.parsed(node, Condition::parse)
}
