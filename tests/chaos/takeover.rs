//! How long it took until somebody else did what a dead one had been doing.

use std::time::{Duration, Instant};

use aod_ports::presence::PRESENCE_SECONDS;
use aod_tests::cluster::LEASE_SECONDS;
use aod_tests::programs::{Program, ProgramCluster};
use jiff::Timestamp;
use serde::Serialize;

use crate::faults::Done;
use crate::history::History;
use crate::kind::{Kind, Part};
use crate::load::Question;

/// What a takeover may take beside the time after which a dead one is known as such, in seconds.
const MARGIN_SECONDS: u64 = 2;

/// How long after a fault of a gateway its calls are looked for.
const LOOK: Duration = Duration::from_secs(60);

/// What nodes log when a call goes on at another gateway.
const MOVED: &str = "a call goes on at another gateway";

/// How long takeovers of one kind took.
#[derive(Debug, Serialize)]
pub(crate) struct Takeover {
    pub(crate) name: &'static str,
    pub(crate) n: usize,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
    pub(crate) longest_seconds: Option<f64>,
    pub(crate) bound_seconds: u64,
    pub(crate) holds: bool,
}

impl Takeover {
    fn of(name: &'static str, bound_seconds: u64, samples: &[f64]) -> Self {
        let spread = aod_tests::statistics::Spread::of(samples);
        let longest = samples.iter().copied().max_by(f64::total_cmp);
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        let bound = bound_seconds as f64;
        Self {
            name,
            n: samples.len(),
            p50_seconds: spread.map(|spread| spread.p50),
            p99_seconds: spread.map(|spread| spread.p99),
            longest_seconds: longest,
            bound_seconds,
            holds: longest.is_none_or(|longest| longest <= bound),
        }
    }
}

/// All that was measured while nothing else happened. A run that nobody took over is told as a
/// violation: its event never came.
pub(crate) fn all(
    done: &[Done],
    nodes: &std::collections::BTreeMap<usize, String>,
    history: &History,
    questions: &[Question],
    cluster: &ProgramCluster,
) -> (Vec<Takeover>, Vec<String>) {
    let mut violations = Vec::new();
    let mut killed_nodes = Vec::new();
    for done in alone(done, &[Kind::NodeKilled]) {
        let Part::Node(node) = done.fault.part else {
            continue;
        };
        for (run, seconds) in history.takeovers(&nodes[&node], done.began_at) {
            match seconds {
                Some(seconds) => killed_nodes.push(seconds),
                None => violations.push(format!("nobody took {run} over from a dead node")),
            }
        }
    }
    let calls = |kinds: &[Kind]| -> Vec<f64> {
        alone(done, kinds)
            .flat_map(|one| moved_calls(one, until_next(one, done), cluster))
            .collect()
    };
    let people = |kinds: &[Kind]| -> Vec<f64> {
        alone(done, kinds)
            .flat_map(|done| moved_people(done, questions))
            .collect()
    };
    let killed = [Kind::GatewayKilled];
    let silent = [Kind::GatewayPaused, Kind::GatewayCutOff];
    let lease = u64::from(LEASE_SECONDS) + MARGIN_SECONDS;
    let presence = PRESENCE_SECONDS + MARGIN_SECONDS;
    let all = vec![
        Takeover::of("node killed, next attempt", lease, &killed_nodes),
        Takeover::of(
            "gateway killed, calls of runs",
            MARGIN_SECONDS,
            &calls(&killed),
        ),
        Takeover::of("gateway killed, clients", MARGIN_SECONDS, &people(&killed)),
        Takeover::of(
            "gateway paused or cut off, calls of runs",
            presence,
            &calls(&silent),
        ),
        Takeover::of(
            "gateway paused or cut off, clients",
            presence,
            &people(&silent),
        ),
    ];
    (all, violations)
}

fn alone<'a>(done: &'a [Done], kinds: &'a [Kind]) -> impl Iterator<Item = &'a Done> {
    done.iter()
        .filter(move |done| done.is_alone && kinds.contains(&done.fault.kind))
}

/// How long what follows a fault is looked for: until the same part has its next one.
fn until_next(one: &Done, done: &[Done]) -> Duration {
    let is_next = |other: &&Done| other.fault.part == one.fault.part && other.began > one.began;
    let next = done.iter().find(is_next);
    next.map_or(LOOK, |next| LOOK.min(next.began - one.began))
}

/// For each call that was waited for at a gateway: seconds until another gateway had taken it on.
fn moved_calls(done: &Done, look: Duration, cluster: &ProgramCluster) -> Vec<f64> {
    let Part::Gateway(gateway) = done.fault.part else {
        return Vec::new();
    };
    let from = format!("before=\"{}\"", cluster.person(gateway).url());
    let logs = cluster.nodes.iter().map(Program::log_text);
    let moved_at = |line: &str| {
        let is_moved = line.contains(MOVED) && line.contains(&from);
        let at: Timestamp = line.split_whitespace().next()?.parse().ok()?;
        let after = at.duration_since(done.began_at).as_secs_f64();
        (is_moved && (0.0..look.as_secs_f64()).contains(&after)).then_some(after)
    };
    logs.flat_map(|log| log.lines().filter_map(moved_at).collect::<Vec<_>>())
        .collect()
}

/// For each client that waited at a gateway: seconds until another gateway had answered it.
fn moved_people(done: &Done, questions: &[Question]) -> Vec<f64> {
    let Part::Gateway(gateway) = done.fault.part else {
        return Vec::new();
    };
    let was_there = |question: &&Question| {
        let last: Option<Instant> = question.tries.last().map(|last| last.ended);
        question.tries.len() > 1
            && last.is_some_and(|last| last < done.began + LOOK)
            && question
                .tries
                .iter()
                .any(|one| one.gateway == gateway && (one.began..one.ended).contains(&done.began))
    };
    let seconds = |question: &Question| {
        let answered = question.tries.last().expect("it was answered").ended;
        answered.duration_since(done.began).as_secs_f64()
    };
    questions.iter().filter(was_there).map(seconds).collect()
}
