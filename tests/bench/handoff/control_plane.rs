//! The control plane: HTTP client, gateway, synced broker and a node without containers, each as a separate process,
//! with relay, schema checks and hashing. Log, queue, read model and artifacts are on disk; the directories of the
//! simulated containers are in memory.
//!
//! A nested call is a capsule that calls another through its channel and waits: six synced writes. It is compared with
//! as many raw publishes, one after the other.

use std::time::Instant;

use futures::future::try_join_all;

use crate::nats::Publisher;
use crate::report::Measurement;
use crate::simulated_node::{CALLER, ECHO, words, words_schema};
use crate::site::{Client, Scratch, Site};
use aod_tests::progress::say;

/// Synced writes of one run: launch, lease, result.
const WRITES_SINGLE: usize = 3;

/// Synced writes of a run that calls another.
const WRITES_NESTED: usize = 2 * WRITES_SINGLE;

/// Pairs of calls by one caller, after the warm-up.
const PAIRS: usize = 400;

const WARM_UP_PAIRS: usize = 50;

/// Concurrent callers, each with its own connection.
const CALLERS: usize = 64;

/// Calls of each caller in a round.
const CALLS_PER_ROUND: usize = 10;

/// Rounds with all callers, after the warm-up.
const ROUNDS: usize = 6;

/// Concurrent capsules: enough for all callers and their callees.
const SLOTS: usize = CALLERS;

/// The pool of the only node.
const POOL: &str = "any";

const NOTE: &str = "sync always, simulated runtime with its scratch directories in memory, separate processes on loopback";

pub(super) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let mut site = Site::start(None).await?;
    site.add_simulated_node(POOL, SLOTS, Scratch::Memory)?;
    site.register(ECHO, &words_schema()).await?;
    site.register(CALLER, &words_schema()).await?;
    site.wait_for_nodes().await?;
    Publisher::connect(site.nats.address())
        .await?
        .create_stream()
        .await?;
    let mut measurements = one_caller(&site).await?;
    measurements.extend(many_callers(&site).await?);
    Ok(measurements)
}

async fn one_caller(site: &Site) -> anyhow::Result<Vec<Measurement>> {
    say(&format!("    one caller: {PAIRS} pairs"));
    let mut client = site.client().await?;
    let mut publisher = Publisher::connect(site.nats.address()).await?;
    let [mut single, mut single_floor, mut nested, mut nested_floor] = [const { Vec::new() }; 4];
    for pair in 0..WARM_UP_PAIRS + PAIRS {
        single.push(call(&mut client, ECHO, pair).await?);
        single_floor.push(publish(&mut publisher, WRITES_SINGLE).await?);
        nested.push(call(&mut client, CALLER, pair).await?);
        nested_floor.push(publish(&mut publisher, WRITES_NESTED).await?);
    }
    for samples in [
        &mut single,
        &mut single_floor,
        &mut nested,
        &mut nested_floor,
    ] {
        samples.drain(..WARM_UP_PAIRS);
    }
    Ok(vec![
        Measurement::new("single_call_1_caller", "ms", &single)?
            .beside("three_synced_publishes", &single, &single_floor)?
            .noted(NOTE),
        Measurement::new("nested_call_1_caller", "ms", &nested)?
            .beside("six_synced_publishes", &nested, &nested_floor)?
            .bounded("p50 <= 5 ms and p99 <= 15 ms")?
            .noted(NOTE),
    ])
}

async fn call(client: &mut Client, capsule: &str, number: usize) -> anyhow::Result<f64> {
    let arguments = words(number);
    let began = Instant::now();
    let output = client.run(capsule, &arguments).await?;
    let took = milliseconds(began);
    anyhow::ensure!(output == arguments, "{capsule} answered {output}");
    Ok(took)
}

async fn publish(publisher: &mut Publisher, count: usize) -> anyhow::Result<f64> {
    let began = Instant::now();
    publisher.publish(count).await?;
    Ok(milliseconds(began))
}

pub(super) fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1_000.0
}

/// The results of rounds with all callers.
#[derive(Default)]
struct Rounds {
    latencies: Vec<f64>,
    rates: Vec<f64>,
    floor_rates: Vec<f64>,
}

async fn many_callers(site: &Site) -> anyhow::Result<Vec<Measurement>> {
    let (single, nested) = (
        rounds(site, ECHO, WRITES_SINGLE).await?,
        rounds(site, CALLER, WRITES_NESTED).await?,
    );
    let per_round = format!(
        "{CALLERS} callers, {} calls a round; {NOTE}",
        CALLERS * CALLS_PER_ROUND
    );
    Ok(vec![
        Measurement::new("single_call_64_callers", "ms", &single.latencies)?.noted(&per_round),
        Measurement::new("single_calls_64_callers", "/s", &single.rates)?
            .beside(
                "three_synced_publishes_64_publishers",
                &single.rates,
                &single.floor_rates,
            )?
            .noted(&per_round),
        Measurement::new("nested_call_64_callers", "ms", &nested.latencies)?.noted(&per_round),
        Measurement::new("nested_calls_64_callers", "/s", &nested.rates)?
            .beside(
                "six_synced_publishes_64_publishers",
                &nested.rates,
                &nested.floor_rates,
            )?
            .bounded("p50 >= 350 /s")?
            .noted(&per_round),
    ])
}

async fn rounds(site: &Site, capsule: &str, writes: usize) -> anyhow::Result<Rounds> {
    say(&format!(
        "    {CALLERS} callers of {capsule}: {ROUNDS} rounds"
    ));
    let mut clients = try_join_all((0..CALLERS).map(|_| site.client())).await?;
    let mut publishers =
        try_join_all((0..CALLERS).map(|_| Publisher::connect(site.nats.address()))).await?;
    let mut found = Rounds::default();
    // The first round is the warm-up.
    for round in 0..=ROUNDS {
        let began = Instant::now();
        let callers = clients
            .iter_mut()
            .enumerate()
            .map(|(caller, client)| async move {
                let mut latencies = Vec::with_capacity(CALLS_PER_ROUND);
                for number in 0..CALLS_PER_ROUND {
                    latencies.push(call(client, capsule, caller * CALLS_PER_ROUND + number).await?);
                }
                anyhow::Ok(latencies)
            });
        let latencies = try_join_all(callers).await?.concat();
        let rate = per_second(began);
        let began = Instant::now();
        let all = publishers
            .iter_mut()
            .map(|publisher| publisher.publish(writes * CALLS_PER_ROUND));
        try_join_all(all).await?;
        if round > 0 {
            found.latencies.extend(latencies);
            found.rates.push(rate);
            found.floor_rates.push(per_second(began));
        }
    }
    Ok(found)
}

/// Calls per second of a round that started at `began`.
fn per_second(began: Instant) -> f64 {
    let calls = u32::try_from(CALLERS * CALLS_PER_ROUND).expect("a round is small");
    f64::from(calls) / began.elapsed().as_secs_f64()
}
