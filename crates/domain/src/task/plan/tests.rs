//! The plan, compared with a model that executes workflows directly.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::task::{Command, Settings, Template};

fn id(number: usize) -> StepId {
    StepId::parse(&format!("s{number}")).expect("an id")
}

fn step(number: usize, condition: Option<Condition>, kind: Kind) -> Step {
    Step {
        id: id(number),
        name: String::new(),
        condition,
        limits: crate::task::Limits::default(),
        kind,
    }
}

fn command() -> Kind {
    Kind::Command(Command {
        command: Template::parse("true"),
        arguments: None,
        may_fail: false,
    })
}

/// A tree of steps without ids.
#[derive(Clone, Debug)]
enum Shape {
    Leaf,
    Loop(Vec<Made>, usize, u32),
    Parallel(Vec<Made>),
    Conditional(usize, Vec<Made>, Vec<Made>),
}

/// A step, and the number of the step that its `if` names.
#[derive(Clone, Debug)]
struct Made(Option<usize>, Box<Shape>);

/// The step that a condition names.
fn named() -> impl Strategy<Value = Option<usize>> {
    prop::option::of(0..12_usize)
}

fn leaf() -> impl Strategy<Value = Made> {
    named().prop_map(|condition| Made(condition, Box::new(Shape::Leaf)))
}

fn shapes() -> impl Strategy<Value = Vec<Made>> {
    let tree = leaf().prop_recursive(3, 24, 4, move |inner| {
        let steps = || prop::collection::vec(inner.clone(), 0..4);
        let shape = prop_oneof![
            (steps(), 0..12_usize, 1..4_u32)
                .prop_map(|(steps, until, most)| Shape::Loop(steps, until, most)),
            prop::collection::vec(leaf(), 0..4).prop_map(Shape::Parallel),
            (0..12_usize, steps(), steps()).prop_map(|(condition, then, otherwise)| {
                Shape::Conditional(condition, then, otherwise)
            }),
        ];
        (named(), shape).prop_map(|(condition, shape)| Made(condition, Box::new(shape)))
    });
    prop::collection::vec(tree, 0..5)
}

/// A condition on the success of a step, which may not exist or not have run.
fn on(number: usize) -> Condition {
    Condition::parse(&format!("steps.s{number}.outputs.success == true")).expect("a condition")
}

/// Gives the steps their ids, in the order of the file.
fn numbered(made: &[Made], number: &mut usize) -> Vec<Step> {
    let steps = made.iter().map(|Made(condition, shape)| {
        let own = *number;
        *number += 1;
        let kind = match shape.as_ref() {
            Shape::Leaf => command(),
            Shape::Loop(steps, until, iterations_max) => Kind::Loop(Loop {
                steps: numbered(steps, number),
                until: on(*until),
                iterations_max: *iterations_max,
            }),
            Shape::Parallel(steps) => Kind::Parallel(numbered(steps, number)),
            Shape::Conditional(condition, then, otherwise) => Kind::Conditional {
                condition: on(*condition),
                then: numbered(then, number),
                otherwise: numbered(otherwise, number),
            },
        };
        step(own, condition.map(on), kind)
    });
    steps.collect()
}

fn workflow(steps: Vec<Step>, continues_on_error: bool, loop_limit: Option<u32>) -> Workflow {
    Workflow {
        name: "any".into(),
        description: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
        settings: Settings {
            continues_on_error,
            loop_limit,
            ..Settings::default()
        },
        steps,
    }
}

