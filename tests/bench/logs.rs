//! The benchmark `logs`: printing the output of an ended run.

use std::fs::{self, File};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::program::aod;
use crate::report::Measurement;
use crate::simulated_node::{TALKER, TALKER_LINES, words, words_schema};
use crate::site::{Scratch, Site};
use aod_tests::progress::say;

/// Its name.
pub(crate) const NAME: &str = "logs";

/// Measurements.
const ROUNDS: usize = 5;

/// The pool of the only node.
const POOL: &str = "any";

pub(crate) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    say("==> logs: print");
    let mut site = Site::start(None).await?;
    site.add_simulated_node(POOL, 1, Scratch::Memory)?;
    site.register(TALKER, &words_schema()).await?;
    site.wait_for_nodes().await?;
    site.client().await?.run(TALKER, &words(0)).await?;
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        samples.push(print(&site)?);
    }
    Ok(vec![
        Measurement::new("print_a_million_lines", "s", &samples)?
            .bounded("p50 <= 3 s")?
            .noted("`aod runs logs` into a file, of an ended run"),
    ])
}

/// The seconds of `aod runs logs`.
fn print(site: &Site) -> anyhow::Result<f64> {
    let path = site.path().join("printed");
    let began = Instant::now();
    let ended = Command::new(aod()?)
        .args(["runs", "logs", "@last"])
        .env("AOD_URL", site.url())
        .stdout(File::create(&path)?)
        .status()?;
    let seconds = began.elapsed().as_secs_f64();
    anyhow::ensure!(ended.success(), "`aod runs logs` ended with {ended}");
    let printed = fs::read_to_string(&path).context("the printed lines")?;
    let count = printed.lines().count();
    anyhow::ensure!(count == TALKER_LINES, "{count} lines were printed");
    Ok(seconds)
}
