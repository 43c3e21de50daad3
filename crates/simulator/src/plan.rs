//! The requests, and their correct answers: the reference for every result.
//!
//! A plan is a tree of calls. Each run waits a while, calls its children one after the other or concurrently, and
//! returns the sum of all numbers below it; a run that is planned to fail counts as zero.

use std::collections::{BTreeMap, BTreeSet};

use aod_domain::flow::{KeyPart, Rule};
use aod_domain::placement::{Devices, Equipment, Name, Requirements};
use serde_json::{Value, json};

use crate::world::World;

/// Maximum children of a run.
const CHILDREN_MAX: u64 = 3;

/// Number of pairs of callers.
const PAIRS: u64 = 2;

/// Maximum nesting.
const DEPTH_MAX: u64 = 4;

/// Maximum time that a run computes without a pause, in milliseconds.
const WORK_MILLISECONDS_MAX: u64 = 1_000;

/// Maximum failures of a run before it succeeds; most runs have none.
const FAILURES_MAX: u64 = 2;
const FAILURES_DRAWN_OF: u64 = 20;

/// One run in this number sends no heartbeat in its first attempt.
const SILENT_ONE_IN: u64 = 25;

/// Heartbeat limit of a run that may be silent, in seconds: much longer than it computes without a pause.
const HEARTBEAT_SECONDS: u64 = 4;

/// One run in this number has a queue limit, in seconds: as long as a node is down, or less.
const QUEUE_LIMITED_ONE_IN: u64 = 10;
const QUEUE_SECONDS_MIN: u64 = 4;
const QUEUE_SECONDS_MAX: u64 = 12;

/// Limit for the transfer of files, in seconds: longer than the store is unavailable, shorter than its longest hang.
const TRANSFER_SECONDS: u64 = 9;

/// One run and its callees.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is drawn for itself, and none follows from another"
)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) milliseconds: u64,
    pub(crate) is_parallel: bool,
    pub(crate) fails: bool,
    /// Failures before it succeeds; each is retried.
    pub(crate) failures: u64,
    /// Attempts that stop sending heartbeats.
    pub(crate) silences: u64,
    /// Its queue limit, in seconds.
    pub(crate) queue_seconds: Option<u64>,
    pub(crate) has_file: bool,
    /// Whether it may have requirements in addition to a pool, as a root.
    pub(crate) is_placed: bool,
    pub(crate) children: Vec<Plan>,
}

impl Plan {
    /// Draws a plan whose runs have the numbers after `next`, few of them above `last`.
    pub(crate) fn draw(world: &World, next: &mut u64, last: u64, depth: u64) -> Self {
        *next += 1;
        let number = *next;
        let count = if depth >= DEPTH_MAX {
            0
        } else {
            world
                .below(CHILDREN_MAX + 1)
                .min(last.saturating_sub(number))
        };
        let count = if depth == 0 { count.max(1) } else { count };
        Self {
            number,
            milliseconds: world.below(WORK_MILLISECONDS_MAX),
            is_parallel: world.below(2) == 0,
            fails: depth > 0 && world.below(8) == 0,
            failures: FAILURES_MAX.saturating_sub(world.below(FAILURES_DRAWN_OF)),
            silences: u64::from(world.below(SILENT_ONE_IN) == 0),
            queue_seconds: (world.below(QUEUE_LIMITED_ONE_IN) == 0).then(|| {
                QUEUE_SECONDS_MIN + world.below(QUEUE_SECONDS_MAX - QUEUE_SECONDS_MIN + 1)
            }),
            has_file: world.below(3) == 0,
            is_placed: false,
            children: (0..count)
                .map(|_| Self::draw(world, next, last, depth + 1))
                .collect(),
        }
    }

    /// Its number of runs.
    pub(crate) fn runs(&self) -> u64 {
        1 + self.children.iter().map(Self::runs).sum::<u64>()
    }

    /// Its correct answer; none for a failure.
    pub(crate) fn answer(&self) -> Option<u64> {
        let below: u64 = self.children.iter().filter_map(Self::answer).sum();
        (!self.fails).then_some(self.number + below)
    }

