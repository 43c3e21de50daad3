//! Every program is restarted, one after the other, under load, as in an upgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aod_tests::programs::{Person, Plan, ProgramCluster, Store};
use serde_json::json;

use super::chain;

/// Time between two roots.
const PACE: Duration = Duration::from_millis(400);

/// Maximum time for a program to end on request.
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// Maximum time to find a gateway that accepts a root: much longer than one is down.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Starts a root at the first gateway that accepts it; returns its id.
async fn start_somewhere(people: &[Person], number: usize) -> String {
    let arguments = json!({"table": chain::TABLE, "seconds": 2});
    let asking = async {
        for person in people.iter().cycle().skip(number) {
            let file = (chain::TABLE, chain::table());
            let key = format!("rolling-{number}");
            match person.try_start(&key, "caller", &arguments, file).await {
                Some(run) => return run,
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        unreachable!("there is always another gateway to ask")
    };
    let started = tokio::time::timeout(START_PATIENCE, asking).await;
    started.unwrap_or_else(|_| panic!("no gateway took root {number}"))
}

/// Starts roots until `is_over`; returns them.
async fn load(people: Vec<Person>, is_over: Arc<AtomicBool>) -> Vec<String> {
    let mut runs = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        runs.push(start_somewhere(&people, runs.len()).await);
        tokio::time::sleep(PACE).await;
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_under_load_lose_no_run() {
    let plan = Plan {
        store: Store::JetStream,
        brokers: 3,
        gateways: 2,
        pools: &["one", "two", "two"],
        disk_bytes: None,
    };
    let mut cluster = ProgramCluster::start_as(&plan).await;
    chain::register(&cluster).await;
    let people: Vec<_> = (0..2).map(|gateway| cluster.person(gateway)).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(load(people.clone(), Arc::clone(&is_over)));

    for number in 0..cluster.programs().count() {
        let program = cluster
            .programs()
            .nth(number)
            .expect("as many as were counted");
        let has_ended = tokio::task::block_in_place(|| program.terminate(STOP_PATIENCE));
        assert!(has_ended, "{} does not end", program.name());
        program.restart();
        cluster.wait_until_whole().await;
    }

    is_over.store(true, Ordering::Relaxed);
    let runs = load.await.expect("all roots were taken");
    assert!(runs.len() >= 8, "only {} roots", runs.len());
    for run in &runs {
        chain::check(&people[0], run).await;
    }
}
