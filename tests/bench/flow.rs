//! The benchmark `flow`: the cost of a rule, and the wait of a small share beside a large one.

use std::time::Instant;

use anyhow::Context as _;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::report::Measurement;
use crate::simulated_node::{ECHO, LIMITED, PAUSE, words, words_schema};
use crate::site::{Client, Scratch, Site};
use aod_tests::progress::say;

/// Its name.
pub(crate) const NAME: &str = "flow";

/// Pairs of calls by one caller, after the warm-up.
const PAIRS: usize = 300;

const WARM_UP_PAIRS: usize = 30;

/// Concurrency of the rule whose cost is measured.
const ROOMY: usize = 1_000;

/// Slots for the measurement of shares: few, so that a run also waits for others of its own share.
const SLOTS: usize = 2;

/// Runs of the small share. Source: the bound, which is about ten of them.
const SMALL: usize = 10;

/// Runs of the large share that wait meanwhile.
const LARGE: usize = 10_000;

/// Connections that request them.
const ASKING: usize = 64;

/// Measurements of the small share, alone and beside the large one.
const ROUNDS: usize = 5;

/// The pool of the only node.
const POOL: &str = "any";

pub(crate) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = vec![cost().await?];
    measurements.extend(shares().await?);
    Ok(measurements)
}

/// A call of a capsule with a rule, compared with a call of one without.
async fn cost() -> anyhow::Result<Measurement> {
    say("==> flow: cost");
    let mut site = Site::start(None).await?;
    site.add_simulated_node(POOL, ASKING, Scratch::Memory)?;
    site.register(ECHO, &words_schema()).await?;
    site.register(LIMITED, &words_schema()).await?;
    site.wait_for_nodes().await?;
    let mut client = site.client().await?;
    let rule = json!({"capsules": [LIMITED], "concurrency": ROOMY});
    client.put("/v1/rules/limited", &rule).await?;
    let (mut limited, mut free) = (Vec::new(), Vec::new());
    for pair in 0..WARM_UP_PAIRS + PAIRS {
        limited.push(call(&mut client, LIMITED, pair).await?);
        free.push(call(&mut client, ECHO, pair).await?);
    }
    limited.drain(..WARM_UP_PAIRS);
    free.drain(..WARM_UP_PAIRS);
    Ok(Measurement::new("limited_call_1_caller", "ms", &limited)?
        .beside("call_without_a_rule", &limited, &free)?
        .noted("two more synced writes, three sequential steps"))
}

async fn call(client: &mut Client, capsule: &str, number: usize) -> anyhow::Result<f64> {
    let began = Instant::now();
    client.run(capsule, &words(number)).await?;
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}

/// Ten runs of one tenant, alone and while thousands of another tenant wait.
async fn shares() -> anyhow::Result<Vec<Measurement>> {
    say("==> flow: shares");
    let mut site = Site::start(None).await?;
    site.add_simulated_node(POOL, SLOTS, Scratch::Memory)?;
    for tenant in ["small", "large"] {
        site.register_for(&tenant.parse()?, PAUSE, &words_schema())
            .await?;
    }
    site.wait_for_nodes().await?;
    let mut client = site.client().await?;
    let rule = json!({"key": ["tenant"], "fair": true});
    client.put("/v1/rules/tenants", &rule).await?;
    let mut alone = Vec::new();
    for round in 0..ROUNDS {
        alone.push(longest_wait(&mut client, round).await?);
    }
    say(&format!("    {LARGE} runs of another tenant"));
    let began = Instant::now();
    let each = LARGE / ASKING + 1;
    try_join_all((0..ASKING).map(|asking| ask_for(&site, asking * each, each))).await?;
    let asked = f64::from(u32::try_from(ASKING * each)?) / began.elapsed().as_secs_f64();
    let mut beside = Vec::new();
    for round in 0..ROUNDS {
        beside.push(longest_wait(&mut client, ROUNDS + round).await?);
    }
    let waiting = client.get("/v1/rules").await?["items"][0]["waiting"].clone();
    let note = format!(
        "{SMALL} runs of 100 ms on {SLOTS} slots, the longest wait of each round; {waiting} of the other tenant wait at the end"
    );
    Ok(vec![
        Measurement::new("small_tenant_longest_wait", "ms", &beside)?
            .beside("alone", &beside, &alone)?
            .bounded("ratio <= 3")?
            .noted(&note),
        Measurement::new("requests_that_wait", "/s", &[asked])?
            .noted("stored by one gateway while they wait for admission"),
    ])
}

async fn ask_for(site: &Site, first: usize, count: usize) -> anyhow::Result<()> {
    let mut client = site.client().await?;
    for number in first..first + count {
        client.start_for("large", PAUSE, &words(number)).await?;
    }
    Ok(())
}

/// Wait of the last run of the small share for a node, in milliseconds.
async fn longest_wait(client: &mut Client, round: usize) -> anyhow::Result<f64> {
    let mut runs = Vec::new();
    for number in 0..SMALL {
        let arguments = words(1_000_000 + round * SMALL + number);
        runs.push(client.start_for("small", PAUSE, &arguments).await?);
    }
    let mut longest: f64 = 0.0;
    for run in &runs {
        let result = client
            .get(&format!("/v1/runs/{run}/result?wait=120"))
            .await?;
        let view = client.get(&format!("/v1/runs/{run}")).await?;
        let asked = instant(&view["requested_at"])?;
        let leased = instant(&result["timings"]["leased_at"])?;
        longest = longest.max(leased.duration_since(asked).as_secs_f64() * 1_000.0);
    }
    Ok(longest)
}

fn instant(value: &Value) -> anyhow::Result<Timestamp> {
    let text = value
        .as_str()
        .with_context(|| format!("{value} is not a time"))?;
    Ok(text.parse()?)
}
