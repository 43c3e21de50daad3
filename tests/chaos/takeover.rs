//! Time until another program took over the work of a dead one.

use std::time::Instant;

use aod_domain::id::RunId;
use aod_ports::presence::PRESENCE_SECONDS;
use aod_tests::cluster::LEASE_SECONDS;
use aod_tests::programs::ProgramCluster;
use jiff::Timestamp;
use serde::Serialize;

use crate::calls::{End, Stay};
use crate::faults::Done;
use crate::history::History;
use crate::kind::{Kind, Part};
use crate::load::{Question, Try};

/// Maximum time of a takeover in addition to the time after which a dead program is detected, in seconds.
const MARGIN_SECONDS: u64 = 2;

/// The times of takeovers of one kind.
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
        Self {
            name,
            n: samples.len(),
            p50_seconds: spread.map(|spread| spread.p50),
            p99_seconds: spread.map(|spread| spread.p99),
            longest_seconds: longest,
            bound_seconds,
            holds: longest.is_none_or(|longest| longest <= bound(bound_seconds)),
        }
    }
}

/// All measurements without other faults. A run that was never taken over is a violation.
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
                None => violations.push(format!("no node took {run} over from a dead node")),
            }
        }
    }
    let stays: Vec<Stay> = cluster
        .nodes
        .iter()
        .flat_map(|node| Stay::all(&node.log_text()))
        .collect();
    let lease = u64::from(LEASE_SECONDS) + MARGIN_SECONDS;
    let mut all = vec![Takeover::of(
        "node killed, next attempt",
        lease,
        &killed_nodes,
    )];
    for what in [&KILLED, &SILENT] {
        let faults: Vec<Waited> = alone(done, what.kinds)
            .filter_map(|one| Waited::of(one, done, cluster, &stays))
            .collect();
        let moved = faults.iter().flat_map(Waited::moved).collect::<Vec<_>>();
        let answered = faults
            .iter()
            .flat_map(|fault| fault.answered(|run| history.ended_at(run), what.bound_seconds));
        let answered = answered.collect::<Vec<_>>();
        let clients = faults.iter().flat_map(|fault| fault.clients(questions));
        let clients = clients.collect::<Vec<_>>();
        let [calls, answers, people] = what.names;
        all.push(Takeover::of(calls, what.bound_seconds, &moved));
        all.push(Takeover::of(answers, what.bound_seconds, &answered));
        all.push(Takeover::of(people, what.bound_seconds, &clients));
    }
    (all, violations)
}

/// The measurements of faults of gateways.
struct Measured {
    kinds: &'static [Kind],
    /// Of calls until another gateway has taken them, of their answers, of clients.
    names: [&'static str; 3],
    bound_seconds: u64,
}

const KILLED: Measured = Measured {
    kinds: &[Kind::GatewayKilled],
    names: [
        "gateway killed, calls of runs",
        "gateway killed, answers to runs",
        "gateway killed, clients",
    ],
    bound_seconds: MARGIN_SECONDS,
};

const SILENT: Measured = Measured {
    kinds: &[Kind::GatewayPaused, Kind::GatewayCutOff],
    names: [
        "gateway paused or cut off, calls of runs",
        "gateway paused or cut off, answers to runs",
        "gateway paused or cut off, clients",
    ],
    bound_seconds: PRESENCE_SECONDS + MARGIN_SECONDS,
};

fn alone<'a>(done: &'a [Done], kinds: &'a [Kind]) -> impl Iterator<Item = &'a Done> {
    done.iter()
        .filter(move |done| done.is_alone && kinds.contains(&done.fault.kind))
}

/// A fault of a gateway with waiting calls or clients.
struct Waited<'a> {
    gateway: usize,
    began: Instant,
    began_at: Timestamp,
    /// The start of the next fault of any part, which may move calls itself.
    next_at: Timestamp,
    /// Calls that waited at the gateway when the fault began.
    there: Vec<&'a Stay>,
    all: &'a [Stay],
}

impl<'a> Waited<'a> {
    fn of(one: &Done, done: &[Done], cluster: &ProgramCluster, all: &'a [Stay]) -> Option<Self> {
        let Part::Gateway(gateway) = one.fault.part else {
            return None;
        };
        let next = done.iter().find(|other| other.began > one.began);
        let person = cluster.person(gateway);
        Some(Self {
            gateway,
            began: one.began,
            began_at: one.began_at,
            next_at: next.map_or(Timestamp::MAX, |next| next.began_at),
            there: there(all, person.url(), one.began_at),
            all,
        })
    }

    /// Seconds until another gateway had taken each call.
    fn moved(&self) -> Vec<f64> {
        let moved = self.there.iter().filter(|stay| stay.how == End::Moved);
        moved
            .filter(|stay| stay.ended < self.next_at)
            .map(|stay| seconds(self.began_at, stay.ended))
            .collect()
    }

