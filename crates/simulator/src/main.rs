//! Simulates seeds. Exits with 1 if a seed failed or a kind of event never happened, and prints which.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use aod_simulator::{KINDS, Outcome, simulate};
use clap::Parser;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A failure shows early: more failed seeds give no new information.
const FAILURES_MAX: usize = 5;

/// From this number of seeds on, every kind must have happened.
const SEEDS_FOR_ALL_KINDS: u64 = 1_000;

/// Minimum average of a seed.
const STEPS_MEAN_MIN: u64 = 300;
const RUNS_MEAN_MIN: u64 = 20;

/// Simulate whole clusters in virtual time: one seed, one history
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of seeds
    #[arg(default_value_t = 1_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of seeds to run twice, to compare the traces
    #[arg(long, value_name = "N", default_value_t = 0)]
    twice: u64,
    /// Print every step of this seed; RUST_LOG adds the logs of the programs
    #[arg(long, value_name = "SEED")]
    show: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.twice > 0 && !cfg!(tokio_unstable) {
        eprintln!("error: --twice requires a build by deploy/simulate.sh, which also seeds tokio");
        return ExitCode::from(2);
    }
    match arguments.show {
        Some(seed) => show(seed),
        None => run_all(&arguments),
    }
}

fn show(seed: u64) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let outcome = simulate(seed, true);
    print_outcome(&outcome);
    if outcome.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print_outcome(outcome: &Outcome) {
    for violation in &outcome.violations {
        eprintln!("seed {}: {violation}", outcome.seed);
    }
    eprintln!(
        "seed {}: {} steps, {} runs, trace {}",
        outcome.seed, outcome.steps, outcome.runs, outcome.trace
    );
}

/// The totals of all seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    runs: u64,
    counts: BTreeMap<&'static str, u64>,
    failed: Vec<u64>,
}

fn run_all(arguments: &Arguments) -> ExitCode {
    let (began, end) = (Instant::now(), arguments.from + arguments.seeds);
    let twice_until = arguments.from + arguments.twice;
    let (next, totals) = (
        AtomicU64::new(arguments.from),
        Mutex::new(Totals::default()),
    );
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&next, end, twice_until, &totals));
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (seconds, seeds) = (began.elapsed().as_secs_f64(), totals.seeds.max(1));
    eprintln!(
        "{seeds} seeds in {seconds:.1} s ({} of them twice), on average {} steps and {} runs each",
        arguments.twice.min(seeds),
        totals.steps / seeds,
        totals.runs / seeds
    );
    for (kind, count) in &totals.counts {
        eprintln!("  {count:>10} {kind}");
    }
    if judge(&totals) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether every seed passed, with sufficient coverage.
fn judge(totals: &Totals) -> bool {
    for seed in &totals.failed {
        eprintln!("seed {seed} failed: deploy/simulate.sh --show {seed}");
    }
    if totals.seeds < SEEDS_FOR_ALL_KINDS {
        return totals.failed.is_empty();
    }
    let missing: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| !totals.counts.contains_key(kind))
        .collect();
    if !missing.is_empty() {
        eprintln!("never happened: {}", missing.join(", "));
    }
    let is_lively = totals.steps / totals.seeds >= STEPS_MEAN_MIN
        && totals.runs / totals.seeds >= RUNS_MEAN_MIN;
    if !is_lively {
        eprintln!(
            "too few steps or runs: expected at least {STEPS_MEAN_MIN} steps and {RUNS_MEAN_MIN} runs for each seed"
        );
    }
    totals.failed.is_empty() && missing.is_empty() && is_lively
}

fn work(next: &AtomicU64, end: u64, twice_until: u64, totals: &Mutex<Totals>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let mut outcome = simulate(seed, false);
        if seed < twice_until {
            let again = simulate(seed, false).trace;
            if again != outcome.trace {
                let text = format!("the second run has another history, {again}");
                outcome.violations.push(text);
            }
        }
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.seeds += 1;
        totals.steps += outcome.steps;
        totals.runs += outcome.runs;
        for (kind, count) in &outcome.counts {
            *totals.counts.entry(kind).or_default() += count;
        }
        if !outcome.violations.is_empty() {
            print_outcome(&outcome);
            totals.failed.push(seed);
            if totals.failed.len() >= FAILURES_MAX {
                next.store(end, Ordering::Relaxed);
            }
        }
    }
}
