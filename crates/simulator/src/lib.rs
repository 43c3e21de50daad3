//! Simulates whole clusters on one thread, in virtual time, from one seed.
//!
//! Gateways and nodes are the real ones; broker, store, engines and network are doubles that behave like the real ones
//! as measured, and fail. One seed is one history, always the same.
//!
//! ```text
//! world       random numbers, trace, counts                 link       connections that can be cut
//! broker      log, queue, presence                          store      artifacts
//! engine      containers and their gates                    network    HTTP between programs
//! cluster     programs on hosts: started, killed            faults     faults of hosts and programs
//! plan        requests with their correct answers           person     a user that requests runs
//! operator    an operator of dead letters                   keeper     an operator of retention
//! capsule     the program in the containers                 invariants checks after every event
//! audit       the seals of all trees
//! ```

mod audit;
mod broker;
mod capsule;
mod clock;
mod cluster;
mod engine;
mod faults;
mod invariants;
mod keeper;
mod link;
mod network;
mod operator;
mod person;
mod plan;
mod store;
mod tenants;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::artifacts::{Role, named_by};
use aod_domain::digest::Digest;
use aod_domain::event::Recorded;
use aod_domain::run::{Event, Run};
use aod_domain::subject::Subject;

use crate::cluster::{Cluster, GATEWAYS, NODES};
use crate::plan::Plan;
use crate::world::World;

/// Roots of one simulation.
const ROOTS: usize = 4;

/// Runs of one simulation, including those below the roots.
const RUNS: u64 = 20;

/// Maximum pause between two requests, in milliseconds.
const REQUEST_PAUSE_MILLISECONDS_MAX: u64 = 2_000;

/// Time for everything to end after the last fault: gateways check for leftovers every 30 s.
const SETTLE_SECONDS_MAX: u64 = 90;

/// Every kind of event over all seeds: a kind that never happened was not tested.
pub const KINDS: [&str; 72] = [
    "acknowledgement",
    "admitted",
    "answer broke off",
    "answer late",
    "answer lost",
    "append",
    "archived",
    "asked to end",
    "broker restarted without its queue",
    "broker restarted",
    "cancelled",
    "clock set",
    "collected too long",
    "conflict",
    "dead letter",
    "deadlock",
    "deadly launch",
    "deleted",
    "delivery counted",
    "delivery",
    "ended by force",
    "engine restarted",
    "engine unavailable",
    "exit forgotten",
    "gateway cut off",
    "gateway killed",
    "get hung",
    "get",
    "granted",
    "handed over",
    "host lost",
    "killed by a launch",
    "killed by its gate",
    "list",
    "named and deleted",
    "node cut off",
    "node killed",
    "offer",
    "placed",
    "prepared too long",
    "progress",
    "purged",
    "put hung",
    "put",
    "queued too long",
    "read by other tenant",
    "redelivery",
    "released",
    "remove artifact",
    "remove",
    "removed",
    "renew",
    "replay",
    "request lost",
    "request repeated",
    "request",
    "requested",
    "requeued",
    "rerun while deleted",
    "rerun",
    "retried",
    "returned to the queue often",
    "returned to the queue",
    "returned",
    "reused",
    "silent",
    "start failed late",
    "start failed",
    "start hung",
    "start",
    "store unavailable",
    "takeover",
];

/// The outcome of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    /// Equal for equal histories.
    pub trace: Digest,
    pub steps: u64,
    pub runs: u64,
    /// Operations and faults by their kinds.
    pub counts: BTreeMap<&'static str, u64>,
    /// Violated invariants; any is a failure.
    pub violations: Vec<String>,
}

/// Simulates `seed`; with `is_printed` every step goes to stderr.
///
/// # Panics
/// If the system under test panics, or no directory can be created.
pub fn simulate(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // tokio draws the order of wake-ups from its own seed; without this, one seed would not be one history.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let directory = tempfile::Builder::new()
        .prefix("aod-simulation-")
        .tempdir_in(fast_directory())
        .expect("a directory for a simulation");
    runtime.block_on(async {
        let world = World::new(seed, is_printed);
        let cluster = Arc::new(Cluster::new(&world, directory.path()));
        let runs = live(&cluster).await;
        check_end(&cluster);
        let (trace, steps, counts, violations) = world.conclude();
        Outcome {
            seed,
            trace,
            steps,
            runs,
            counts,
            violations,
        }
    })
}

