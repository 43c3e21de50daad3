//! One session: a cluster under load, faults, and the checks afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aod_tests::hosts::leftovers;
use aod_tests::images::CapsuleDirectory;
use aod_tests::programs::{Plan, ProgramCluster, Store};
use fastrand::Rng;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::author::{Author, Registrations};
use crate::faults::{Done, Faults};
use crate::history::History;
use crate::kind::{Kind, Part, Size};
use crate::load::{self, Asker, CLIENTS, Load, Seen};
use crate::report::{Again, Machine, Report, Runs};
use crate::schedule::{self, Act, Fault};
use crate::takeover::Takeover;
use crate::{orphans, takeover};
use aod_tests::progress::say;

const SIZE: Size = Size {
    nodes: 3,
    gateways: 2,
    servers: 3,
};

/// Disk of each node and its Docker, in bytes: images of a few MB and temporary files of runs.
const DISK_BYTES: u64 = 512 << 20;

/// Time without other faults around a measured fault.
const APART: Duration = Duration::from_secs(10);

/// Time for each of the six faults of the short chaos, including its repair: ninety seconds in total.
const SHORT_APART: Duration = Duration::from_secs(15);

/// Maximum wait, before a measured fault, until all parts are up and a run has ended: after the death of a server, the
/// broker may need 40 s to deliver a launch.
const CALM_PATIENCE: Duration = Duration::from_secs(60);

/// Maximum time for everything to end after the last fault.
const END_PATIENCE: Duration = Duration::from_secs(180);

/// Interval between checks for due repairs.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Duration of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// All kinds of faults, round by round, for this time.
    Minutes(u64),
    /// Each of six kinds once: about 90 seconds. Takeovers are measured but not judged.
    Short,
}

/// Runs a session; none if it was interrupted.
pub(crate) fn play(
    runtime: &Runtime,
    seed: u64,
    length: Length,
    is_interrupted: &AtomicBool,
) -> anyhow::Result<Option<Report>> {
    say("chaos: three NATS servers, three hosts with a Docker each, two gateways");
    let mut cluster = runtime.block_on(start());
    let number = cluster.network.number();
    let people = (0..SIZE.gateways).map(|gateway| cluster.person(gateway));
    let load = Load::new(people.collect(), seed);
    let nodes = runtime.block_on(node_ids(&cluster));
    let docker = cluster.nodes[0]
        .host()
        .docker(&["version", "--format", "{{.Server.Version}}"]);
    let author = Author::new(&load);
    let registrations = author.registrations();
    let (mut clients, seen) = begin_load(runtime, &load, author);
    let began = Instant::now();
    let mut faults = Faults::new(&mut cluster, runtime.handle().clone(), nodes);
    let mut player = Player {
        faults: &mut faults,
        load: &load,
        is_interrupted,
        began,
        apart: match length {
            Length::Short => SHORT_APART,
            Length::Minutes(_) => APART,
        },
        restarted: 0,
    };
    let is_whole = player.all_acts(&mut Rng::with_seed(seed), length);
    let (minutes, restarted) = (began.elapsed().as_secs_f64() / 60.0, player.restarted);
    let (done, nodes) = (std::mem::take(&mut faults.done), faults.nodes);
    if !is_whole {
        return Ok(None);
    }
    say("end of faults: waiting for all runs to end");
    load.end();
    runtime.block_on(until_ended(&mut clients))?;
    let seen = gather(&seen);
    let history = runtime.block_on(read_history(&cluster))?;
    let (takeovers, mut violations) =
        takeover::all(&done, &nodes, &history, &seen.questions, &cluster);
    let answered = judge(&seen, &mut violations);
    violations.extend(history.violations(seen.asked.len()));
    let registrations = take(&registrations);
    violations.extend(registrations.violations.iter().cloned());
    violations.extend(untried(&done, length));
    violations.extend(unmeasured(&takeovers, length));
    violations.extend(orphans::look(&cluster));
    let counts = history.counts();
    let machine = Machine::look(&docker)?;
    if !violations.is_empty() {
        keep_logs(&mut cluster)?;
    }
    drop(cluster);
    violations.extend(leftovers(number));
    Ok(Some(Report {
        seed,
        minutes,
        machine,
        judges_takeovers: matches!(length, Length::Minutes(_)),
        faults: count(&done),
        runs: runs(&history, answered, &registrations),
        again: Again {
            client_retries: load.retries.load(Ordering::Relaxed),
            runs_with_more_attempts: counts.run_again,
            callees_joined: counts.joined,
            programs_restarted: restarted,
        },
        takeovers,
        violations,
    }))
}

