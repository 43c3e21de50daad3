//! The report: `target/chaos/report.json`, and the same as text.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Serialize;

use crate::takeover::Takeover;

/// Its path, from the root of the repository.
const PATH: &str = "target/chaos/report.json";

/// The machine.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpus: usize,
    memory_bytes: u64,
    kernel: String,
    docker: String,
    nats: String,
}

impl Machine {
    /// `docker` is the version that the daemon reports.
    pub(crate) fn look(docker: &str) -> anyhow::Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
        let memory = read("/proc/meminfo")?;
        let kibibytes: u64 = memory
            .split_whitespace()
            .nth(1)
            .context("no MemTotal in /proc/meminfo")?
            .parse()?;
        let nats = Command::new(aod_testkit::nats::program())
            .arg("--version")
            .output()?;
        Ok(Self {
            cpus: std::thread::available_parallelism()?.get(),
            memory_bytes: kibibytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            docker: docker.trim().to_owned(),
            nats: String::from_utf8_lossy(&nats.stdout).trim().to_owned(),
        })
    }
}

/// The number of runs.
#[derive(Debug, Serialize)]
pub(crate) struct Runs {
    /// Requested by clients.
    pub(crate) roots: usize,
    /// Called by runs.
    pub(crate) nested: usize,
    /// With the same answer as the reference.
    pub(crate) answered: usize,
    /// Admitted by the rule, whose limit is the number of clients less one.
    pub(crate) admitted: usize,
    pub(crate) most_admitted_at_once: usize,
    /// Versions of a capsule that its author tried to register.
    pub(crate) versions_tried: u64,
    pub(crate) versions_registered: u64,
}

/// The number of repetitions.
#[derive(Debug, Serialize)]
pub(crate) struct Again {
    /// Requests of clients.
    pub(crate) client_retries: u64,
    /// Runs with more than one attempt.
    pub(crate) runs_with_more_attempts: usize,
    /// Callees that a later attempt of their caller joined or found ended, instead of a new one.
    pub(crate) callees_joined: usize,
    /// Programs that ended by themselves and were restarted.
    pub(crate) programs_restarted: usize,
}

/// The result of the chaos.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    /// Duration of the faults, in minutes.
    pub(crate) minutes: f64,
    pub(crate) machine: Machine,
    /// Whether a takeover above its bound fails the chaos: only if nothing else uses the machine.
    pub(crate) judges_takeovers: bool,
    pub(crate) faults: BTreeMap<&'static str, usize>,
    pub(crate) runs: Runs,
    pub(crate) again: Again,
    pub(crate) takeovers: Vec<Takeover>,
    pub(crate) violations: Vec<String>,
}

impl Report {
    pub(crate) fn holds(&self) -> bool {
        let is_in_time = self.takeovers.iter().all(|takeover| takeover.holds);
        self.violations.is_empty() && (is_in_time || !self.judges_takeovers)
    }

    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let path = Path::new(PATH);
        fs::create_dir_all(path.parent().context("a directory")?)?;
        fs::write(path, serde_json::to_string_pretty(self)? + "\n").context(PATH)
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let (runs, again) = (&self.runs, &self.again);
        writeln!(
            out,
            "chaos of {:.1} minutes, seed {}",
            self.minutes, self.seed
        )?;
        writeln!(
            out,
            "{} runs of clients, {} nested, {} answered correctly; {} requests repeated, {} runs \
             with another attempt, {} callees joined by one, {} programs restarted, {} admitted, at most {} \
             concurrently; {} of {} versions of a capsule registered",
            runs.roots,
            runs.nested,
            runs.answered,
            again.client_retries,
            again.runs_with_more_attempts,
            again.callees_joined,
            again.programs_restarted,
            runs.admitted,
            runs.most_admitted_at_once,
            runs.versions_registered,
            runs.versions_tried
        )?;
        for (kind, count) in &self.faults {
            writeln!(out, "  {kind:<20} {count:>4}")?;
        }
        let seconds =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        writeln!(
            out,
            "  {:<44} {:>4} {:>7} {:>7} {:>7}  bound",
            "takeovers, seconds", "n", "p50", "p99", "longest"
        )?;
        for takeover in &self.takeovers {
            let verdict = if takeover.holds { "holds" } else { "MISSED" };
            writeln!(
                out,
                "  {:<44} {:>4} {:>7} {:>7} {:>7}  {} {verdict}",
                takeover.name,
                takeover.n,
                seconds(takeover.p50_seconds),
                seconds(takeover.p99_seconds),
                seconds(takeover.longest_seconds),
                takeover.bound_seconds
            )?;
        }
        for violation in &self.violations {
            writeln!(out, "VIOLATION {violation}")?;
        }
        let verdict = if self.holds() { "all holds" } else { "FAILED" };
        writeln!(out, "{verdict}; report: {PATH}")?;
        Ok(())
    }
}