    /// The requirements of a root in a cluster that uses them: one attribute, several, or a device.
    pub(crate) fn requirements(&self) -> Value {
        match self.number % 4 {
            _ if !self.is_placed => json!({}),
            0 => json!({"require": ["rank>=2"]}),
            1 => json!({"require": ["zone!=near", "rank<9"]}),
            2 => json!({"devices": {"card": 1}}),
            _ => json!({}),
        }
    }

    /// Runs without callees share two buckets.
    fn lane(&self) -> String {
        if self.children.is_empty() {
            format!("last-{}", self.number % 2)
        } else {
            format!("caller-{}", self.number)
        }
    }

    /// Callers of one pair are admitted one after the other, so that trees sometimes wait for each other.
    fn pair(&self) -> String {
        if self.children.is_empty() {
            format!("last-{}", self.number)
        } else {
            format!("caller-{}", self.number % PAIRS)
        }
    }

    pub(crate) fn arguments(&self) -> Value {
        let children: Vec<Value> = self.children.iter().map(Self::arguments).collect();
        json!({
            "number": self.number, "milliseconds": self.milliseconds, "parallel": self.is_parallel,
            "fails": self.fails, "failures": self.failures, "silences": self.silences,
            "queue_seconds": self.queue_seconds.unwrap_or_default(), "file": self.has_file, "children": children,
            "lane": self.lane(), "pair": self.pair(),
        })
    }
}

/// The equipment of the node with this index, in a cluster that uses it.
pub(crate) fn equipment(index: usize) -> (Equipment, Devices) {
    let name = |text: &str| -> Name { text.parse().expect("a name") };
    let zone = if index == 0 { "near" } else { "far" };
    let cards = vec![None; index.min(1)];
    let devices = Devices::new(BTreeMap::from([(name("card"), cards)]));
    let equipment = Equipment {
        attributes: BTreeMap::from([
            (name("rank"), index.to_string()),
            (name("zone"), zone.to_owned()),
        ]),
        devices: devices.counts(),
        ..Equipment::default()
    };
    (equipment, devices)
}

/// The requirement of all runs of such a cluster: not the first node.
pub(crate) fn required_of_all() -> Requirements {
    Requirements {
        attributes: BTreeSet::from(["rank>=1".parse().expect("a requirement")]),
        ..Requirements::default()
    }
}

/// The rules that limit the concurrent runs of a lane or of a pair.
pub(crate) const LIMITS: [(&str, u32); 2] = [("lanes", 2), ("pairs", 1)];

/// The rules of a cluster with flow control: those for lanes and pairs, and one that admits all roots in order.
pub(crate) fn rules() -> [Rule; 3] {
    let rule = |name: &str| Rule {
        name: name.parse().expect("a name"),
        capsules: Vec::new(),
        tenants: Vec::new(),
        key: Vec::new(),
        concurrency_max: None,
        rate: None,
        is_fair: false,
        weights: BTreeMap::new(),
    };
    let limited = |(name, max): (&str, u32), pointer: &str| Rule {
        key: vec![KeyPart::Argument(pointer.into())],
        concurrency_max: Some(max),
        ..rule(name)
    };
    let [lanes, pairs] = LIMITS;
    [
        limited(lanes, "/lane"),
        limited(pairs, "/pair"),
        rule("in-order"),
    ]
}

/// The retries and limits of a run with `arguments`.
pub(crate) fn policies(arguments: &Value) -> (Value, Value) {
    let silences = &arguments["silences"];
    let queue = arguments["queue_seconds"]
        .as_u64()
        .filter(|seconds| *seconds > 0);
    let heartbeat = (*silences != 0).then_some(HEARTBEAT_SECONDS);
    let retries = json!({"capsule": arguments["failures"], "time": silences});
    let limits = json!({
        "queue_seconds": queue, "heartbeat_seconds": heartbeat,
        "preparation_seconds": TRANSFER_SECONDS, "collection_seconds": TRANSFER_SECONDS,
    });
    (retries, limits)
}