fn runs(history: &History, answered: usize, registrations: &Registrations) -> Runs {
    let counts = history.counts();
    Runs {
        roots: counts.roots,
        nested: counts.nested,
        answered,
        admitted: history.bucket.admitted,
        most_admitted_at_once: history.bucket.most,
        versions_tried: registrations.tried,
        versions_registered: registrations.registered,
    }
}

async fn start() -> ProgramCluster {
    let cluster = ProgramCluster::start_as(&Plan {
        store: Store::JetStream,
        brokers: SIZE.servers,
        gateways: SIZE.gateways,
        pools: &["any"; SIZE.nodes],
        disk_bytes: Some(DISK_BYTES),
    })
    .await;
    for name in ["caller", "worker"] {
        let capsule = CapsuleDirectory::new(name);
        cluster.person(0).register(&capsule, "any").await;
    }
    let rule = json!({"capsules": ["caller"], "key": ["capsule"], "concurrency": load::BUCKET});
    cluster.person(0).put("/v1/rules/callers", &rule).await;
    cluster
}

/// The permanent ids of the nodes, by number.
async fn node_ids(cluster: &ProgramCluster) -> BTreeMap<usize, String> {
    let nodes = cluster.person(0).get("/v1/nodes").await;
    let items = nodes["items"].as_array().expect("nodes");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    items
        .iter()
        .map(|node| (cluster.node_on(&text(&node["host"])), text(&node["id"])))
        .collect()
}

