//! What is asked for, and what must be answered: the reference that every answer is compared with.
//!
//! A plan is a tree of calls. Each run waits a while, calls its children one after the other or all
//! at once, and answers with the sum of all numbers below it; a run that is to fail counts as nothing.

use serde_json::{Value, json};

use crate::world::World;

/// Most children of a run.
const CHILDREN_MAX: u64 = 3;

/// Deepest nesting.
const DEPTH_MAX: u64 = 4;

/// The longest that a run computes at a time, in milliseconds.
const WORK_MILLISECONDS_MAX: u64 = 1_000;

/// How often a run fails before it does what it should, at the most; most never do.
const FAILURES_MAX: u64 = 2;
const FAILURES_DRAWN_OF: u64 = 20;

/// One run, and those that it calls.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) milliseconds: u64,
    pub(crate) is_parallel: bool,
    pub(crate) fails: bool,
    /// How often it fails before it does what it should, and is tried again.
    pub(crate) failures: u64,
    pub(crate) has_file: bool,
    pub(crate) children: Vec<Plan>,
}

impl Plan {
    /// Draws a plan whose runs have numbers from `first` on.
    pub(crate) fn draw(world: &World, next: &mut u64, depth: u64) -> Self {
        *next += 1;
        let number = *next;
        let count = if depth >= DEPTH_MAX {
            0
        } else {
            world.below(CHILDREN_MAX + 1)
        };
        let count = if depth == 0 { count.max(1) } else { count };
        Self {
            number,
            milliseconds: world.below(WORK_MILLISECONDS_MAX),
            is_parallel: world.below(2) == 0,
            fails: depth > 0 && world.below(8) == 0,
            failures: FAILURES_MAX.saturating_sub(world.below(FAILURES_DRAWN_OF)),
            has_file: world.below(3) == 0,
            children: (0..count)
                .map(|_| Self::draw(world, next, depth + 1))
                .collect(),
        }
    }

    /// How many runs it is.
    pub(crate) fn runs(&self) -> u64 {
        1 + self.children.iter().map(Self::runs).sum::<u64>()
    }

    /// What it must come to; none for a failure.
    pub(crate) fn answer(&self) -> Option<u64> {
        let below: u64 = self.children.iter().filter_map(Self::answer).sum();
        (!self.fails).then_some(self.number + below)
    }

    pub(crate) fn arguments(&self) -> Value {
        let children: Vec<Value> = self.children.iter().map(Self::arguments).collect();
        json!({
            "number": self.number, "milliseconds": self.milliseconds, "parallel": self.is_parallel,
            "fails": self.fails, "failures": self.failures, "file": self.has_file, "children": children,
        })
    }
}
