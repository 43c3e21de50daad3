//! `aod-bench`: measures the product beside its floors, and judges the results by their bounds.
//!
//! ```text
//! aod-bench                   every benchmark
//! aod-bench handoff           one benchmark
//! aod-bench handoff.launches  one part of a benchmark
//! ```
//!
//! A benchmark writes `target/bench/NAME.json` and prints the same as a table. Exit codes: 0; 3 if a bound is missed;
//! 1 if a measurement failed; 2 for an unknown name.

mod bound;
mod docker;
mod flow;
mod handoff;
mod http;
mod images;
mod logs;
mod machine;
mod nats;
mod program;
mod proxy;
mod report;
mod scale;
mod simulated_node;
mod site;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::{Measurement, Report};
use aod_tests::progress::say;

/// A benchmark takes minutes; a hanging one must end too.
const BENCHMARK_SECONDS_MAX: u64 = 30 * 60;

/// A bound is missed.
const EXIT_MISSED: u8 = 3;

/// An unknown name.
const EXIT_USAGE: u8 = 2;

/// Ended by a signal. Source: the convention of shells, 128 plus the number of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = aod_services::program::runtime().expect("threads can be started");
    let code = match arguments.split_first() {
        Some((first, rest)) if first == simulated_node::SUBCOMMAND => {
            runtime.block_on(simulated_node::run(rest)).map(|()| 0)
        }
        _ => runtime.block_on(benchmarks(arguments)),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The benchmarks that run without a name.
const ALL: [&str; 6] = [
    handoff::NAME,
    proxy::NAME,
    flow::NAME,
    logs::NAME,
    images::NAME,
    scale::NAME,
];

/// Runs the named benchmarks, or all, until a signal.
async fn benchmarks(mut names: Vec<String>) -> anyhow::Result<u8> {
    if names.is_empty() {
        names = ALL.map(str::to_owned).into();
    }
    let is_known =
        |name: &str| ALL.contains(&name) || name == scale::SMALL || handoff::is_known(name);
    let unknown = names.iter().find(|name| !is_known(name));
    if let Some(name) = unknown {
        say(&format!("error: unknown benchmark {name:?}"));
        say(&format!(
            "hint: {}, {}, or a part of the first: {}",
            ALL.join(", "),
            scale::SMALL,
            handoff::parts().join(", ")
        ));
        return Ok(EXIT_USAGE);
    }
    if cfg!(debug_assertions) {
        say("warning: this is a debug build: its figures are meaningless");
    }
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    // Dropping a benchmark stops its programs.
    tokio::select! {
        code = all(names) => code,
        _ = interrupt.recv() => Ok(EXIT_INTERRUPTED),
        _ = terminate.recv() => Ok(EXIT_INTERRUPTED),
    }
}

async fn measure(name: &str) -> anyhow::Result<Vec<Measurement>> {
    match name {
        proxy::NAME => proxy::measure().await,
        flow::NAME => flow::measure().await,
        logs::NAME => logs::measure().await,
        images::NAME => images::measure().await,
        scale::NAME | scale::SMALL => scale::measure(name).await,
        name => handoff::run(name).await,
    }
}

async fn all(names: Vec<String>) -> anyhow::Result<u8> {
    let mut code = 0;
    for name in names {
        let limit = Duration::from_secs(BENCHMARK_SECONDS_MAX);
        let measured = tokio::time::timeout(limit, measure(&name)).await;
        let measurements = measured
            .with_context(|| format!("{name} did not end in {BENCHMARK_SECONDS_MAX} s"))??;
        let report = Report::new(&name, measurements).await?;
        report.write()?;
        report.print()?;
        if !report.holds() {
            code = EXIT_MISSED;
        }
    }
    Ok(code)
}