fn take<T: Default>(shared: &Mutex<T>) -> T {
    std::mem::take(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

type AllSeen = Vec<Arc<Mutex<Seen>>>;

fn begin_load(runtime: &Runtime, load: &Arc<Load>, author: Author) -> (JoinSet<()>, AllSeen) {
    let mut clients = JoinSet::new();
    let seen = (0..CLIENTS).map(|number| {
        let asker = Asker::new(Arc::clone(load), number);
        let seen = asker.seen();
        clients.spawn_on(asker.work(), runtime.handle());
        seen
    });
    let mut seen: AllSeen = seen.collect();
    seen.push(author.requests());
    clients.spawn_on(author.work(), runtime.handle());
    (clients, seen)
}

/// Waits until all clients have their answers, and abandons clients without one.
async fn until_ended(clients: &mut JoinSet<()>) -> anyhow::Result<()> {
    let all = async {
        while let Some(client) = clients.join_next().await {
            client.context("a client")?;
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(END_PATIENCE, all).await;
    clients.abort_all();
    ended.unwrap_or(Ok(()))
}

/// The observations of all clients.
fn gather(seen: &AllSeen) -> Seen {
    let mut all = Seen::default();
    for one in seen {
        let mut one = one.lock().unwrap_or_else(PoisonError::into_inner);
        all.asked.append(&mut one.asked);
        all.questions.append(&mut one.questions);
    }
    all
}

/// Executes due actions, and supervises programs that end by themselves.
struct Player<'a, 'b> {
    faults: &'a mut Faults<'b>,
    load: &'a Load,
    is_interrupted: &'a AtomicBool,
    began: Instant,
    /// Minimum time around a fault that stands alone.
    apart: Duration,
    restarted: usize,
}

impl Player<'_, '_> {
    /// Returns whether it ran to its end.
    fn all_acts(&mut self, random: &mut Rng, length: Length) -> bool {
        match length {
            Length::Short => self.acts(schedule::short(random, SIZE), None),
            Length::Minutes(minutes) => {
                let end = self.began + Duration::from_secs(minutes * 60);
                // The first round is always complete, so that each kind is tried.
                let mut is_whole = self.acts(schedule::round(random, SIZE), None);
                while is_whole && Instant::now() < end {
                    is_whole = self.acts(schedule::round(random, SIZE), Some(end));
                }
                is_whole
            }
        }
    }

    /// Executes the `acts` that begin before `end`; repairs everything afterwards.
    fn acts(&mut self, acts: Vec<Act>, end: Option<Instant>) -> bool {
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        for act in acts {
            if is_over() {
                break;
            }
            let is_played = match act {
                Act::Alone(fault) => self.alone(fault),
                Act::Together(faults) => {
                    faults.into_iter().all(|(pause, fault)| {
                        is_over()
                            || (self.pass(Instant::now() + pause)
                                && self.until_free(fault)
                                && self.inflict(fault, false))
                    }) && self.until_repaired()
                }
            };
            if !is_played {
                return false;
            }
        }
        true
    }

    fn alone(&mut self, mut fault: Fault) -> bool {
        let is_measured = Kind::MEASURED.contains(&fault.kind);
        if is_measured && !self.until_calm() {
            return false;
        }
        // The calls that wait there show its cost.
        if let Part::Gateway(drawn) = fault.part {
            fault.part = Part::Gateway(self.faults.busiest_gateway(drawn));
        }
        let began = Instant::now();
        self.inflict(fault, is_measured) && self.until_repaired() && self.pass(began + self.apart)
    }

    fn inflict(&mut self, fault: Fault, is_alone: bool) -> bool {
        let at = self.began.elapsed().as_secs_f64();
        say(&format!(
            "{at:>6.1} s  {:<18} {:?} for {:.1} s",
            fault.kind.name(),
            fault.part,
            fault.length.as_secs_f64()
        ));
        self.faults.inflict(fault, is_alone);
        true
    }

    /// Waits until `end` while it executes due actions; false if interrupted.
    fn pass(&mut self, end: Instant) -> bool {
        loop {
            if self.is_interrupted.load(Ordering::Relaxed) {
                return false;
            }
            // Even after `end`: due repairs are still executed.
            self.faults.repair_due();
            self.restarted += self.faults.restart_ended();
            if Instant::now() >= end {
                return true;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn until_repaired(&mut self) -> bool {
        while let Some(due) = self.faults.next_repair() {
            if !self.pass(due + LOOK_INTERVAL) {
                return false;
            }
        }
        true
    }

    fn until_free(&mut self, fault: Fault) -> bool {
        while self.faults.is_busy(fault.part) {
            if !self.pass(Instant::now() + LOOK_INTERVAL) {
                return false;
            }
        }
        true
    }

    /// Waits until no fault happened for a while, all nodes take work and runs end.
    fn until_calm(&mut self) -> bool {
        let ended = self.load.ended.load(Ordering::Relaxed);
        if !self.pass(self.faults.last_repair + APART) {
            return false;
        }
        let deadline = Instant::now() + CALM_PATIENCE;
        while Instant::now() < deadline {
            let is_moving = self.load.ended.load(Ordering::Relaxed) >= ended + CLIENTS as u64;
            if is_moving && self.faults.all_nodes_take_work() {
                return true;
            }
            if !self.pass(Instant::now() + LOOK_INTERVAL * 10) {
                return false;
            }
        }
        true
    }
}

async fn read_history(cluster: &ProgramCluster) -> anyhow::Result<History> {
    let broker = cluster.broker("chaos").await?;
    let log = broker.event_log();
    let deadline = Instant::now() + END_PATIENCE;
    loop {
        let history = History::read(&log).await?;
        if history.open() == 0 || Instant::now() > deadline {
            return Ok(history);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The number of correct answers; records the others as violations.
fn judge(seen: &Seen, violations: &mut Vec<String>) -> usize {
    let mut answered = 0;
    for asked in &seen.asked {
        let run = asked.run.as_deref().unwrap_or("never taken");
        match &asked.verdict {
            Some(Ok(())) => answered += 1,
            Some(Err(error)) => {
                violations.push(format!("request {} ({run}): {error}", asked.number));
            }
            None => violations.push(format!("request {} ({run}) is lost", asked.number)),
        }
    }
    answered
}

/// The kinds that should have been tried but were not.
fn untried(done: &[Done], length: Length) -> Vec<String> {
    let wanted: &[Kind] = match length {
        Length::Short => &Kind::SHORT,
        Length::Minutes(_) => &Kind::ALL,
    };
    let is_untried = |kind: &&Kind| !done.iter().any(|done| done.fault.kind == **kind);
    wanted
        .iter()
        .filter(is_untried)
        .map(|kind| format!("{} was never tried", kind.name()))
        .collect()
}

/// Takeovers without a measurement, although clients always wait while all kinds are tried.
fn unmeasured(takeovers: &[Takeover], length: Length) -> Vec<String> {
    let is_whole = matches!(length, Length::Minutes(_));
    let without = takeovers
        .iter()
        .filter(|takeover| is_whole && takeover.n == 0);
    without
        .map(|takeover| format!("{} was never measured", takeover.name))
        .collect()
}

fn count(done: &[Done]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for done in done {
        *counts.entry(done.fault.kind.name()).or_default() += 1;
    }
    counts
}

/// Stores the logs of the programs for later analysis, before the hosts are deleted.
fn keep_logs(cluster: &mut ProgramCluster) -> anyhow::Result<()> {
    let directory = std::path::Path::new(LOGS);
    std::fs::create_dir_all(directory)?;
    for program in cluster.programs() {
        let name = format!("{}-{}.log", program.name(), program.host().name());
        std::fs::write(directory.join(name), program.log_text())?;
    }
    say(&format!("the logs of all programs are in {LOGS}"));
    Ok(())
}

/// Directory for logs after a violation, from the root of the repository.
const LOGS: &str = "target/chaos/logs";
