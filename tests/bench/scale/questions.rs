//! Typical queries of a history: pages of lists, searches, and one replayed tree.

use std::time::Instant;

use anyhow::Context as _;
use aod_tests::progress::say;
use aod_tests::statistics::Spread;
use fastrand::Rng;

use super::Figure;
use super::generator::{CAPSULES, COMMON_WORD, CUSTOMERS, Generator, TEAMS, WORDS, word};
use crate::site::Client;

/// Number of queries of each kind, with different values.
const TIMES: usize = 100;

/// A kind of query with random values.
type Shape = (&'static str, fn(&mut Rng, &Generator) -> String);

/// Pages of lists: with filters that match much, little and nothing, from the start and from deep below.
const LISTS: &[Shape] = &[
    ("all", |_, _| String::new()),
    ("deep", |random, generator| cursor(random, generator)),
    ("roots", |random, generator| {
        format!("roots=true&{}", cursor(random, generator))
    }),
    ("state", |_, _| "state=succeeded".to_owned()),
    ("rare state", |_, _| "state=failed".to_owned()),
    ("states that nothing is in", |_, _| {
        "state=requested,queued,leased,running".to_owned()
    }),
    ("capsule", |random, _| {
        format!("capsule=report-{}", random.u64(..CAPSULES))
    }),
    ("capsule and state", |random, _| {
        format!("capsule=chart-{}&state=failed", random.u64(..CAPSULES))
    }),
    ("roots of a capsule that has none", |random, _| {
        format!("capsule=chart-{}&roots=true", random.u64(..CAPSULES))
    }),
    ("roots of a state", |_, _| {
        "state=failed&roots=true".to_owned()
    }),
    ("label", |random, _| {
        format!("label=team%3Dteam-{}", random.u64(..TEAMS))
    }),
    ("rare label", |random, _| {
        format!("label=customer%3Dcustomer-{}", random.u64(..CUSTOMERS))
    }),
    ("two labels", |random, _| {
        let customer = random.u64(..CUSTOMERS);
        format!(
            "label=team%3Dteam-{}&label=customer%3Dcustomer-{customer}",
            customer % TEAMS
        )
    }),
    ("two labels that never meet", |random, _| {
        let customer = random.u64(..CUSTOMERS);
        format!(
            "label=team%3Dteam-{}&label=customer%3Dcustomer-{customer}",
            (customer + 1) % TEAMS
        )
    }),
    ("label and state", |random, _| {
        format!("label=team%3Dteam-{}&state=failed", random.u64(..TEAMS))
    }),
    ("label and a state that nothing is in", |random, _| {
        format!("label=team%3Dteam-{}&state=running", random.u64(..TEAMS))
    }),
    ("label and capsule that never meet", |_, _| {
        "label=team%3Dteam-1&capsule=report-2".to_owned()
    }),
];

/// Searches in arguments and errors.
const SEARCHES: &[Shape] = &[
    ("word of all", |_, _| format!("text={COMMON_WORD}")),
    ("common word", |random, _| {
        format!("text={}", word(random.u64(1..20)))
    }),
    ("rare word", |random, _| {
        format!("text={}", word(random.u64(WORDS / 2..WORDS)))
    }),
    ("no word of any", |_, _| "text=quagga".to_owned()),
    ("two common words", |random, _| {
        format!(
            "text={}%20{}",
            word(random.u64(1..5)),
            word(random.u64(5..10))
        )
    }),
    ("common and rare word", |random, _| {
        format!(
            "text={COMMON_WORD}%20{}",
            word(random.u64(WORDS / 2..WORDS))
        )
    }),
    ("error", |random, _| {
        format!("text=shard%20{}", random.u64(1..WORDS))
    }),
    ("word of all, deep", |random, generator| {
        format!("text={COMMON_WORD}&{}", cursor(random, generator))
    }),
    ("word of all, rare state", |_, _| {
        format!("text={COMMON_WORD}&state=failed")
    }),
    ("word of all, state that nothing is in", |_, _| {
        format!("text={COMMON_WORD}&state=running")
    }),
    ("word of all, rare label", |random, _| {
        format!(
            "text={COMMON_WORD}&label=customer%3Dcustomer-{}",
            random.u64(..CUSTOMERS)
        )
    }),
    ("rare word, common state", |random, _| {
        format!(
            "text={}&state=succeeded",
            word(random.u64(WORDS / 2..WORDS))
        )
    }),
];

/// A page that begins anywhere in the history.
fn cursor(random: &mut Rng, generator: &Generator) -> String {
    format!("cursor={:x}", random.u64(1..=generator.sequence))
}

/// Runs all queries; reports the slowest kind of lists and of searches.
pub(super) async fn ask(client: &mut Client, generator: &Generator) -> anyhow::Result<Vec<Figure>> {
    let random = &mut Rng::with_seed(11);
    let lists = slowest(client, generator, random, LISTS).await?;
    let searches = slowest(client, generator, random, SEARCHES).await?;
    Ok(vec![
        figure("list_page", lists),
        figure("search", searches),
        replays(client, generator, random).await?,
        large_replays(client, generator, random).await?,
    ])
}

fn figure(name: &'static str, (shape, samples): (&str, Vec<f64>)) -> Figure {
    Figure::new(name, "ms", samples)
        .bounded("p99 <= 50 ms")
        .noted(format!("the slowest kind of query: {shape}"))
}

/// The kind of query with the largest p99, and its samples.
async fn slowest(
    client: &mut Client,
    generator: &Generator,
    random: &mut Rng,
    shapes: &[Shape],
) -> anyhow::Result<(&'static str, Vec<f64>)> {
    let mut slowest: (&str, f64, Vec<f64>) = ("", -1.0, Vec::new());
    for (name, draw) in shapes {
        let mut samples = Vec::new();
        for _ in 0..TIMES {
            let path = format!("/v1/runs?limit=50&{}", draw(random, generator));
            samples.push(timed(client, &path).await?);
        }
        let p99 = Spread::of(&samples).map_or(0.0, |spread| spread.p99);
        say(&format!("    {p99:>8.1} ms p99  {name}"));
        if p99 > slowest.1 {
            slowest = (name, p99, samples);
        }
    }
    Ok((slowest.0, slowest.2))
}

/// Trees from all over the history, each read from the log and compared with the lists.
async fn replays(
    client: &mut Client,
    generator: &Generator,
    random: &mut Rng,
) -> anyhow::Result<Figure> {
    let mut samples = Vec::new();
    for _ in 0..TIMES {
        // Not among the very first, which have no predecessor.
        let before = random.u64(generator.sequence / 2..=generator.sequence);
        let page = client
            .get(&format!("/v1/runs?limit=1&roots=true&cursor={before:x}"))
            .await?;
        let root = page["items"][0]["id"]
            .as_str()
            .context("a root")?
            .to_owned();
        samples.push(timed(client, &format!("/v1/runs/{root}/replay")).await?);
    }
    Ok(Figure::new("replay_of_a_pair", "ms", samples).bounded("p99 <= 100 ms"))
}

/// The same for large trees.
async fn large_replays(
    client: &mut Client,
    generator: &Generator,
    random: &mut Rng,
) -> anyhow::Result<Figure> {
    let mut samples = Vec::new();
    for _ in 0..TIMES {
        let root = random.choice(&generator.large).context("a large tree")?;
        samples.push(timed(client, &format!("/v1/runs/{root}/replay")).await?);
    }
    Ok(Figure::new("replay_of_64_runs", "ms", samples).bounded("p99 <= 100 ms"))
}

async fn timed(client: &mut Client, path: &str) -> anyhow::Result<f64> {
    let began = Instant::now();
    client.get(path).await?;
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}