    /// For each call whose callee ended before the next fault: the delay of its answer in seconds, wherever it waited.
    /// A call without an answer at the start of the next fault counts if it had missed the bound by then.
    fn answered(
        &self,
        ended_at: impl Fn(RunId) -> Option<Timestamp>,
        bound_seconds: u64,
    ) -> Vec<f64> {
        let late = |stay: &&Stay| {
            let due = ended_at(stay.callee)?.max(self.began_at);
            let heard = self.all.iter().find(|other| {
                let is_same = (other.run, other.callee) == (stay.run, stay.callee);
                is_same && other.how == End::Answered && other.ended > self.began_at
            });
            let until = heard.map_or(self.next_at, |heard| heard.ended);
            let is_of_this =
                until < self.next_at || seconds(due, self.next_at) > bound(bound_seconds);
            (due < self.next_at && is_of_this).then(|| seconds(due, until))
        };
        self.there
            .iter()
            .copied()
            .filter_map(|stay| late(&stay))
            .collect()
    }

    /// Seconds until another gateway had answered each client that waited at the gateway.
    fn clients(&self, questions: &[Question]) -> Vec<f64> {
        let was_there = |question: &&Question| {
            let here = |one: &Try| {
                one.gateway == self.gateway && (one.began..one.ended).contains(&self.began)
            };
            question.tries.len() > 1 && question.tries.iter().any(here)
        };
        let seconds = |question: &Question| {
            let answered = question.tries.last().expect("it was answered").ended;
            answered.duration_since(self.began).as_secs_f64()
        };
        questions.iter().filter(was_there).map(seconds).collect()
    }
}

/// The calls that waited at the gateway at `url` at `moment`.
fn there<'a>(all: &'a [Stay], url: &str, moment: Timestamp) -> Vec<&'a Stay> {
    let is_there = |stay: &&Stay| stay.gateway == url && stay.began < moment && stay.ended > moment;
    all.iter().filter(is_there).collect()
}

/// Seconds from one moment to a later one; none if it is earlier by another program's clock.
fn seconds(from: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(from).as_secs_f64().max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "a few seconds")]
fn bound(seconds: u64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const CALLER: &str = "run_01JBX3T5Y4Q8Z6W7V2N1M0K9H8";
    const CALLEES: [&str; 3] = [
        "run_01JBX3T5Y4Q8Z6W7V2N1M0K9HC",
        "run_01JBX3T5Y4Q8Z6W7V2N1M0K9HG",
        "run_01JBX3T5Y4Q8Z6W7V2N1M0K9HM",
    ];

    fn id(text: &str) -> RunId {
        text.parse().expect("an id")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn stay(callee: usize, gateway: &str, began: i64, ended: i64, how: End) -> Stay {
        Stay {
            run: id(CALLER),
            callee: id(CALLEES[callee]),
            gateway: gateway.to_owned(),
            began: at(began),
            ended: at(ended),
            how,
        }
    }

    /// A fault of `a` at 10 s, the next one of any part at 20 s.
    fn waited(all: &[Stay]) -> Waited<'_> {
        Waited {
            gateway: 0,
            began: Instant::now(),
            began_at: at(10),
            next_at: at(20),
            there: there(all, "a", at(10)),
            all,
        }
    }

    #[test]
    fn calls_moved_by_later_fault_are_not_measured() {
        let all = [
            stay(0, "a", 5, 14, End::Moved),
            stay(1, "a", 5, 62, End::Moved),
            stay(2, "a", 11, 15, End::Moved),
            stay(0, "b", 5, 13, End::Moved),
        ];
        assert_eq!(waited(&all).moved(), [4.0]);
    }

    #[test]
    fn late_answer_counts_wherever_its_call_waited() {
        let all = [
            stay(0, "a", 5, 14, End::Moved),
            stay(0, "b", 14, 15, End::Answered),
            stay(1, "a", 5, 70, End::Answered),
            stay(2, "a", 5, 70, End::Answered),
        ];
        // The first callee ended before the fault, the second soon after it, the third much later.
        let ends = [at(9), at(11), at(60)];
        let ended_at = |run| {
            let number = CALLEES.iter().position(|callee| id(callee) == run);
            number.map(|number| ends[number])
        };
        assert_eq!(waited(&all).answered(ended_at, 7), [5.0, 59.0]);
    }

    #[test]
    fn answer_delayed_by_next_fault_is_not_measured() {
        let all = [stay(0, "a", 5, 70, End::Answered)];
        assert_eq!(waited(&all).answered(|_| Some(at(14)), 7), [] as [f64; 0]);
    }
}
