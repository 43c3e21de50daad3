//! The machine and versions of a measurement.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::docker::Docker;

/// The machine in every report.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) docker: String,
    pub(crate) nats: String,
    /// `sync_interval` of the broker; all brokers of the benchmarks use it.
    pub(crate) sync: &'static str,
}

impl Machine {
    pub(crate) async fn look() -> anyhow::Result<Self> {
        let mut docker = Docker::connect().await?;
        let version = docker.ask("GET", "/version", None).await?;
        let cpus = std::thread::available_parallelism()?.get();
        Ok(Self {
            cpus,
            memory_bytes: memory_bytes()?,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            docker: version["Version"].as_str().unwrap_or("unknown").to_owned(),
            nats: nats_version().await?,
            sync: "always",
        })
    }
}

fn memory_bytes() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemTotal:"))
        .context("no MemTotal in /proc/meminfo")?;
    let kibibytes: u64 = line
        .split_whitespace()
        .nth(1)
        .context("MemTotal has no value")?
        .parse()?;
    Ok(kibibytes * 1024)
}

/// The version of a server of the measured kind.
async fn nats_version() -> anyhow::Result<String> {
    let server = aod_testkit::NatsServer::start(aod_testkit::NatsConfig::default());
    let publisher = crate::nats::Publisher::connect(server.address()).await?;
    let information: Value = publisher.server;
    Ok(information["version"]
        .as_str()
        .unwrap_or("unknown")
        .to_owned())
}

/// The commit of this tree, marked if it has uncommitted changes.
pub(crate) fn commit() -> anyhow::Result<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .output()
            .context("cannot run git")?;
        anyhow::ensure!(output.status.success(), "git {arguments:?} failed");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let commit: String = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(if is_clean {
        commit
    } else {
        format!("{commit}+changes")
    })
}

/// The current time, in RFC 3339.
pub(crate) fn now() -> anyhow::Result<String> {
    let now = jiff::Timestamp::try_from(SystemTime::now())?;
    Ok(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
