//! The benchmark `scale`: the cost of a gateway and its broker as the history grows.

mod generator;
mod loader;
mod plot;
mod questions;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};

use self::generator::Generator;
use crate::nats::Publisher;
use crate::report::Measurement;
use crate::simulated_node::{CALLER, ECHO, words, words_schema};
use crate::site::{Client, Scratch, Site};
use aod_tests::progress::say;

/// Its name.
pub(crate) const NAME: &str = "scale";

/// The same without the largest history.
pub(crate) const SMALL: &str = "scale.small";

/// Runs of the measured histories.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];

/// Age of the oldest run.
const MONTH: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Maximum wait until the lists are current.
const REBUILD_SECONDS_MAX: u64 = 20 * 60;

/// Interval between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Nested calls measured beside each history.
const CALLS: usize = 200;

/// Slots of the node, and its pool.
const SLOTS: usize = 8;
const POOL: &str = "any";

const MEBIBYTE: u64 = 1 << 20;

/// The measurements of one history, with names and units.
#[derive(Debug)]
struct Figures {
    runs: u64,
    all: Vec<Figure>,
}

/// One series of samples.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    samples: Vec<f64>,
    /// The bound for the largest history.
    bound: Option<&'static str>,
    note: String,
}

impl Figure {
    fn new(name: &'static str, unit: &'static str, samples: Vec<f64>) -> Self {
        Self {
            name,
            unit,
            samples,
            bound: None,
            note: String::new(),
        }
    }

    fn bounded(self, bound: &'static str) -> Self {
        Self {
            bound: Some(bound),
            ..self
        }
    }

    fn noted(self, note: String) -> Self {
        Self { note, ..self }
    }
}

pub(crate) async fn measure(name: &str) -> anyhow::Result<Vec<Measurement>> {
    let sizes = if name == SMALL {
        &SIZES[..2]
    } else {
        &SIZES[..]
    };
    let mut site = Site::start(None).await?;
    for capsule in [ECHO, CALLER] {
        site.register(capsule, &words_schema()).await?;
    }
    let mut publisher = Publisher::connect(site.nats.address()).await?;
    let mut generator = Generator::new(0, Timestamp::now() - MONTH);
    let mut histories = Vec::new();
    for &runs in sizes {
        say(&format!("==> scale: {runs} runs"));
        site.nodes.clear();
        site.stop_gateway();
        loader::prepare(&mut publisher).await?;
        generator.sequence = loader::last_sequence(&mut publisher).await?;
        let (from, began) = (generator.sequence, Instant::now());
        generator = loader::load(&mut publisher, generator, runs).await?;
        let made = generator.sequence - from;
        let seconds = began.elapsed().as_secs_f64();
        say(&format!(
            "    {made} events generated and stored in {seconds:.1} s"
        ));
        histories.push(figures(&mut site, &mut publisher, &generator).await?);
    }
    plot::write(NAME, &histories)?;
    measurements(&histories)
}

/// All measurements of the current history.
async fn figures(
    site: &mut Site,
    publisher: &mut Publisher,
    generator: &Generator,
) -> anyhow::Result<Figures> {
    let (runs, last) = (generator.runs, generator.sequence);
    let mut all = Vec::new();
    forget_lists(&site.gateway_data())?;
    let rebuild = started(site, last).await?;
    say(&format!("    lists rebuilt in {rebuild:.1} s"));
    all.push(Figure::new("rebuild", "events/s", vec![per(last, rebuild)]));
    site.stop_gateway();
    let ready = started(site, last).await?;
    all.push(Figure::new("ready_again", "s", vec![ready]).bounded("p50 <= 10 s"));
    let mut client = site.client().await?;
    all.extend(questions::ask(&mut client, generator).await?);
    all.push(calls(site, &mut client).await?);
    all.push(Figure::new(
        "gateway_memory",
        "MiB",
        vec![mebibytes(site.gateway.memory_now()?)],
    ));
    let broker = crate::program::memory_of(site.nats.process_id())?;
    all.push(Figure::new("broker_memory", "MiB", vec![mebibytes(broker)]));
    let log = loader::bytes(publisher).await?;
    all.push(Figure::new(
        "log_on_disk",
        "bytes/run",
        vec![per(log, count(runs))],
    ));
    let lists = size(&site.gateway_data())?;
    all.push(Figure::new(
        "lists_on_disk",
        "bytes/run",
        vec![per(lists, count(runs))],
    ));
    Ok(Figures { runs, all })
}

/// Starts the gateway; returns the seconds until its lists have the event `last`.
async fn started(site: &mut Site, last: u64) -> anyhow::Result<f64> {
    let began = Instant::now();
    site.start_gateway().await?;
    let mut client = site.client().await?;
    loop {
        let ready = client.get("/ready").await?;
        let as_of = ready["read_model"]["as_of"].as_u64();
        if as_of.context("a position in the log")? >= last {
            client.get("/v1/runs?limit=1").await?;
            return Ok(began.elapsed().as_secs_f64());
        }
        anyhow::ensure!(
            began.elapsed().as_secs() < REBUILD_SECONDS_MAX,
            "the lists are at {as_of:?} of {last}"
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The cost of a nested call beside the history.
async fn calls(site: &mut Site, client: &mut Client) -> anyhow::Result<Figure> {
    site.add_simulated_node(POOL, SLOTS, Scratch::Memory)?;
    site.wait_for_nodes().await?;
    let mut samples = Vec::new();
    for number in 0..CALLS {
        let began = Instant::now();
        client.run(CALLER, &words(number)).await?;
        samples.push(began.elapsed().as_secs_f64() * 1_000.0);
    }
    let note = "a run with a nested one, without containers, from the request to its answer";
    Ok(Figure::new("nested_call", "ms", samples).noted(note.to_owned()))
}

/// Each measurement of each history; those of the largest are compared with those of the smallest, and judged.
fn measurements(histories: &[Figures]) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let (first, last) = histories
        .first()
        .zip(histories.last())
        .context("there are histories")?;
    for (index, smallest) in first.all.iter().enumerate() {
        for history in histories {
            let figure = &history.all[index];
            let name = format!("{} of {} runs", figure.name, history.runs);
            let mut measurement = Measurement::new(&name, figure.unit, &figure.samples)?;
            if history.runs == last.runs {
                let beside = format!("{} runs", first.runs);
                measurement = measurement.beside(&beside, &figure.samples, &smallest.samples)?;
                if let Some(bound) = figure.bound {
                    measurement = measurement.bounded(bound)?;
                }
                measurement = measurement.noted(&figure.note);
            }
            measurements.push(measurement);
        }
    }
    Ok(measurements)
}

/// Removes the files of the read model, as an operator may at any time.
fn forget_lists(data: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        if is_of_lists(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Size of the files of the read model, in bytes.
fn size(data: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if is_of_lists(&entry.path()) {
            bytes += entry.metadata()?.len();
        }
    }
    anyhow::ensure!(bytes > 0, "{} has no lists", data.display());
    Ok(bytes)
}

fn is_of_lists(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with("read-model-"))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count(count: u64) -> f64 {
    count as f64
}

fn per(sum: u64, divisor: f64) -> f64 {
    count(sum) / divisor
}

fn mebibytes(bytes: u64) -> f64 {
    per(bytes, count(MEBIBYTE))
}
