//! The benchmark `handoff`: the cost of a handoff, part by part.

mod cold;
mod containers;
mod contract;
mod control_plane;
mod launches;
mod transfer;

use tokio::process::Command;

use crate::report::Measurement;
use aod_tests::progress::say;

/// Its name.
pub(crate) const NAME: &str = "handoff";

const PARTS: [&str; 5] = ["contract", "control_plane", "cold", "launches", "transfer"];

/// The full names of the parts.
pub(crate) fn parts() -> Vec<String> {
    PARTS.iter().map(|part| format!("{NAME}.{part}")).collect()
}

/// Whether `name` is the benchmark or a part of it.
pub(crate) fn is_known(name: &str) -> bool {
    name == NAME || parts().iter().any(|part| part == name)
}

/// Measures all parts, or only the part `name`.
pub(crate) async fn run(name: &str) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for part in PARTS
        .iter()
        .filter(|part| name == NAME || name == format!("{NAME}.{part}"))
    {
        say(&format!("==> {NAME}: {part}"));
        settle_disk().await?;
        measurements.extend(match *part {
            "contract" => contract::measure()?,
            "control_plane" => control_plane::measure().await?,
            "cold" => cold::measure().await?,
            "launches" => launches::measure().await?,
            _ => transfer::measure().await?,
        });
    }
    Ok(measurements)
}

/// Waits until earlier writes are on disk, so that builds and earlier parts are not measured.
async fn settle_disk() -> anyhow::Result<()> {
    let synced = Command::new("sync").status().await?;
    anyhow::ensure!(synced.success(), "sync ended with {synced}");
    Ok(())
}