/// Whether an execution of a command succeeds: any fixed function.
fn succeeds(seed: u64, position: &Position) -> bool {
    let text = format!("{seed} {position}");
    let sum = text.bytes().fold(seed, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    !(sum >> 3).is_multiple_of(3)
}

/// Executes a workflow directly, step by step.
struct Model {
    seed: u64,
    continues: bool,
    loop_limit: u32,
    iterations: Vec<u32>,
    /// Success of the last execution of each command; none if it was skipped.
    success: BTreeMap<StepId, Option<bool>>,
    ended: Ended,
}

impl Model {
    fn truth(&self, condition: &Condition) -> bool {
        let Some(crate::task::Variable::Output { step, .. }) = condition.variables().pop() else {
            panic!("{condition:?}");
        };
        let found = self.success.iter().find(|(id, _)| id.as_str() == step);
        found.is_some_and(|(_, success)| *success == Some(true))
    }

    fn all(&mut self, steps: &[Step], continues: bool) -> bool {
        let mut is_good = true;
        for step in steps {
            is_good &= self.one(step);
            if !is_good && !continues {
                return false;
            }
        }
        is_good
    }

    /// Whether the step did not fail.
    fn one(&mut self, step: &Step) -> bool {
        let position = Position {
            step: step.id.clone(),
            iterations: self.iterations.clone(),
        };
        if step
            .condition
            .as_ref()
            .is_some_and(|condition| !self.truth(condition))
        {
            self.success.insert(step.id.clone(), None);
            self.ended.insert(position, Ending::Skipped);
            return true;
        }
        let mut own = None;
        let is_good = match &step.kind {
            Kind::Loop(repeated) => {
                let mut is_met = false;
                for iteration in 1..=repeated.iterations_max.min(self.loop_limit) {
                    self.iterations.push(iteration);
                    self.all(&repeated.steps, true);
                    self.iterations.pop();
                    is_met = self.truth(&repeated.until);
                    if is_met {
                        break;
                    }
                }
                is_met
            }
            Kind::Parallel(steps) => {
                let before = self.success.clone();
                let mut after = before.clone();
                let mut is_good = true;
                for step in steps {
                    self.success.clone_from(&before);
                    is_good &= self.one(step);
                    after.insert(step.id.clone(), self.success[&step.id]);
                }
                self.success = after;
                is_good
            }
            Kind::Conditional {
                condition,
                then,
                otherwise,
            } => {
                let steps = if self.truth(condition) {
                    then
                } else {
                    otherwise
                };
                self.all(steps, self.continues)
            }
            _ => {
                own = Some(succeeds(self.seed, &position));
                own == Some(true)
            }
        };
        self.success.insert(step.id.clone(), own);
        self.ended.insert(position, ending(is_good));
        is_good
    }
}

/// Follows the plan to its end, as nodes do that die again and again: each knows only the ended steps.
fn follow(workflow: &Workflow, seed: u64, mut random: u64) -> (Ended, Outcome) {
    let mut ended = Ended::new();
    let mut started: BTreeSet<Position> = BTreeSet::new();
    loop {
        let known = ended.clone();
        let value_of = |value: &Value| match value {
            Value::Output { position, name } if name == "success" => {
                let is_command = started.contains(position) && known[position] != Ending::Skipped;
                let text = if succeeds(seed, position) {
                    "true"
                } else {
                    "no"
                };
                is_command.then_some(Cow::Borrowed(text))
            }
            _ => None,
        };
        match next(workflow, &ended, &value_of) {
            Next::End(outcome) => return (ended, outcome),
            Next::Record(record) => {
                assert_eq!(ended.insert(record.position, record.ending), None);
            }
            Next::Run(Run { positions, .. }) => {
                assert!(!positions.is_empty());
                // One of them ends at a time, in any order.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let index = usize::try_from(random >> 33).unwrap_or_default() % positions.len();
                let position = positions[index].clone();
                let ending = ending(succeeds(seed, &position));
                assert!(started.insert(position.clone()), "{position} runs once");
                assert_eq!(ended.insert(position, ending), None);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_workflow_runs_as_the_model_does(
        made in shapes(),
        continues in any::<bool>(),
        loop_limit in prop::option::of(1..3_u32),
        seed in any::<u64>(),
        random in any::<u64>(),
    ) {
        let workflow = workflow(numbered(&made, &mut 0), continues, loop_limit);
        let mut model = Model {
            seed,
            continues,
            loop_limit: loop_limit.unwrap_or(u32::MAX),
            iterations: Vec::new(),
            success: BTreeMap::new(),
            ended: Ended::new(),
        };
        let is_good = model.all(&workflow.steps, continues);
        let outcome = match (is_good, continues) {
            (true, _) => Outcome::Succeeded,
            (false, true) => Outcome::Partial,
            (false, false) => Outcome::Failed,
        };
        prop_assert_eq!(follow(&workflow, seed, random), (model.ended, outcome));
    }
}

fn ended(positions: &[(usize, &[u32], Ending)]) -> Ended {
    let ended = positions.iter().map(|(number, iterations, ending)| {
        let position = Position {
            step: id(*number),
            iterations: iterations.to_vec(),
        };
        (position, *ending)
    });
    ended.collect()
}

fn next_of(workflow: &Workflow, positions: &[(usize, &[u32], Ending)]) -> Next {
    next(workflow, &ended(positions), &|_| None)
}

fn position(number: usize, iterations: &[u32]) -> Position {
    Position {
        step: id(number),
        iterations: iterations.to_vec(),
    }
}

#[test]
fn loop_runs_all_its_steps_and_fails_at_its_limit() {
    let steps = vec![step(1, None, command()), step(2, None, command())];
    let repeated = Kind::Loop(Loop {
        steps,
        until: on(99),
        iterations_max: 9,
    });
    let workflow = workflow(vec![step(0, None, repeated)], false, Some(2));
    let failed = Ending::Failed;
    let runs = |known: &[(usize, &[u32], Ending)]| match next_of(&workflow, known) {
        Next::Run(Run { positions, .. }) => positions,
        other => panic!("{other:?}"),
    };
    assert_eq!(runs(&[]), [position(1, &[1])]);
    assert_eq!(runs(&[(1, &[1], failed)]), [position(2, &[1])]);
    let first = [(1, &[1_u32][..], failed), (2, &[1], failed)];
    assert_eq!(runs(&first), [position(1, &[2])]);
    let both = [&first[..], &[(1, &[2], failed), (2, &[2], failed)]].concat();
    let end = Record {
        position: position(0, &[]),
        ending: failed,
        repeated: Some(Repeated {
            iterations: 2,
            is_condition_met: false,
        }),
    };
    assert_eq!(next_of(&workflow, &both), Next::Record(end));
    let all = [&both[..], &[(0, &[], failed)]].concat();
    assert_eq!(next_of(&workflow, &all), Next::End(Outcome::Failed));
}

#[test]
fn variable_stands_for_the_last_execution_of_its_step() {
    let inner = vec![step(1, None, command())];
    let repeated = Kind::Loop(Loop {
        steps: inner,
        until: on(99),
        iterations_max: 2,
    });
    let steps = vec![step(0, None, repeated), step(2, None, command())];
    let workflow = workflow(steps, true, None);
    let good = Ending::Succeeded;
    let known = [
        (1, &[1_u32][..], good),
        (1, &[2], good),
        (0, &[], Ending::Failed),
    ];
    let Next::Run(run) = next_of(&workflow, &known) else {
        panic!("the step after the loop runs");
    };
    assert_eq!(run.positions, [position(2, &[])]);
    assert_eq!(run.last[&id(1)], position(1, &[2]));
}
