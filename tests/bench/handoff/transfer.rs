//! A file of 1 GiB to another host: a capsule on one node hands it to a capsule on another, which has its own cache.
//! Compared with a put from a file and a get into a file by another cache, hashed both ways, on the same store; and
//! the memory growth of the programs.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use aod_ports::artifact_store::ArtifactStore;
use aod_testkit::S3Server;
use serde_json::json;

use crate::report::Measurement;
use crate::simulated_node::{RECEIVER, SENDER, receiver_schema, sender_schema, write_file};
use crate::site::{STORE_IN_BROKER, Scratch, Site};
use aod_tests::progress::say;

/// The size of the file.
const MEGABYTES: u64 = 1_024;

/// Size of the file in the warm-up.
const WARM_UP_MEGABYTES: u64 = 64;

/// Pairs for each store: each writes 1 GiB about four times.
const PAIRS: u64 = 3;

/// Concurrent capsules on each host.
const SLOTS: usize = 2;

/// The pool of the receiving host.
const FAR: &str = "far";

/// The results of one store.
#[derive(Default)]
struct Found {
    /// Mebibytes per second.
    product: Vec<f64>,
    floor: Vec<f64>,
    /// The growth of each program, in MiB, one sample for each transfer.
    growth: Vec<(String, Vec<f64>)>,
}

pub(super) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = through("jetstream", STORE_IN_BROKER.to_owned()).await?;
    let server = S3Server::start();
    // The programs read credentials from a file, because command lines are public.
    let credentials = tempfile::NamedTempFile::new()?;
    let (access, secret) = (S3Server::ACCESS_KEY, S3Server::SECRET_KEY);
    std::fs::write(
        credentials.path(),
        format!("aws_access_key_id = {access}\naws_secret_access_key = {secret}\n"),
    )?;
    let url = format!(
        "s3://{}?endpoint={}&region=us-east-1&credentials={}",
        S3Server::BUCKET,
        server.endpoint(),
        credentials.path().display()
    );
    measurements.extend(through("s3", url).await?);
    Ok(measurements)
}

async fn through(store: &str, url: String) -> anyhow::Result<Vec<Measurement>> {
    say(&format!("    {store}: {PAIRS} pairs of {MEGABYTES} MiB"));
    let mut site = Site::start(Some(url)).await?;
    site.add_simulated_node("any", SLOTS, Scratch::Disk)?;
    site.add_simulated_node(FAR, SLOTS, Scratch::Disk)?;
    site.register(SENDER, &sender_schema()).await?;
    site.register(RECEIVER, &receiver_schema()).await?;
    site.wait_for_nodes().await?;
    let found = pairs(&site).await?;
    let note = format!(
        "from the request of the sending capsule to its answer; {store}, two nodes with caches of their own, all on one disk; \
         the floor is AOD's store client alone: put from a file, get into a file, SHA-256 both ways"
    );
    let mut measurements = vec![
        Measurement::new(&format!("file_1gib_{store}"), "MiB/s", &found.product)?
            .beside("store_put_and_get", &found.product, &found.floor)?
            .bounded("ratio >= 0.6")?
            .noted(&note),
    ];
    for (program, growth) in &found.growth {
        let name = format!("file_1gib_{store}_memory_of_{program}");
        let measurement = Measurement::new(&name, "MiB", growth)?.bounded("p99 <= 64 MiB")?;
        measurements.push(
            measurement.noted("resident memory at its peak, less what it was before the transfer"),
        );
    }
    Ok(measurements)
}

async fn pairs(site: &Site) -> anyhow::Result<Found> {
    let (near, far) = (
        site.artifacts("floor-near").await?,
        site.artifacts("floor-far").await?,
    );
    transfer(site, WARM_UP_MEGABYTES, 0).await?;
    put_and_get(site.path(), &near, &far, WARM_UP_MEGABYTES, u64::MAX).await?;
    let mut found = Found::default();
    for pair in 0..PAIRS {
        let programs = || site.nodes.iter().chain([&site.gateway]);
        let before = programs()
            .map(crate::program::Program::memory_from_now_on)
            .collect::<anyhow::Result<Vec<_>>>()?;
        found
            .product
            .push(transfer(site, MEGABYTES, 2 * pair + 1).await?);
        for (index, (program, before)) in programs().zip(before).enumerate() {
            let growth = mebibytes(program.memory_peak()?.saturating_sub(before));
            match found.growth.get_mut(index) {
                Some((_, samples)) => samples.push(growth),
                None => found
                    .growth
                    .push((program.name().replace('-', "_"), vec![growth])),
            }
        }
        found
            .floor
            .push(put_and_get(site.path(), &near, &far, MEGABYTES, 2 * pair + 2).await?);
    }
    Ok(found)
}

/// One file through the product, in MiB per second.
async fn transfer(site: &Site, megabytes: u64, seed: u64) -> anyhow::Result<f64> {
    let arguments = json!({"megabytes": megabytes, "seed": seed, "pool": FAR});
    let output = site.client().await?.run(SENDER, &arguments).await?;
    let seconds = output["seconds"]
        .as_f64()
        .with_context(|| format!("no time in {output}"))?;
    Ok(rate(megabytes, seconds))
}

/// One file through the store alone, in MiB per second.
async fn put_and_get(
    directory: &Path,
    near: &Arc<dyn ArtifactStore>,
    far: &Arc<dyn ArtifactStore>,
    megabytes: u64,
    seed: u64,
) -> anyhow::Result<f64> {
    let path = directory.join("floor.bin");
    write_file(path.clone(), megabytes, seed).await?;
    let began = Instant::now();
    let stored = near.put_reader(Box::new(File::open(&path)?)).await?;
    let got = far.get_file(stored.digest, stored.size_bytes).await?;
    let seconds = began.elapsed().as_secs_f64();
    anyhow::ensure!(
        got.size_bytes() == megabytes << 20,
        "{} bytes came back",
        got.size_bytes()
    );
    std::fs::remove_file(path)?;
    Ok(rate(megabytes, seconds))
}

#[expect(clippy::cast_precision_loss, reason = "some thousand MiB")]
fn rate(megabytes: u64, seconds: f64) -> f64 {
    megabytes as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