/// In memory if possible: a simulation keeps nothing.
fn fast_directory() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

async fn live(cluster: &Arc<Cluster>) -> u64 {
    (0..GATEWAYS).for_each(|index| cluster.start_gateway(index));
    (0..NODES).for_each(|index| cluster.start_node(index));
    tokio::spawn(faults::bury(Arc::clone(cluster), cluster.world.killed()));
    let keeping = cluster.is_kept.then(|| {
        let cluster = Arc::clone(cluster);
        tokio::spawn(async move { keeper::keep(&cluster).await })
    });
    let mut plans = draw_plans(&cluster.world);
    for plan in &mut plans {
        plan.is_placed = cluster.is_placed;
    }
    let runs = plans.iter().map(Plan::runs).sum();
    let mut people = Vec::new();
    let trouble = tokio::spawn({
        let cluster = Arc::clone(cluster);
        async move { faults::make_trouble(&cluster).await }
    });
    for plan in plans {
        let pause = cluster.world.below(REQUEST_PAUSE_MILLISECONDS_MAX);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let asking = tokio::spawn(person::ask(Arc::clone(cluster), plan.clone()));
        people.push((plan, asking));
    }
    trouble.await.expect("trouble does not panic");
    cluster.world.calm();
    let mut answers = Vec::new();
    for (plan, asking) in people {
        let answer = asking.await.expect("users do not panic");
        answers.extend(answer.map(|answer| (plan, answer)));
    }
    if let Some(keeping) = keeping {
        keeping.await.expect("the keeper does not panic");
    }
    settle(cluster).await;
    cluster.grow_old().await;
    for (plan, answer) in &answers {
        person::ask_again(cluster, plan, answer).await;
    }
    if cluster.is_kept {
        keeper::collect_and_rerun(cluster, &answers).await;
        settle(cluster).await;
    }
    runs
}

/// Waits until everything has ended.
async fn settle(cluster: &Cluster) {
    for _ in 0..SETTLE_SECONDS_MAX {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if cluster.engines.iter().all(|engine| engine.count() == 0) && cluster.broker.is_done() {
            return;
        }
    }
}

/// The required number of plans, with the required number of runs in total.
fn draw_plans(world: &World) -> Vec<Plan> {
    loop {
        let mut next = 0;
        let mut plans = Vec::new();
        while next < RUNS && plans.len() < ROOTS {
            let others = (ROOTS - 1 - plans.len()) as u64;
            plans.push(Plan::draw(world, &mut next, RUNS - others, 0));
        }
        if next == RUNS && plans.len() == ROOTS {
            return plans;
        }
    }
}

/// Everything has ended, and nothing is left.
fn check_end(cluster: &Cluster) {
    let world = &cluster.world;
    for engine in &cluster.engines {
        if engine.count() > 0 {
            world.violation(format!(
                "{} containers are left on {engine:?}",
                engine.count()
            ));
        }
    }
    let mut runs: BTreeMap<_, Run> = BTreeMap::new();
    for stored in cluster.broker.events() {
        let Some(id) = Subject::run_of(&stored.subject) else {
            continue;
        };
        if !Subject::is_state(&stored.subject) {
            continue;
        }
        let Ok(recorded) = Recorded::<Event>::decode(stored.sequence, &stored.bytes) else {
            continue;
        };
        check_artifacts(cluster, &recorded.event);
        match runs.get_mut(&id) {
            Some(run) => drop(run.apply(recorded)),
            None => runs.extend(
                Run::replay(id, [recorded])
                    .ok()
                    .flatten()
                    .map(|run| (id, run)),
            ),
        }
    }
    for (id, run) in runs {
        if run.ended().is_none() {
            world.violation(format!("{id} has not ended: {:?}", run.phase));
        }
        if id.is_root() {
            audit::check(cluster, id);
        }
    }
}

/// Every artifact named by an event is in the store, or the log records its deletion.
fn check_artifacts(cluster: &Cluster, event: &Event) {
    for named in named_by(event) {
        // Simulations build no images.
        if named.role == Role::Image || cluster.objects.get(named.digest).is_some() {
            continue;
        }
        if cluster.broker.has_deleted(named.digest) {
            cluster.world.count("named and deleted");
        } else {
            let text = format!(
                "{} is named by an event but is not in the store",
                named.digest
            );
            cluster.world.violation(text);
        }
    }
}
